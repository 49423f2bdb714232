"""Rights that are taken away: ends the requests that the broker itself sends for principals that no longer have the right to them.

Connections that have lost a right are closed by their owner, which asks ``Access.lost_right``.
"""

from typing import TYPE_CHECKING

from polydomo.broker import outcomes
from polydomo.protocols.request import DENIED, DONE

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


def end_revoked(broker: "Broker") -> None:
    """Called after the rules have changed. An attempt of a durable job ends as DENIED, and so does the job."""
    access = broker.access
    if access.rules is None:
        return
    own = [session for session in broker.sessions if not session.origin_is_principal and not session.is_bridge]
    for session in own:
        for request in list(session.requests):
            if request.state != DONE and not access.still_allowed(request):
                why = broker.refusal
                outcomes.cancel(broker, request, why, DENIED)
                session.send_failure(request, DENIED, why)
