"""Who wants which topics. Matching looks a topic's prefixes up; it never walks over the subscriptions."""

from polydomo.protocols.verbs import Session


class Subscriptions:
    def __init__(self) -> None:
        self._by_prefix: dict[bytes, dict[Session, int]] = {}  # prefix -> session -> how often it asked
        self._lengths: dict[int, int] = {}  # length -> prefixes of that length
        self._of: dict[Session, dict[bytes, None]] = {}

    def add(self, session: Session, prefix: bytes) -> None:
        sessions = self._by_prefix.get(prefix)
        if sessions is None:
            sessions = self._by_prefix[prefix] = {}
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        sessions[session] = sessions.get(session, 0) + 1
        self._of.setdefault(session, {})[prefix] = None

    def remove(self, session: Session, prefix: bytes) -> bool:
        """False if the session has not asked for this prefix."""
        sessions = self._by_prefix.get(prefix)
        if sessions is None or session not in sessions:
            return False
        sessions[session] -= 1
        if not sessions[session]:
            self._forget(session, prefix)
        return True

    def drop(self, session: Session) -> None:
        """The session is gone."""
        for prefix in list(self._of.get(session, ())):
            self._forget(session, prefix)

    def _forget(self, session: Session, prefix: bytes) -> None:
        sessions = self._by_prefix[prefix]
        del sessions[session]
        if not sessions:
            del self._by_prefix[prefix]
            self._lengths[len(prefix)] -= 1
            if not self._lengths[len(prefix)]:
                del self._lengths[len(prefix)]
        mine = self._of[session]
        del mine[prefix]
        if not mine:
            del self._of[session]

    def match(self, topic: bytes) -> list[Session]:
        """Every session with a prefix of ``topic``, each once."""
        found: dict[Session, None] = {}
        for length in self._lengths:
            if length <= len(topic):
                sessions = self._by_prefix.get(topic[:length])
                if sessions is not None:
                    for session in sessions:
                        found[session] = None
        return list(found)

    def check_invariants(self) -> None:
        """For tests: everything said twice is said the same."""
        lengths: dict[int, int] = {}
        pairs: set[tuple[Session, bytes]] = set()
        for prefix, sessions in self._by_prefix.items():
            assert sessions, f"prefix {prefix!r} is kept for nobody"
            lengths[len(prefix)] = lengths.get(len(prefix), 0) + 1
            for session, count in sessions.items():
                assert count > 0 and not session.over
                pairs.add((session, prefix))
        assert lengths == self._lengths
        assert pairs == {(session, prefix) for session, prefixes in self._of.items() for prefix in prefixes}
        assert all(self._of.values())

    def __len__(self) -> int:
        return sum(len(sessions) for sessions in self._by_prefix.values())
