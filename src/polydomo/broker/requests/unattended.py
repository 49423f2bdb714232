"""Requests without a client: their clients did not ask for a reply, and have disconnected. They are run all the same.

A request stays with its session, so its principal, its headers and its place in the queue are kept. The closed session is removed with the
last of its requests. Limits bound their number and their bytes, in total and for each source; a request above them is cancelled when its
client disconnects, like any other (``sessions.closed``).
"""

from polydomo.broker.policy import Policy
from polydomo.limits import UNATTENDED_BYTES, UNATTENDED_SOURCE
from polydomo.model.records import Request, Session


class Unattended:
    __slots__ = ("_by_source", "_bytes", "_sessions", "requests")

    def __init__(self, sessions: "dict[Session, None]") -> None:
        self._sessions = sessions  # all sessions of the broker
        self.requests: dict[Request, int] = {}  # and the size of each body when its client disconnected
        self._by_source: dict[str, int] = {}  # number of them
        self._bytes = 0

    def keep(self, request: Request, policy: Policy) -> bool:
        """Keeps a request whose client has disconnected. False if a limit is reached."""
        source = request.session.link.source
        size = len(request.body)
        kept = self._by_source.get(source, 0)
        if (
            len(self.requests) >= policy.max_unattended
            or kept >= max(1, policy.max_unattended // UNATTENDED_SOURCE)
            or self._bytes + size > policy.max_held_bytes // UNATTENDED_BYTES
        ):
            return False
        self.requests[request] = size
        self._bytes += size
        self._by_source[source] = kept + 1
        return True

    def ended(self, request: Request) -> None:
        """A request of a closed session has ended."""
        size = self.requests.pop(request, None)
        if size is None:
            return
        session = request.session
        self._bytes -= size
        source = session.link.source
        left = self._by_source.pop(source) - 1
        if left:
            self._by_source[source] = left
        if not session.requests:
            self._sessions.pop(session, None)

    def check_invariants(self) -> None:
        closed = [session for session in self._sessions if session.disconnected]
        found = [request for session in closed for request in session.requests]
        assert set(found) == set(self.requests), "requests without a client are not those of the closed sessions"
        assert all(session.requests for session in closed), "a closed session is kept without a request"
        assert self._bytes == sum(self.requests.values()) and sum(self._by_source.values()) == len(found)
