"""Changes of the catalog (DBP), reported to a listener (``observe.monitor``) and to the parts that follow it."""

from typing import Protocol

from polydomo.broker.catalog.bridged_entries import BridgedEntries
from polydomo.broker.catalog.catalog import Catalog, CatalogEntry
from polydomo.broker.catalog.registered_nodes import RegisteredNodes
from polydomo.broker.catalog.service_workers import ServiceWorkers
from polydomo.model.records import LATE, LEFT, LOST


class CatalogListener(Protocol):
    def catalogued(self, entry: CatalogEntry) -> None:
        """A service of the catalog changed."""
        raise NotImplementedError


class CatalogChanges:
    def __init__(
        self,
        catalog: Catalog,
        listener: CatalogListener,
        workers: ServiceWorkers,
        bridged: BridgedEntries,
        nodes: RegisteredNodes | None = None,
    ) -> None:
        self.catalog = catalog
        self._listener = listener
        self._workers = workers
        self._bridged = bridged
        self._nodes = nodes

    def report(self) -> None:
        catalog = self.catalog
        if catalog.changed:
            changed, catalog.changed = catalog.changed, []
            for entry in changed:
                self._listener.catalogued(entry)
                self._bridged.changed(entry.name)
                if entry.state in (LEFT, LOST):
                    self._workers.ended(entry)
                if self._nodes is not None:
                    if entry.state in (LEFT, LOST):
                        self._nodes.left(entry.address)
                    else:
                        self._nodes.joined(entry.address)
                if entry.state == LATE and entry.datagram:
                    # "In the event of a missing beat, heartbeats will switch over to reliable TCP connections"
                    probe(entry)


def probe(entry: CatalogEntry) -> None:
    """Probes the service over the connection that registered it, if that is still open."""
    if entry.session is not None and not entry.session.disconnected:
        entry.session.probe(entry.name)
