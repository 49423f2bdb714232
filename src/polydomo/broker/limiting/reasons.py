"""Why a request of a service with limits waits, as text."""

from polydomo.broker.limiting.lane import Lane
from polydomo.broker.limiting.limited_queue import FOREVER, PERMITTED, LimitedQueue
from polydomo.broker.state import State
from polydomo.model.records import LimitedRequests, Request
from polydomo.model.service_limits import GROUP, PRINCIPAL


def why(queue: LimitedRequests | None, request: Request, state: State) -> str:
    """Why the request waits although workers may be free; "" if its limit is not the reason."""
    if not isinstance(queue, LimitedQueue):
        return ""
    place = queue.places.get(request)
    if place is None or place.lane.key == PERMITTED or (place.is_ready and place.requests[0] is request):
        return ""
    lane, limits = place.lane, queue.limits
    who = _name_of(queue, lane)
    if not queue.permits.decides:
        return f"{who}: its limit is used up, as process 0 counts"
    if queue.closed_until >= FOREVER:
        return f"{who}: the broker waits until its other processes have said what they run"
    left = queue.closed_until - state.now
    if left > 0:
        return f"{who}: the broker waits {left:.3g} s, because it does not know what started before it did"
    if limits.running and lane.running + lane.ready >= limits.running:
        return f"{who}: {lane.running} of {limits.running} running"
    queue.prune(lane)
    used = lane.used()
    if limits.starts and used + lane.ready >= limits.starts:
        return f"{who}: {used} of {limits.rate()} started"
    return ""


def _name_of(queue: LimitedQueue, lane: Lane) -> str:
    per = queue.limits.per
    text = lane.key.decode("utf-8", "backslashreplace")
    if per == GROUP:
        return f"group {text}" if text else "requests without a group"
    return f"principal {text}" if per == PRINCIPAL and text else "its service"
