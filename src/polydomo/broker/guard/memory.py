"""Memory: accounting of everything the broker holds for its peers, and the reaction when memory is short.

Every buffer is counted in ``MemoryAccount`` by category: its owner keeps a running total, and the account reads it. Near the limit, the
broker stops reading from the largest consumers. Above it, or if that does not help in time, it closes their connections: first of the
source that holds most, and among these the connection that holds most. Peers that hold little are not affected, unless a source has many
of them.
"""

from collections.abc import Callable

from polydomo.broker.interfaces import SessionListener
from polydomo.broker.state import State
from polydomo.limits import (
    COST_CONNECTION,
    COST_REGISTRATION,
    COST_REQUEST,
    COST_SERVICE,
    HELD_INPUT,
    LARGEST_PEERS,
    MEMORY_CUT,
    MEMORY_CUT_TO,
    MEMORY_EASY,
    MEMORY_INTERVAL,
    MEMORY_PATIENCE,
    MEMORY_SHARE,
    MEMORY_STEP,
    MEMORY_TIGHT,
    MEMORY_WORK,
    MIB,
    SCAN_SESSIONS,
    SMALL_PEER,
)
from polydomo.model.records import Session
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.link import PAUSE_MEMORY, Hub, Link

INPUT, OUTPUT, REQUESTS, ANSWERS, CONNECTIONS = "input", "output", "requests", "answers", "connections"
LIMITS = "limits"
SUBSCRIPTIONS, REGISTRATIONS, CATALOG, VALUES, LOGS, SCHEMAS, JOURNAL, HISTORY, ERRORS, AFFINITY = (
    "subscriptions",
    "registrations",
    "catalog",
    "values",
    "logs",
    "schemas",
    "journal",
    "history",
    "errors",
    "affinity",
)


class MemoryAccount(SessionListener):
    def __init__(self, state: State, limit: int) -> None:
        self._state = state
        self.limit = limit  # bytes; 0: none
        self.hub: Hub | None = None  # hub of the event loop that serves the broker; set by ``attach``
        self.total = 0  # bytes at the last measurement
        self.cut = 0  # number of connections closed for memory
        self.throttled: dict[Link, None] = {}
        self._books: dict[str, Callable[[], int]] = {}
        self.look_at = float("-inf")  # time of the next measurement, at the latest; ``hub.work_alarm`` may be sooner
        self._tight_since = 0.0  # since when memory is tight; 0: it is not
        self._scanned = float("-inf")  # time of the last full scan of the sessions
        self._requests = 0  # open requests at that time
        self._answers = 0  # bytes of cached answers at that time
        self.book(INPUT, lambda: 0 if self.hub is None else self.hub.input_bytes)
        self.book(OUTPUT, lambda: 0 if self.hub is None else self.hub.unsent_bytes)
        self.book(REQUESTS, lambda: state.held_bytes + COST_REQUEST * self._requests)
        self.book(ANSWERS, lambda: self._answers)
        self.book(CONNECTIONS, lambda: COST_CONNECTION * len(state.sessions))
        self.book(
            REGISTRATIONS,
            lambda: COST_REGISTRATION * state.registrations + COST_SERVICE * (len(state.services) + len(state.workers)),
        )
        self.book(AFFINITY, lambda: state.affinity.memory())
        self.book(JOURNAL, lambda: state.recorder.memory())

    def attach(self, hub: Hub) -> None:
        """The broker is served by the loop of this hub. Unfinished input is measured within a turn, too: many connections together can
        send more than the limit before the turn ends."""
        self.hub = hub
        if self.limit:
            hub.on_input_alarm = self._look
            hub.on_work_alarm = self.look_soon
            hub.input_alarm = self._step()

    def _step(self) -> int:
        """Bytes of unfinished input that may arrive within a turn before memory is measured again."""
        return max(MEMORY_STEP, int(self.limit * MEMORY_SHARE))

    def book(self, kind: str, read: "Callable[[], int]") -> None:
        """Adds a category; ``read`` returns its current bytes."""
        self._books[kind] = read

    def by_kind(self) -> "dict[str, int]":
        """Bytes currently held, by category."""
        return {kind: read() for kind, read in self._books.items()}

    def measure(self) -> int:
        self._scan()
        total = 0
        for read in self._books.values():
            total += read()
        self.total = total
        return total

    def _scan(self) -> None:
        """Counts without a running total: computed every time if there are few sessions, otherwise once a second."""
        state = self._state
        if len(state.sessions) > SCAN_SESSIONS and state.now < self._scanned + 1.0:
            return
        self._scanned = state.now
        requests = answers = 0
        for session in state.sessions:
            requests += len(session.requests)
            answers += session.kept_bytes
        self._requests = requests
        self._answers = answers

    def peers(self, least: int = SMALL_PEER) -> "list[tuple[Link, int]]":
        """Every connection that holds more than ``least`` bytes, and how many."""
        links: dict[Link, None] = {}
        for session in self._state.sessions:
            links[session.link] = None
        if self.hub is not None:
            links.update(self.hub.holding)  # includes those whose protocol is not known yet
        found: list[tuple[Link, int]] = []
        for link in links:
            size = link.held()
            if size > least and not link.closed:
                found.append((link, size))
        return found

    def largest(self) -> "list[dict[str, object]]":
        """The peers that hold most, the largest first, of those that hold more than SMALL_PEER."""
        peers = sorted(self.peers(), key=lambda peer: peer[1], reverse=True)[:LARGEST_PEERS]
        return [
            {"peer": link.peer, "principal": link.principal or None, "held_bytes": size, "paused": bool(link.pauses)}
            for link, size in peers
        ]

    # --- when memory is short

    def end_turn(self) -> None:
        """Called when ``look_at`` has passed: measures, throttles, and closes connections as needed."""
        if self.limit and self.hub is not None:
            self._look(None)

    def look_soon(self) -> None:
        """Much work was done: measures at the end of this turn."""
        self.look_at = float("-inf")

    def _look(self, receiving: Link | None) -> None:
        """``receiving``: the link that is receiving now, within a turn; its buffers are in use."""
        hub = self.hub
        assert hub is not None
        now = self._state.now
        self.look_at = now + MEMORY_INTERVAL
        hub.work_alarm = hub.work_done + MEMORY_WORK
        total = self.measure()
        if total > self.limit * MEMORY_TIGHT:
            self._save(total, now, receiving)
        elif self._tight_since and total <= self.limit * MEMORY_EASY:
            self._tight_since = 0.0
            throttled, self.throttled = self.throttled, {}
            for link in throttled:
                link.resume(PAUSE_MEMORY)
        hub.input_alarm = hub.input_bytes + max(self._step(), int(self.limit * MEMORY_TIGHT) - total)

    def _save(self, total: int, now: float, receiving: Link | None) -> None:
        if not self._tight_since:
            self._tight_since = now
        self.throttled = {link: None for link in self.throttled if not link.closed}
        peers = self.peers()
        share = max(SMALL_PEER, int(self.limit * MEMORY_SHARE))
        for link, size in peers:
            if size > share and link not in self.throttled:
                self.throttled[link] = None
                link.pause(PAUSE_MEMORY)
        if total > self.limit * MEMORY_CUT:
            excess = self._cut(peers, total - int(self.limit * MEMORY_CUT_TO), receiving)
            if excess > 0 and total > self.limit:
                self._cut(self.peers(HELD_INPUT), excess, receiving)
        elif now > self._tight_since + MEMORY_PATIENCE:
            self._tight_since = now
            self._cut(peers, 1, receiving)

    def _cut(self, peers: "list[tuple[Link, int]]", excess: int, receiving: Link | None) -> int:
        """Disconnects the largest consumers until enough bytes will be free, and frees their unfinished input at once. Returns how
        many bytes more should be free."""
        sources: dict[str, int] = {}
        candidates: list[tuple[Link, int]] = []
        for link, size in peers:
            if link.state:
                excess -= size  # it is being closed already
            else:
                sources[link.source] = sources.get(link.source, 0) + size
                candidates.append((link, size))
        candidates.sort(key=lambda peer: (sources[peer[0].source], peer[1]), reverse=True)
        for link, size in candidates:
            if excess <= 0 or sources[link.source] <= SMALL_PEER:
                break
            excess -= size
            self.cut += 1
            held = f"this connection holds {size / MIB:.1f} of {self.limit / MIB:.0f} MiB (limits.max_memory)"
            link.close(CloseCause.MEMORY, held, abort=True)
            if link is not receiving:
                link.drop_input()
                link.book_input(0)
        return excess

    def closed(self, session: Session, reason: CloseReason) -> None:
        self.throttled.pop(session.link, None)
