"""The peers of connections that rows refer to by number, also after the connections have closed."""

from polydomo.journal.recording.chunk import NO_PEER, Peer, peer_of
from polydomo.model.records import Session


class KnownPeers:
    def __init__(self) -> None:
        self._peers: dict[int, Session | Peer] = {}
        self._closed: list[int] = []  # connections that closed since the last ``take_closed``

    def __len__(self) -> int:
        return len(self._peers)

    def add(self, session: Session) -> None:
        self._peers[session.number] = session

    def close(self, session: Session) -> None:
        """Keeps what rows need of the session, which can then be freed."""
        self._peers[session.number] = peer_of(session)
        self._closed.append(session.number)

    def who(self, connection: int) -> Peer:
        """Called by the writer's thread too."""
        found = self._peers.get(connection)
        if found is None:
            return NO_PEER
        return found if isinstance(found, Peer) else peer_of(found)

    def take_closed(self) -> list[int]:
        """The connections that closed since the last call. Forget them once all rows recorded so far have been written."""
        closed, self._closed = self._closed, []
        return closed

    def forget(self, connections: list[int]) -> None:
        """Removes connections that no unwritten row refers to."""
        for connection in connections:
            self._peers.pop(connection, None)
