"""Listings: answers of built-in services with very many rows, such as ``polydomo.services`` with 10,000 services.

Building such an answer at once would take too long for one turn of the loop. So each turn adds some rows, and all clients that ask for
the same listing in the meantime get the same answer. The broker does not read from a connection that waits for a listing.
"""

import json
from collections.abc import Callable, Iterator
from itertools import islice

from polydomo.broker.builtin.service import BuiltinService, Row
from polydomo.limits import LISTING_ROWS
from polydomo.model.records import Request
from polydomo.wire.frames import frame
from polydomo.wire.link import PAUSE_LISTING

Taker = Callable[[bytes], None]


class Listing:
    """One answer that is being built."""

    def __init__(self, rows: "Iterator[Row]") -> None:
        self.rows = rows  # rows still to add
        self.done: list[str] = []
        self.requests: list[Request] = []
        self.takers: list[Taker] = []  # for other processes of the broker


class Listings:
    def __init__(self) -> None:
        self.open: dict[bytes, Listing] = {}

    def ask(self, request: Request, service: BuiltinService | None) -> bool:
        """Handles a request to a built-in service. Returns True if the answer is a long list, which is sent some turns later."""
        listing = self._listing(service)
        if listing is None:
            return False
        listing.requests.append(request)
        request.session.link.pause(PAUSE_LISTING)
        return True

    def collect(self, service: BuiltinService | None, take: Taker) -> bool:
        """The same for another process of the broker: ``take`` is given the content of the answer."""
        listing = self._listing(service)
        if listing is None:
            return False
        listing.takers.append(take)
        return True

    def _listing(self, service: BuiltinService | None) -> Listing | None:
        """The open listing of this service, or a new one. None if its answer is not a long list."""
        if service is None or service.rows is None:
            return None
        listing = self.open.get(service.name)
        if listing is None:
            found = service.rows()
            if found.length > LISTING_ROWS:
                listing = self.open[service.name] = Listing(found.rows)
        return listing

    def end_turn(self) -> None:
        """Adds some rows to each listing, and sends those that are complete."""
        room = LISTING_ROWS
        for name, listing in list(self.open.items()):
            rows = [json.dumps(row) for row in islice(listing.rows, room)]
            listing.done += rows
            if len(rows) < room:
                del self.open[name]
                self._send(listing)
            room -= len(rows)
            if room <= 0:
                return

    def _send(self, listing: Listing) -> None:
        content = f"[{', '.join(listing.done)}]".encode()
        for take in listing.takers:
            take(content)
        answer = frame(content, False)  # one object shared by all clients
        for request in listing.requests:
            session = request.session
            if not session.disconnected:
                session.send_final(request, answer)
                session.link.resume(PAUSE_LISTING)

    def __len__(self) -> int:
        return len(self.open)
