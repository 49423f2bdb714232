"""Changes of the catalog (DBP): registrations, heartbeats and departures, reported to the monitor."""

from typing import TYPE_CHECKING

from polydomo import limits
from polydomo.broker.access import REGISTER
from polydomo.broker.catalog import Entry
from polydomo.protocols.model import LATE
from polydomo.protocols.session import Session

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


def register(
    broker: "Broker", session: Session, name: str, address: str, info: "dict[str, object]", interval: float
) -> str:
    session.link.charge(limits.WORK_OFFER)
    if not broker.access.may(session, REGISTER, name):
        return broker.refusal
    refusal = broker.directory.refusal(name, address)
    if not refusal:
        refusal = broker.catalog.register(broker.now, name, address, info, interval, session)
    report(broker)
    return refusal


def update(broker: "Broker", session: Session, name: str, address: str, changes: "dict[str, object]") -> str:
    if not broker.access.may(session, REGISTER, name):
        return broker.refusal
    session.link.charge(limits.WORK_OFFER)
    refusal = broker.catalog.update(broker.now, name, address, changes, session)
    report(broker)
    return refusal


def heartbeat(broker: "Broker", name: str, address: str) -> bool:
    known = broker.catalog.heartbeat(broker.now, name, address)
    report(broker)
    return known


def udp_heartbeat(broker: "Broker", name: str, address: str) -> None:
    broker.catalog.udp_heartbeat(broker.now, name, address)
    report(broker)


def remove(broker: "Broker", name: str, address: str, why: str) -> bool:
    known = broker.catalog.remove(broker.now, name, address, why)
    report(broker)
    return known


def report(broker: "Broker") -> None:
    if broker.catalog.changed:
        changed, broker.catalog.changed = broker.catalog.changed, []
        for entry in changed:
            broker.monitor.catalogued(entry)
            if entry.state == LATE and entry.datagram:
                # "In the event of a missing beat, heartbeats will switch over to reliable TCP connections"
                probe(entry)


def probe(entry: Entry) -> None:
    """Probes the service over the connection that registered it, if that is still open."""
    if entry.session is not None and not entry.session.disconnected:
        entry.session.probe(entry.name)
