"""Shutdown: the broker stops accepting requests, lets open ones finish, and disconnects its workers and services."""

from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.cluster.bridging import Bridging
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.requests import outcomes, queues
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.broker.workers.control import Control
from polydomo.model.outcomes import SHUTDOWN
from polydomo.model.records import PARKED, QUEUED, Departure


def drain(state: State, bridging: Bridging, control: Control, durable: Durable | None) -> None:
    """Stops accepting requests. Requests without a worker end now; the others may finish."""
    _stop_accepting(state, bridging)
    for service in list(state.services.values()):
        registration.end_unserved(state, service)
    control.end_all()
    if durable is not None:
        durable.drain()


def _stop_accepting(state: State, bridging: Bridging) -> None:
    state.draining = True
    bridging.offers_changed()
    for session in state.sessions:
        session.may_request = False


def shutdown(state: State, bridging: Bridging, catalog: Catalog) -> None:
    """Ends all open requests and disconnects all workers and services of the catalog."""
    _stop_accepting(state, bridging)
    for session in list(state.sessions):
        for request in list(session.requests):
            if request.state == QUEUED:
                queues.remove(request.service, request)
            elif request.state == PARKED and outcomes.unpark(state, request):
                continue
            outcomes.fail(state, request, SHUTDOWN, registration.SHUTTING_DOWN)
    for worker in list(state.workers):
        worker.session.dismiss(worker)
        registration.lose(state, worker, Departure.LEFT, registration.SHUTTING_DOWN)
    for name in catalog.active_entries():
        registrant = catalog.entries[name].session
        if registrant is not None and not registrant.disconnected:
            registrant.dismiss_service(name)
