"""Listings: answers of built-in services with very many rows, such as ``polydomo.services`` with 10,000 services.

Building such an answer at once would take too long for one turn of the loop. So each turn adds some rows, and all clients that ask for
the same listing in the meantime get the same answer. The broker does not read from a connection that waits for a listing.
"""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from polydomo.broker.observe import builtin_services
from polydomo.limits import LISTING_ROWS
from polydomo.model.request import Request
from polydomo.wire.frames import frame
from polydomo.wire.link import PAUSE_LISTING

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

Row = dict[str, object]
Taker = Callable[[bytes], None]


class Listing:
    """One answer that is being built."""

    def __init__(self, rows: "Iterator[Row]") -> None:
        self.rows = rows  # rows still to add
        self.done: list[str] = []
        self.requests: list[Request] = []
        self.takers: list[Taker] = []  # for other processes of the broker


class Listings:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.open: dict[bytes, Listing] = {}

    def ask(self, request: Request) -> bool:
        """Handles a request for a reserved name. Returns True if the answer is a long list, which is sent some turns later."""
        listing = self._listing(request.service.name)
        if listing is None:
            return False
        listing.requests.append(request)
        request.session.link.pause(PAUSE_LISTING)
        return True

    def collect(self, name: bytes, take: Taker) -> bool:
        """The same for another process of the broker: ``take`` is given the content of the answer."""
        listing = self._listing(name)
        if listing is None:
            return False
        listing.takers.append(take)
        return True

    def _listing(self, name: bytes) -> Listing | None:
        """The open listing of this name, or a new one. None if the name is not that of a long list."""
        listing = self.open.get(name)
        if listing is None:
            rows = self._rows(name)
            if rows is not None:
                listing = self.open[name] = Listing(rows)
        return listing

    def _rows(self, name: bytes) -> "Iterator[Row] | None":
        """The rows of a long list; None if it is short or not a list."""
        broker = self._broker
        if name == b"polydomo.services" and len(broker.services) > LISTING_ROWS:
            return (builtin_services.service_row(broker, service) for service in list(broker.services.values()))
        if name == b"polydomo.workers" and len(broker.workers) > LISTING_ROWS:
            return (builtin_services.worker_row(broker, worker) for worker in builtin_services.workers(broker))
        if name == b"polydomo.clients" and len(broker.sessions) > LISTING_ROWS:
            peers = builtin_services.clients(broker)
            return (builtin_services.client_row(broker, session) for session in peers)
        return None

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
