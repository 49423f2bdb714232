"""Requests without a client: their clients did not ask for a reply, and have disconnected. They are run all the same.

A request stays with its session, so its principal, its headers and its place in the queue are kept. The closed session is removed with the
last of its requests. Limits bound their number and their bytes, in total and for each source; a request above them is cancelled when its
client disconnects, like any other.
"""

from typing import TYPE_CHECKING

from polydomo.broker.requests import outcomes
from polydomo.limits import UNATTENDED_BYTES, UNATTENDED_SOURCE
from polydomo.model.request import PARKED, Request
from polydomo.model.session import Session

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


class Unattended:
    __slots__ = ("_broker", "_by_source", "_bytes", "requests")

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.requests: dict[Request, int] = {}  # and the size of each body when its client disconnected
        self._by_source: dict[str, int] = {}  # number of them
        self._bytes = 0

    def client_closed(self, session: Session) -> None:
        """Cancels the requests of a closed session that need a reply, and keeps the others."""
        for request in list(session.requests):
            # A request that is parked for the job store is a job there, which continues without its client.
            stored = request.state == PARKED and not self._broker.control.holds(request)
            if stored or session.awaits_reply(request):
                outcomes.cancel(self._broker, request, "the client disconnected")
            elif not self._has_room(session, len(request.body)):
                outcomes.cancel(self._broker, request, "the client disconnected, and too many requests have no client")
            else:
                size = len(request.body)
                self.requests[request] = size
                self._bytes += size
                self._by_source[session.link.source] = self._by_source.get(session.link.source, 0) + 1

    def _has_room(self, session: Session, size: int) -> bool:
        policy = self._broker.policy
        return (
            len(self.requests) < policy.max_unattended
            and self._by_source.get(session.link.source, 0) < max(1, policy.max_unattended // UNATTENDED_SOURCE)
            and self._bytes + size <= policy.max_held_bytes // UNATTENDED_BYTES
        )

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
            self._broker.sessions.pop(session, None)

    def check_invariants(self) -> None:
        closed = [session for session in self._broker.sessions if session.disconnected]
        found = [request for session in closed for request in session.requests]
        assert set(found) == set(self.requests), "requests without a client are not those of the closed sessions"
        assert all(session.requests for session in closed), "a closed session is kept without a request"
        assert self._bytes == sum(self.requests.values()) and sum(self._by_source.values()) == len(found)
