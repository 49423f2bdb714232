"""Heartbeats over UDP. Pure: the server owns the sockets.

"A datagram is a hint": it can keep a registered service alive, only from its registered address, and it cannot remove anything.
Malformed and forged datagrams are counted and ignored.
"""

from typing import Final

from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.catalog.changes import CatalogChanges, probe
from polydomo.broker.state import State
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.limits import UDP_PROBE
from polydomo.model.records import LEFT, LOST
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp

BEAT: Final = "beat"
GOODBYE: Final = "goodbye"
MALFORMED: Final = "malformed"
FORGED: Final = "forged"
SENT: Final = "sent"


class UdpHeartbeats:
    """``receive`` handles incoming datagrams. At ``due``, the owner of the sockets broadcasts what ``beats`` returns."""

    def __init__(self, state: State, catalog: Catalog, changes: CatalogChanges) -> None:
        self._state = state
        self._catalog = catalog
        self._changes = changes
        self.last_broadcast = float("-inf")
        for kind in (BEAT, GOODBYE, MALFORMED, FORGED, SENT):
            state.counters.datagrams.setdefault(kind, 0)

    def receive(self, data: bytes, host: str) -> str:
        """Handles a datagram from the IP address ``host``. Returns its type, which is also counted."""
        kind = self._judge(udp.read(data), host)
        self._state.counters.datagrams[kind] += 1
        return kind

    def _judge(self, datagram: "udp.Datagram | None", host: str) -> str:
        if datagram is None:
            return MALFORMED
        entry = self._catalog.entries.get(datagram.name)
        if entry is None or entry.address != host or entry.state in (LOST, LEFT):
            return FORGED
        if datagram.command == dbp.DISCONNECT:
            # "confirmed over TCP": the service is probed there, and only its answer or silence there can remove it
            if self._state.now >= entry.probed + max(entry.beat, UDP_PROBE):
                entry.probed = self._state.now  # departures can be forged, so the probes they trigger are limited
                probe(entry)
            return GOODBYE
        self._catalog.udp_heartbeat(self._state.now, datagram.name, host, datagram.time)
        self._changes.report()
        return BEAT

    def due(self) -> float | None:
        """When the next broadcast is due; None if no active service uses UDP."""
        interval = self._catalog.broadcast_interval()
        return max(self._state.now, self.last_broadcast + interval) if interval else None

    def beats(self, ports: "list[int]") -> "list[tuple[int, bytes]]":
        """The datagrams to broadcast now, if due, each with the listener port to send it from: one for each port that services may use,
        and for each time format that the services use."""
        state = self._state
        when = self.due()
        if when is None or state.now + TIME_TOLERANCE < when:
            return []
        self.last_broadcast = state.now
        times = self._catalog.broadcast_times()
        state.counters.datagrams[SENT] += len(ports) * len(times)
        now = state.now + state.wall
        return [(port, udp.write(dbp.HEARTBEAT, str(port), now, time)) for port in ports for time in times]
