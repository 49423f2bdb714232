"""Answers requests to built-in services: at once, some turns later, or together with the other processes of the broker."""

from polydomo import limits
from polydomo.broker.builtin.service import PROCESSES, Asked, BuiltinService
from polydomo.broker.cluster.siblings import SCHEMA, Siblings
from polydomo.broker.observe.listings import Listings
from polydomo.broker.observe.parts import Parts
from polydomo.broker.requests import transitions
from polydomo.model.jobs.messages import answer_body, error_header
from polydomo.model.outcomes import OK
from polydomo.model.records import Request, Session
from polydomo.wire.frames import Body, flat, frame


class Answering:
    def __init__(self, parts: Parts, siblings: Siblings, listings: Listings) -> None:
        self._parts = parts
        self._siblings = siblings
        self._listings = listings

    def serve(self, request: Request, service: BuiltinService | None) -> Request:
        """Answers a request for a reserved name, and charges the time that this took."""
        link = request.session.link
        clock = link.hub.clock
        if clock is None:
            return self._serve(request, service)
        since, left = clock(), link.work_left
        answered = self._serve(request, service)
        link.charge_time(clock() - since, left - link.work_left)
        return answered

    def _serve(self, request: Request, service: BuiltinService | None) -> Request:
        """Most requests are answered at once and are never open. Long lists are sent some turns later, and requests that need the job
        store wait for it."""
        session = request.session
        if service is not None and service.job is not None and (service.right != PROCESSES or session.is_sibling):
            if self._parts.durable is not None:
                self._parts.durable.serve(request, service.job)
                return request
        transitions.answer(request, OK)
        if len(request.body) > limits.MAX_CONTROL:
            session.send_final(request, _too_large(len(request.body)))
            session.link.charge(limits.WORK_REQUEST)
            return request
        if self._siblings.serve(request, service):
            return request
        if not self._listings.ask(request, service):
            asked = Asked(request.service.name, session, flat(request.body), request.origin)
            answer = self._parts.state.builtin.answer(service, asked)
            session.send_final(request, frame(answer, False))
            session.link.charge(limits.WORK_REQUEST + (len(answer) >> limits.WORK_TEXT))
        return request

    # --- ``siblings.Local``

    def orders(self) -> "list[tuple[bytes, bytes]]":
        schemas = [(SCHEMA, row) for row in self._parts.schemas.rows()]
        return [*self._parts.control.orders(), *self._parts.limiter.orders(), *schemas]

    def event(self, topic: bytes, content: bytes) -> None:
        self._parts.monitor.event_of_sibling(topic, content)

    def log_record(self, session: Session, topic: bytes, body: Body) -> None:
        self._parts.publishing.publish(session, topic, body)


def _too_large(size: int) -> Body:
    """The answer to a request that the broker does not parse."""
    text = f"the request has {size:,} bytes; the limit for built-in services is {limits.MAX_CONTROL:,} (MAX_CONTROL)"
    return answer_body(error_header("too-large", text))
