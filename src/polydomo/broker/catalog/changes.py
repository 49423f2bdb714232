"""Changes of the catalog (DBP), reported to the monitor; and heartbeats over UDP."""

from typing import TYPE_CHECKING

from polydomo.broker.catalog.catalog import CatalogEntry
from polydomo.model.service import LATE

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


def udp_heartbeat(broker: "Broker", name: str, address: str) -> None:
    broker.catalog.udp_heartbeat(broker.now, name, address)
    report(broker)


def report(broker: "Broker") -> None:
    if broker.catalog.changed:
        changed, broker.catalog.changed = broker.catalog.changed, []
        for entry in changed:
            broker.monitor.catalogued(entry)
            if entry.state == LATE and entry.datagram:
                # "In the event of a missing beat, heartbeats will switch over to reliable TCP connections"
                probe(entry)


def probe(entry: CatalogEntry) -> None:
    """Probes the service over the connection that registered it, if that is still open."""
    if entry.session is not None and not entry.session.disconnected:
        entry.session.probe(entry.name)
