"""Shutdown: the broker stops accepting requests, lets open ones finish, and disconnects its workers."""

from polydomo.broker.cluster.bridging import Bridging
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.requests import outcomes, queues
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.broker.workers.control import Control
from polydomo.model.outcomes import SHUTDOWN
from polydomo.model.records import PARKED, QUEUED, Departure


def drain(broker: State, bridging: Bridging, control: Control, durable: Durable | None) -> None:
    """Stops accepting requests. Requests without a worker end now; the others may finish."""
    _stop_accepting(broker, bridging)
    for service in list(broker.services.values()):
        registration.end_unserved(broker, service)
    control.end_all()
    if durable is not None:
        durable.drain()


def _stop_accepting(broker: State, bridging: Bridging) -> None:
    broker.draining = True
    bridging.offers_changed()
    for session in broker.sessions:
        session.may_request = False


def shutdown(broker: State, bridging: Bridging) -> None:
    """Ends all open requests and disconnects all workers."""
    _stop_accepting(broker, bridging)
    for session in list(broker.sessions):
        for request in list(session.requests):
            if request.state == QUEUED:
                queues.remove(request.service, request)
            elif request.state == PARKED and outcomes.unpark(broker, request):
                continue
            outcomes.fail(broker, request, SHUTDOWN, registration.SHUTTING_DOWN)
    for worker in list(broker.workers):
        worker.session.dismiss(worker)
        registration.lose(broker, worker, Departure.LEFT, registration.SHUTTING_DOWN)
