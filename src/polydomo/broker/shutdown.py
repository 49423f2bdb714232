"""Shutdown: the broker stops accepting requests, lets open ones finish, and disconnects its workers."""

from typing import TYPE_CHECKING

from polydomo.broker.requests import outcomes, queues
from polydomo.broker.workers import registration
from polydomo.model.request import PARKED, QUEUED, SHUTDOWN
from polydomo.model.service import Departure

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


def drain(broker: "Broker") -> None:
    """Stops accepting requests. Requests without a worker end now; the others may finish."""
    _stop_accepting(broker)
    for service in list(broker.services.values()):
        registration.end_unserved(broker, service)
    broker.control.end_all()
    if broker.durable is not None:
        broker.durable.drain()


def _stop_accepting(broker: "Broker") -> None:
    broker.draining = True
    broker.bridging.offers_changed()
    for session in broker.sessions:
        session.may_request = False


def shutdown(broker: "Broker") -> None:
    """Ends all open requests and disconnects all workers."""
    _stop_accepting(broker)
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
