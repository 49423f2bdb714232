"""Admission: checks of unusual requests, and the steps that every accepted request passes.

``Broker.request`` accepts a request for a known service itself. All other requests go to ``resolve``.
"""

from collections.abc import Callable
from typing import Protocol

from polydomo import limits
from polydomo.broker import service_table
from polydomo.broker.builtin.service import BuiltinService
from polydomo.broker.guard.access import Access
from polydomo.broker.jobs.durable_order import order_for
from polydomo.broker.requests import outcomes, pausing, queues, transitions
from polydomo.broker.requests.transitions import new_request
from polydomo.broker.reserved_names import ACCEPT, JOIN, is_reserved
from polydomo.broker.sharing.keyed import KeyedRequests, from_sibling
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.broker.state import State
from polydomo.broker.workers.registration import SHUTTING_DOWN
from polydomo.model.broker_api import BrokerApi
from polydomo.model.outcomes import SHUTDOWN
from polydomo.model.principals import accountable
from polydomo.model.records import Request, Service, Session
from polydomo.model.request_options import RequestOptions
from polydomo.wire.frames import Body

DRAINED = "the service is being drained and accepts no new requests"
AT_LIMIT = "a limit is reached (open requests of the client, queue of the service, or bytes held): try again later"


class Builtins(Protocol):
    """The services that the broker answers itself (``observe.answering``)."""

    def serve(self, request: Request, service: BuiltinService | None) -> Request:
        """Answers the request, now or later."""
        raise NotImplementedError


class Admission:
    def __init__(self, api: BrokerApi, state: State, access: Access, builtins: Builtins) -> None:
        self._api = api
        self._state = state
        self._access = access
        self._builtins = builtins
        self.keyed: KeyedRequests | None = None  # created with the first request that has a key
        self.memoiser: Memoiser | None = None  # set if services are memoised
        self.reuser: Memoiser | None = None  # for requests with the option ``reuse``
        self.make_reuser: Callable[[], Memoiser] | None = None  # creates it with the first of them

    def resolve(
        self,
        session: Session,
        name: bytes,
        body: Body,
        ref: object,
        deadline: float,
        options: RequestOptions,
    ) -> Request | None:
        """Handles a request whose service is reserved or unknown, or that arrived at a listener without requests or during shutdown.
        Returns the request if it is to be accepted (NEW) or if the broker has taken it already (DONE, PARKED), or None if it was
        rejected."""
        state = self._state
        number = state.newest_request
        if not session.role.allows_requests:
            refused = new_request(number, session, Service(name), body, ref, state.now)
            outcomes.refuse(state, refused, f"the listener {session.role.name} does not accept requests")
            return None
        reserved = is_reserved(name)
        builtin = state.builtin.find(name, body)
        if reserved:
            service = builtin.service if builtin is not None else Service(name)
            asked = new_request(number, session, service, body, ref, state.now)
            why = self._access.builtin_denial(asked)
            if why:
                outcomes.deny(asked, why)
                return None
            if (
                builtin is not None
                and builtin.uses_quota
                and not session.is_sibling
                and not self._access.spend(asked, builtin.units)
            ):
                outcomes.refuse(state, asked, _over_quota(asked))
                return None
            # Process 0 of this broker answers the others.
            if name == JOIN and session.is_sibling:
                return from_sibling(self._api, session, body, ref, options)
            here = (
                session.is_bridge
                or name not in state.services
                or name == ACCEPT
                or (name == JOIN and not session.runs_shared)
            )
            if here and not session.is_internal:
                return self._builtins.serve(asked, builtin)
        target = state.services.get(name)
        fallback = options.fallback
        if fallback and (target is None or not (target.workers or target.remote)):
            other = state.services.get(fallback)
            if other is not None and any(worker.session.protocol == session.protocol for worker in other.workers):
                target = other
        request = new_request(number, session, target if target is not None else Service(name), body, ref, state.now)
        if state.draining and not session.is_sibling:
            outcomes.refuse(state, request, SHUTTING_DOWN, SHUTDOWN)
            return None
        durable = state.durable_requests
        becomes_job = (
            durable is not None
            and (options.guarantee or durable.covers(name))
            and not (session.is_bridge or session.is_internal or reserved)
            and not (target is not None and target.drained)
            and 0 < len(name) <= limits.MAX_SERVICE_NAME
        )
        if not reserved and not session.is_sibling:
            # A job is stored for the service that was asked for; the fallback plays no part.
            why = self._access.call_denial(request, name if becomes_job else request.service.name)
            if why:
                outcomes.deny(request, why)
                return None
            if not (session.is_internal or session.runs_shared) and not self._access.spend(request):
                outcomes.refuse(state, request, _over_quota(request))
                return None
        if (
            builtin is not None
            and not reserved
            and target is None
            and state.offered is not None
            and not session.is_internal
        ):
            return self._builtins.serve(request, builtin)
        if durable is not None and becomes_job:
            plain = new_request(number, session, Service(name), body, ref, state.now)
            return durable.accept(plain, order_for(plain, deadline, options), deadline)
        if target is None:
            if len(name) > limits.MAX_SERVICE_NAME:
                outcomes.refuse(state, request, f"service name of {len(name)} bytes")
                return None
            if service_table.shortage(state, 1):
                outcomes.refuse(state, request, service_table.full(state))
                return None
            service_table.add(state, request.service)
        if request.service.drained:
            outcomes.refuse(state, request, DRAINED)
            return None
        if session.is_internal:
            request.attempts = request.ref.attempts  # a job counts its attempts across requests
        return request

    def refuse_at_limit(self, request: Request) -> None:
        state = self._state
        outcomes.refuse(state, request, AT_LIMIT)
        service_table.forget_unused(state, request.service)

    def divert(self, request: Request, options: RequestOptions) -> bool:
        """Handles an accepted request that a worker does not simply run: one with an idempotency key may join a run, a paused service holds
        it, and a memoised service may have a stored reply. False: the request is to be dispatched or queued."""
        state = self._state
        service = request.service
        if options.reuse and self.reuser is None and self.make_reuser is not None:
            self.reuser = self.make_reuser()
        memoiser = self.memoiser if not options.reuse else self.reuser
        memoised = memoiser is not None and (options.reuse or memoiser.takes(service.name))
        # Requests for memoised services share a run if their bodies are equal, so their keys do not matter.
        if options.key and not memoised and (self.keyed is not None or not state.draining):
            if self.keyed is None:
                self.keyed = KeyedRequests(self._api, state)
            self.keyed.serve(request, options.key, options.needs_worker)
        elif service.paused:
            pausing.hold(state, request)
        elif memoiser is not None and memoised and not request.session.runs_shared:
            memoiser.serve(request, options.needs_worker)
        else:
            return False
        return True

    def accept_batch(self, session: Session, service: bytes, bodies: "list[bytes]", ref: object) -> int:
        """Accepts several requests. If all of them will be queued, the limits are checked only once."""
        state = self._state
        target = state.services.get(service)
        size = sum(map(len, bodies))
        if (
            bodies
            and target is not None
            and target.queue_length  # so all of them will be queued
            and target.workers
            and target.queue_length + len(bodies) < state.max_queue
            and len(session.requests) + len(bodies) < state.max_outstanding
            and state.held_bytes + size < state.max_held_bytes
            and session.held_bytes + size < state.policy.max_client_bytes
            and (session.may_request or (not state.draining and self._access.calls_freely(session, service)))
            and not session.worker_count
            and self.memoiser is None
            and not target.special
            and target.limits is None
        ):
            number = state.newest_request
            now = state.now
            queue = queues.of_client(target, session)
            length = target.queue_length
            records = state.records_messages
            for body in bodies:
                number += 1
                request = new_request(number, session, target, body, ref, now)
                transitions.accept(state, request)
                if records:
                    state.recorder.accepted(request, True, length)
                    length += 1
                queue.append(request)
            state.newest_request = number
            target.queue_length += len(bodies)
            if target.remote:
                state.routes.queued(target)
            session.link.charge(limits.WORK_REQUEST * len(bodies) // 2)
            return len(bodies)
        taken = 0
        for body in bodies:
            self._api.request(session, service, body, ref)
            taken += 1
            if session.link.state or session.link.pauses:
                break
        return taken


def _over_quota(request: Request) -> str:
    return f"{accountable(request.origin)} has exceeded its quota"
