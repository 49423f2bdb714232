"""Turns: distributes the work of one turn of the event loop among connections.

Work is counted in units of about a microsecond. Each connection has a share, and each operation for it is charged to the share
(``Link.charge``). A connection that uses up its share in one turn is not read and waits here until the next turn; if it took several
turns and no connection waits, half of the share is renewed at once (``Link.use_up``), so it gets at most one and a half shares in a turn.
The whole turn also has a limit; input that arrives after it is reached waits for the next turn, except for small reads (``SMALL_READ``).

Scheduling is round robin over sources (the peer's address or principal), and over the connections of each source. If many wait, each gets a
smaller share, so that one round stays short.

Work for one request that would take too long for one turn is done in steps (``Steps``). A link that has such work does one step at a time,
each charged to its peer by the time it took, and goes on in a later turn when the peer's share is used up. Meanwhile it reads no further
input of the peer.
"""

from typing import TYPE_CHECKING

from polydomo.limits import LEAST_SHARE, TURN_SHARE, TURN_WORK
from polydomo.native import mypyc_attr

if TYPE_CHECKING:
    from polydomo.wire.link import Link


class Turns:
    def __init__(self, work: int = TURN_WORK, share: int = TURN_SHARE, least: int = LEAST_SHARE) -> None:
        self.work = work  # of one turn, for all connections together
        self.share = share  # of it, for one connection ...
        self.least = least  # ... and where many wait
        self.waiting = 0  # connections
        self.number = 0  # of the turn
        self.chosen: list[Link] = []  # those that continued in this turn
        self._by_source: dict[str, dict[Link, None]] = {}  # the source and the connection that waited longest are first

    def wait(self, link: "Link") -> None:
        """Queues a connection for a later turn."""
        links = self._by_source.get(link.source)
        if links is None:
            links = self._by_source[link.source] = {}
        if link not in links:
            links[link] = None
            self.waiting += 1

    def forget(self, link: "Link") -> None:
        links = self._by_source.get(link.source)
        if links is not None and link in links:
            del links[link]
            self.waiting -= 1
            if not links:
                del self._by_source[link.source]

    def next_turn(self) -> "list[Link]":
        """Begins a turn. Returns the connections that continue, each with a new share."""
        self.chosen = []
        if not self.waiting:
            return []
        work = self.work // 2  # the other half is for what arrives meanwhile
        share = max(self.least, min(self.share, work // self.waiting))
        chosen: list[Link] = []
        by_source = self._by_source
        for _ in range(min(self.waiting, max(1, work // share))):
            source = next(iter(by_source))
            links = by_source.pop(source)
            link = next(iter(links))
            del links[link]
            if links:
                by_source[source] = links  # its next connection comes after those of all other sources
            link.work_left = share
            link.renewed = self.number
            chosen.append(link)
        self.waiting -= len(chosen)
        self.chosen = chosen
        return chosen

    def __contains__(self, link: object) -> bool:
        return any(link in links for links in self._by_source.values())

    def check_invariants(self) -> None:
        """For tests: checks that redundant counters are consistent."""
        assert self.waiting == sum(len(links) for links in self._by_source.values())
        assert all(links for links in self._by_source.values())
        for source, links in self._by_source.items():
            assert all(link.source == source and not link.closed for link in links)


@mypyc_attr(allow_interpreted_subclasses=True)
class Steps:
    """Work for one request, done in steps over several turns."""

    def step(self) -> bool:
        """Does a part of the work, of about a millisecond at most. Returns True when all is done. May raise HttpError, which is then the
        answer to the request."""
        raise NotImplementedError

    def held(self) -> int:
        """Bytes that the unfinished work holds in memory."""
        return 0
