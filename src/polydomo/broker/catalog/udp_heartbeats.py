"""Heartbeats over UDP. Pure: the server owns the sockets.

"A datagram is a hint": it can keep a registered service alive, only from its registered address, and it cannot remove anything.
Malformed and forged datagrams are counted and ignored.
"""

from typing import TYPE_CHECKING, Final

from polydomo.broker.catalog import changes
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.limits import UDP_PROBE
from polydomo.model.service import LEFT, LOST
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

BEAT: Final = "beat"
GOODBYE: Final = "goodbye"
MALFORMED: Final = "malformed"
FORGED: Final = "forged"
SENT: Final = "sent"


class UdpHeartbeats:
    """``receive`` handles incoming datagrams. At ``due``, the owner of the sockets broadcasts what ``beats`` returns."""

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self.last_broadcast = float("-inf")
        for kind in (BEAT, GOODBYE, MALFORMED, FORGED, SENT):
            broker.monitor.datagrams.setdefault(kind, 0)

    def receive(self, data: bytes, host: str) -> str:
        """Handles a datagram from the IP address ``host``. Returns its type, which is also counted."""
        kind = self._judge(udp.read(data), host)
        self.broker.monitor.datagrams[kind] += 1
        return kind

    def _judge(self, datagram: "udp.Datagram | None", host: str) -> str:
        if datagram is None:
            return MALFORMED
        entry = self.broker.catalog.entries.get(datagram.name)
        if entry is None or entry.address != host or entry.state in (LOST, LEFT):
            return FORGED
        if datagram.command == dbp.DISCONNECT:
            # "confirmed over TCP": the service is probed there, and only its answer or silence there can remove it
            if self.broker.now >= entry.probed + max(entry.beat, UDP_PROBE):
                entry.probed = self.broker.now  # departures can be forged, so the probes they trigger are limited
                changes.probe(entry)
            return GOODBYE
        changes.udp_heartbeat(self.broker, datagram.name, host)
        return BEAT

    def due(self) -> float | None:
        """When the next broadcast is due; None if no active service uses UDP."""
        interval = self.broker.catalog.broadcast_interval()
        return max(self.broker.now, self.last_broadcast + interval) if interval else None

    def beats(self, ports: "list[int]") -> "list[bytes]":
        """The datagrams to broadcast now, if due: one for each listener port that services may use."""
        broker = self.broker
        when = self.due()
        if when is None or broker.now + TIME_TOLERANCE < when:
            return []
        self.last_broadcast = broker.now
        broker.monitor.datagrams[SENT] += len(ports)
        return [udp.write(dbp.HEARTBEAT, str(port), broker.now + broker.wall) for port in ports]
