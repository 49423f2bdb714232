"""``dbp.registered_only``: only nodes with an active registration in the catalog may publish and offer services.

"New nodes that want to publish or provide services will be required to register with the CCS". A node is an IP address, as for all
changes of the catalog. Other brokers, the other processes of this broker and the broker's own sessions are not nodes.

Process 0 has the catalog. It sends the others the addresses of the nodes (``NODES``, ``NODE``), so that the rule holds in all processes.
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
        self._elsewhere: dict[str, None] = {}  # addresses that are registered at process 0, if this is another one

    def denial(self, session: Session, right: str) -> str:
        if right not in (OFFER, PUBLISH) or _is_no_node(session):
            return ""
        address = host_of(session.link.peer)
        if self._is_registered(address):
            return ""
        what = "offer services" if right == OFFER else "publish"
        return f"{address} may not {what}: no service in the catalog is registered from it (the setting dbp.registered_only)"

    def _is_registered(self, address: str) -> bool:
        return address in self._catalog.at or address in self._elsewhere

    def joined(self, address: str) -> None:
        """An entry was registered from this address."""
        if self._catalog.at.get(address) == 1:
            self._tell_siblings(address, b"1")

    def _tell_siblings(self, address: str, registered: bytes) -> None:
        for worker in self._state.process.bridges:
            worker.session.send_to_sibling(b"NODE", [address.encode(), registered])

    def greet(self, sibling: Session) -> None:
        """Another process has joined."""
        if self._state.process.index == 0:
            sibling.send_to_sibling(b"NODES", [address.encode() for address in self._catalog.at])

    def all_elsewhere(self, addresses: "list[bytes]") -> None:
        """Process 0 has started, or this one has: these are all nodes."""
        before, self._elsewhere = self._elsewhere, {address.decode(): None for address in addresses}
        for address in before:
            self._dismiss(address)

    def elsewhere(self, address: str, registered: bool) -> None:
        """A node has registered at process 0, or its last registration has ended."""
        if registered:
            self._elsewhere[address] = None
        else:
            self._elsewhere.pop(address, None)
            self._dismiss(address)

    def left(self, address: str) -> None:
        """An entry that was registered from this address is not active any more. After the last one, the workers there are dismissed."""
        if address not in self._catalog.at:
            self._tell_siblings(address, b"0")
            self._dismiss(address)

    def _dismiss(self, address: str) -> None:
        if self._is_registered(address):
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
