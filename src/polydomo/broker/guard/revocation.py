"""Rights that are taken away: ends what the broker itself does for principals that no longer have the right to it, and workers that have
no connection of their own.

Connections that have lost a right are closed by their owner, which asks ``Access.lost_right``.
"""

from typing import TYPE_CHECKING

from polydomo.broker.requests import outcomes
from polydomo.broker.workers import registration
from polydomo.model.detached_link import DetachedLink
from polydomo.model.request import DENIED, DONE
from polydomo.model.service import Departure
from polydomo.wire.close_reason import CloseCause, CloseReason

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


def end_revoked(broker: "Broker") -> None:
    """Called after the rules have changed."""
    if broker.access.rules is None:
        return
    _end_requests(broker)
    _end_workers(broker)
    broker.bridging.offers_changed()


def _end_requests(broker: "Broker") -> None:
    """An attempt of a durable job ends as DENIED, and so does the job. So do requests that would be run after their client has left."""
    for session in [session for session in broker.sessions if not session.is_bridge]:
        own = not session.origin_is_principal
        for request in list(session.requests):
            if request.state == DONE or not (own or session.disconnected or not session.awaits_reply(request)):
                continue
            if not broker.access.still_allowed(request):
                why = broker.refusal
                outcomes.cancel(broker, request, why, DENIED)
                if own:
                    session.send_failure(request, DENIED, why)


def _end_workers(broker: "Broker") -> None:
    """Workers over HTTP, which have a connection only while they ask, and those whose connection broke and may come back (memo01)."""
    for worker in list(broker.workers):
        session = worker.session
        detached = isinstance(session.link, DetachedLink) and not session.runs_shared
        if not worker.alive or not (detached or worker.orphaned_until) or broker.access.still_offers(worker):
            continue
        why = broker.refusal
        if detached:
            broker.session_closed(session, CloseReason(CloseCause.DENIED, why))
        else:
            registration.lose(broker, worker, Departure.LEFT, why)
