"""Workers of the catalog: a service that registered over DBP and takes requests is a worker like any other.

"S: READY, Repeat: B: REQUEST, S: REPLY". Its requests go over the connection that registered it, or over one that the broker opens to the
address it registered (``catalog.callees``). The catalog decides how long it is alive: when its entry leaves or is lost, so does the worker.
"""

from polydomo.broker.catalog.catalog import Catalog, CatalogEntry
from polydomo.broker.guard.access import Access, acting
from polydomo.broker.guard.rules import OFFER
from polydomo.broker.requests import dispatch
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.model.records import LOST, Departure, Session, Worker
from polydomo.model.registration import Refusal, WorkerTerms


class ServiceWorkers:
    def __init__(self, state: State, access: Access, catalog: Catalog) -> None:
        self._state = state
        self._access = access
        self._catalog = catalog
        self.by_name: dict[str, Worker] = {}  # the worker of each service that takes requests
        self._new: list[Worker] = []  # registered, and without credit until the service has its answer

    def refusal(self, session: Session, name: str) -> str:
        """Why a service that registers over ``session`` may not take requests under this name; "" if it may."""
        if not session.role.allows_workers:
            return f"the listener {session.role.name} does not accept workers"
        service = name.encode()
        why = registration.name_refusal(self._state, service)
        # Not ``denial``: with dbp.registered_only, this registration is what makes the node a registered one.
        return why or self._access.denial_as(acting(session, OFFER), session, OFFER, service)

    def follow(self, entry: CatalogEntry) -> str:
        """The entry was registered or updated. Returns why its worker cannot be registered; "" otherwise."""
        session = entry.session
        place = entry.requests
        over_connection = place is not None and not place.port and session is not None and not session.disconnected
        worker = self.by_name.get(entry.name)
        if worker is not None and worker.alive and place is not None:
            # A service that is called at its address keeps its worker until the connection there closes.
            if worker.session is session if over_connection else bool(place.port) and worker.ref == place:
                return ""
        self.end(entry.name, Departure.LEFT, "the service takes its requests elsewhere, or none")
        if over_connection and session is not None:
            return self.serve(session, entry)
        return ""

    def serve(self, session: Session, entry: CatalogEntry) -> str:
        """Delivers the requests of a service over ``session``. Returns why it cannot; "" if it does."""
        self.end(entry.name, Departure.LEFT, "the service takes its requests over another connection")
        worker = registration.register(
            self._state, session, [entry.name.encode()], entry.requests, WorkerTerms(auto_credit=1), None
        )
        if isinstance(worker, Refusal):
            return worker.text
        self.by_name[entry.name] = worker
        session.on_service_worker(worker)
        self._new.append(worker)
        return ""

    def begin(self) -> None:
        """The service has its answer: from now on it may get requests."""
        new, self._new = self._new, []
        for worker in new:
            if worker.alive:
                dispatch.add_credit(self._state, worker)

    def ended(self, entry: CatalogEntry) -> None:
        """The entry is not active any more."""
        departure = Departure.LOST if entry.state == LOST else Departure.LEFT
        self.end(entry.name, departure, f"the service left the catalog: {entry.cause}")

    def end(self, name: str, departure: Departure, why: str) -> None:
        worker = self.by_name.pop(name, None)
        if worker is not None:
            registration.lose(self._state, worker, departure, why)

    def check_invariants(self) -> None:
        """For tests: only active services have a worker."""
        for name, worker in self.by_name.items():
            entry = self._catalog.active(name)
            assert not worker.alive or (entry is not None and entry.requests is not None), name
