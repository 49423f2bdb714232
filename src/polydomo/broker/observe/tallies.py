"""Counters since startup, and the tallies of finished requests by service and client protocol."""

from polydomo.broker.observe.histogram import Tally
from polydomo.limits import MONITOR_TALLIES
from polydomo.model.records import Service
from polydomo.model.shared_run import KEYED, MEMOISED

CROSSED = "process"  # the protocol of requests that came from another process of the broker
DURABLE = "durable"  # attempts of the jobs that clients' durable requests became

# Protocols of requests that stand for requests of clients, which are counted themselves: here, or by the process whose client asked.
STANDING_IN = (CROSSED, KEYED, MEMOISED, DURABLE)

Key = tuple[bytes, str]  # service, client protocol

OTHERS = b""  # the name under which services without a tally of their own are counted


class Counters:
    def __init__(self) -> None:
        # counted by the broker
        self.violations = 0
        self.refused = 0
        self.denied: dict[str, int] = {}  # right, or "handshake" -> number of denials
        self.stale = 0
        self.workers_lost = 0
        # counted by the owner of the sockets
        self.connections_accepted = 0
        self.connections_refused = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.datagrams: dict[str, int] = {}  # type of datagram -> count


class Tallies:
    """The tallies of every service that answered a request, even if it is gone."""

    __slots__ = ("max_tallies", "table")

    def __init__(self) -> None:
        self.table: dict[Key, Tally] = {}
        self.max_tallies = MONITOR_TALLIES

    def tally(self, service: Service, protocol: str) -> Tally:
        """The tally of this service and protocol."""
        key = (service.name, protocol)
        found = self.table.get(key)
        if found is None:
            if len(self.table) >= self.max_tallies:
                key = (OTHERS, protocol)
            found = self.table.setdefault(key, Tally())
        service.new_durations[protocol] = found.fresh
        return found

    def service_forgotten(self, service: Service) -> None:
        """Called when a service name is removed. If no request was ever answered under it, its tally is merged into the shared one, because
        clients can invent any number of names."""
        for protocol in list(service.new_durations):
            key = (service.name, protocol)
            tally = self.table.get(key)
            if tally is not None and service.name != OTHERS:
                tally.fold()
                if not tally.answered:
                    del self.table[key]
                    self.table.setdefault((OTHERS, protocol), Tally()).absorb(tally)
                    del service.new_durations[protocol]  # requests that run elsewhere may still end
