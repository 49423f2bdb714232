"""``dbp.registered_only``: only nodes with an active registration in the catalog may publish and offer services.

"New nodes that want to publish or provide services will be required to register with the CCS". A node is an IP address, as for all
changes of the catalog. Other brokers, the other processes of this broker and the broker's own sessions are not nodes.
"""

from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.guard.rules import OFFER, PUBLISH
from polydomo.broker.interfaces import Nodes
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.model.principals import is_own
from polydomo.model.records import Departure, Session
from polydomo.protocols.dbp.session import host_of


class RegisteredNodes(Nodes):
    def __init__(self, state: State, catalog: Catalog) -> None:
        self._state = state
        self._catalog = catalog

    def denial(self, session: Session, right: str) -> str:
        if right not in (OFFER, PUBLISH) or _is_no_node(session):
            return ""
        address = host_of(session.link.peer)
        if address in self._catalog.at:
            return ""
        what = "offer services" if right == OFFER else "publish"
        return f"{address} may not {what}: no service in the catalog is registered from it (the setting dbp.registered_only)"

    def left(self, address: str) -> None:
        """An entry that was registered from this address is not active any more. After the last one, the workers there are dismissed."""
        if address in self._catalog.at:
            return
        why = f"no service in the catalog is registered from {address} any more (the setting dbp.registered_only)"
        for worker in list(self._state.workers):
            session = worker.session
            if not _is_no_node(session) and host_of(session.link.peer) == address:
                session.dismiss(worker)
                registration.lose(self._state, worker, Departure.LEFT, why)


def _is_no_node(session: Session) -> bool:
    return (
        session.is_bridge
        or session.is_sibling
        or session.is_internal
        or session.runs_shared
        or is_own(session.principal)
    )
