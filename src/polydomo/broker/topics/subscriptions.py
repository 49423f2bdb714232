"""Subscriptions by topic prefix. The subscribers of a topic are found with a trie, without iterating over all subscriptions."""

from bisect import bisect_left, insort
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from polydomo.broker.reserved_names import ENDED, TAP
from polydomo.broker.topics.trie import Trie
from polydomo.limits import DROPS_PER_TURN
from polydomo.model.records import Session

CHECKED_PREFIXES: Final = 32  # of one session that ``check_invariants`` looks up, about; the others are counted


class Subscriptions:
    def __init__(self, hears: "Callable[[Session, bytes], bool] | None" = None) -> None:
        self._hears = hears  # whether a session with a principal may receive a topic
        self._checked = 0  # sessions with a principal
        self._by_prefix: Trie[dict[Session, int]] = Trie()  # prefix -> session -> number of subscriptions
        self._of: dict[Session, list[bytes]] = {}  # each session's prefixes, sorted
        self._count = 0
        self.leaving: dict[Session, list[bytes]] = {}  # closed sessions, and their prefixes still to be removed

    def add(self, session: Session, prefix: bytes) -> bool:
        """Subscribes. Returns False if the session already had this prefix; then it is only counted."""
        sessions = self._by_prefix.get(prefix)
        if sessions is None:
            sessions = {}
            self._by_prefix.set(prefix, sessions)
        count = sessions.get(session, 0)
        sessions[session] = count + 1
        if count:
            return False
        if session.principal and session not in self._of:
            self._checked += 1
        insort(self._of.setdefault(session, []), prefix)
        self._count += 1
        return True

    def remove(self, session: Session, prefix: bytes) -> bool:
        """Unsubscribes. Returns False if the session does not have this prefix."""
        sessions = self._by_prefix.get(prefix)
        if sessions is None or session not in sessions:
            return False
        sessions[session] -= 1
        if not sessions[session]:
            self._forget(session, prefix)
            mine = self._of[session]
            del mine[bisect_left(mine, prefix)]
            if not mine:
                del self._of[session]
                if session.principal:
                    self._checked -= 1
        return True

    def drop(self, session: Session) -> None:
        """Removes a closed session. If it had many prefixes, they are removed over several turns of the loop."""
        prefixes = self._of.pop(session, None)
        if prefixes is not None:
            if session.principal:
                self._checked -= 1
            self.leaving[session] = prefixes
            if len(self.leaving) == 1:
                self.drop_some()

    def drop_some(self) -> None:
        """Removes one turn's worth of prefixes of closed sessions."""
        left = DROPS_PER_TURN
        for session in list(self.leaving):
            prefixes = self.leaving[session]
            now = prefixes[-left:]
            del prefixes[-left:]
            for prefix in now:
                self._forget(session, prefix)
            if not prefixes:
                del self.leaving[session]
            left -= len(now)
            if left <= 0:
                return

    def _forget(self, session: Session, prefix: bytes) -> None:
        sessions = self._by_prefix.get(prefix)
        assert sessions is not None
        del sessions[session]
        self._count -= 1
        if not sessions:
            self._by_prefix.remove(prefix)

    def has(self, session: Session, prefix: bytes) -> bool:
        sessions = self._by_prefix.get(prefix)
        return sessions is not None and session in sessions

    def match(self, topic: bytes) -> list[Session]:
        """The sessions that receive a message of this topic, without duplicates."""
        least = len(TAP) if topic.startswith(TAP) else len(ENDED) if topic == ENDED else 0
        found = self._by_prefix.along(topic, least)
        if not found:
            return []
        if len(found) == 1:
            matched = list(found[0])
        else:
            merged: dict[Session, int] = {}
            for sessions in found:
                merged.update(sessions)
            matched = list(merged)
        if self.leaving:
            matched = [session for session in matched if not session.disconnected]
        if self._checked and self._hears is not None:
            hears = self._hears
            return [session for session in matched if not session.principal or hears(session, topic)]
        return matched

    def prefixes(self, session: Session) -> list[bytes]:
        """The prefixes of the session."""
        return list(self._of.get(session, ()))

    def under(self, prefix: bytes) -> list[Session]:
        """The sessions with a subscription that begins with ``prefix``, without duplicates."""
        merged: dict[Session, int] = {}
        for sessions in self._by_prefix.under(prefix):
            merged.update(sessions)
        return list(merged)

    def covered(self, session: Session, prefix: bytes) -> bool:
        """Whether the session also has a shorter prefix that covers ``prefix``."""
        return any(session in sessions for sessions in self._by_prefix.along(prefix[:-1])) if prefix else False

    def narrower(self, session: Session, prefix: bytes) -> list[bytes]:
        """The session's longer prefixes under ``prefix``, sorted, without those covered by another."""
        mine = self._of.get(session, [])
        found: list[bytes] = []
        for i in range(bisect_left(mine, prefix), len(mine)):
            other = mine[i]
            if not other.startswith(prefix):
                break
            if other != prefix and not (found and other.startswith(found[-1])):
                found.append(other)
        return found

    def check_invariants(self) -> None:
        """For tests: checks that redundant state is consistent."""
        self._by_prefix.check_invariants()
        listed: dict[Session, int] = {}
        for session, prefixes in [*self._of.items(), *self.leaving.items()]:
            listed[session] = len(prefixes)
        for session, prefixes in self._of.items():
            assert not session.disconnected
            assert prefixes and all(one < other for one, other in pairwise(prefixes))
            step = 1 + len(prefixes) // CHECKED_PREFIXES
            assert all(self.has(session, prefix) for prefix in prefixes[::step])
        found: dict[Session, int] = {}
        for sessions in self._by_prefix.under(b""):
            assert sessions
            for session, count in sessions.items():
                assert count > 0
                found[session] = found.get(session, 0) + 1
        assert found == listed and sum(found.values()) == self._count

    def __len__(self) -> int:
        return self._count
