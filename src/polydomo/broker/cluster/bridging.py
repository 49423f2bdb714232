"""Bridging: services of other brokers, and requests to them.

A bridge is a worker that offers the services of the other broker, used only for services without a local worker, and a client for the
requests from there. Each offer lists the brokers on its route, which prevents loops: a broker that finds itself on the route ignores the
offer, and a broker that lost a service does not accept it back from a broker that learned it from here.
"""

from polydomo.broker import service_room, service_table
from polydomo.broker.catalog.bridged_entries import BridgedEntries
from polydomo.broker.cluster.siblings import Siblings
from polydomo.broker.guard.access import Access
from polydomo.broker.guard.rules import BRIDGE, OFFER
from polydomo.broker.identity import identity
from polydomo.broker.interfaces import Routes
from polydomo.broker.requests import deadlines, dispatch, outcomes, queues, replies
from polydomo.broker.reserved_names import is_reserved
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.limits import MAX_HOPS, MAX_SERVICE_NAME, WORK_OFFER, WORK_REQUEST
from polydomo.model.outcomes import FAILED, NO_WORKER, OUTCOMES, REFUSED, SHUTDOWN
from polydomo.model.records import DONE, NO_HISTORY, Path, Request, Service, Session, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.wire.frames import Body

NOT_ACCEPTED = (NO_WORKER, REFUSED, SHUTDOWN)  # the other broker did not run the request, so it may be sent elsewhere


class Bridging(Routes):
    def __init__(self, state: State, access: Access, siblings: Siblings, entries: BridgedEntries) -> None:
        self._state = state
        self._access = access
        self._siblings = siblings
        self._entries = entries
        self.offered: dict[Worker, dict[bytes, Path]] = {}  # bridge -> the services offered to the other broker
        self.learned: dict[Worker, dict[bytes, Service]] = {}  # bridge -> the services that it offers
        self.missed: dict[tuple[Worker, bytes], Path] = {}  # offers that did not fit into the service table
        self.blocked: dict[Service, None] = {}  # services with queued requests whose bridges are all full

    # --- bridges come and go

    def open(self, session: Session, peer: bytes, window: int) -> Worker | Refusal:
        state = self._state
        why = self._access.denial(session, BRIDGE, "")
        if why:
            return Refusal(why, denied=True)
        if peer == identity(self._state):
            return Refusal("the bridge connects the broker to itself")
        if state.draining:
            return Refusal(registration.SHUTTING_DOWN)
        interval = state.tuning.bridge_beat
        silence = interval * state.tuning.beats_missed
        # The other broker sends heartbeats even while it holds requests.
        terms = WorkerTerms(window, 0, interval, silence, strict=True)
        worker = registration.register(state, session, [], None, terms, None)
        if isinstance(worker, Worker):
            self.offered[worker] = {}
            self.learned[worker] = {}
            for service in list(state.services.values()):
                self._update_offer(worker, service)
            self._entries.opened(worker)
            if session.is_sibling:
                self._siblings.opened(worker)
        return worker

    def bridge_lost(self, worker: Worker, held: "list[Request]") -> None:
        """Removes a bridge from its services, after its requests have been requeued."""
        learned = self.learned.pop(worker, {})
        self._siblings.lost(worker)
        self._entries.lost(worker)
        self.offered.pop(worker, None)
        self.missed = {offer: path for offer, path in self.missed.items() if offer[0] is not worker}
        for service in learned.values():
            del service.remote[worker]
        for service in learned.values():
            self._routes_changed(service)
        for request in held:
            if request.state != DONE:  # it is requeued, perhaps for a service that was withdrawn in the meantime
                self._serve_again(request.service, request)

    def bridge_offers(self, worker: Worker, name: bytes, path: Path) -> None:
        state = self._state
        learned = self.learned.get(worker)
        if learned is None:
            return
        known = learned.get(name)
        worker.session.link.charge(WORK_OFFER * len(self.learned))
        self.missed.pop((worker, name), None)
        if (
            not path
            or len(path) > state.tuning.bridge_hops
            or identity(self._state) in path
            or (is_reserved(name) and not worker.session.is_sibling)
            or len(name) > MAX_SERVICE_NAME
            or (not worker.session.is_sibling and self._access.denial(worker.session, OFFER, name))
        ):
            if known is not None:
                del learned[name]
                del known.remote[worker]
                self._routes_changed(known)
            return
        new = name not in state.services and not (worker.session.is_sibling and name in state.builtin.offered)
        if new and not service_room.make_room(state, [name], worker.session):
            if len(self.missed) < state.policy.max_services:
                self.missed[worker, name] = path
            return
        service = service_table.find_or_add(state, name)
        service.remote[worker] = path
        learned[name] = service
        if state.offered is not None:
            state.offered[name] = None  # jobs may wait for it
        self._routes_changed(service)

    def retry_missed(self) -> None:
        """Accepts offers that did not fit before, as far as there is room now."""
        room = self._state.policy.max_services - service_table.count(self._state)
        if room > 0:
            for (worker, name), path in list(self.missed.items())[:room]:
                self.bridge_offers(worker, name, path)

    def _routes_changed(self, service: Service) -> None:
        self.offer_changed(service)
        if service.remote:
            deadlines.unwatch_service(self._state, service)
        if service.queue_length:
            self._serve_again(service)
        else:
            service_table.forget_unused(self._state, service)

    def _serve_again(self, service: Service, request: Request | None = None) -> None:
        """Called when requests are queued and the routes have changed. ``request`` is one that a bridge has just returned."""
        state = self._state
        if not service.workers and not service.remote:
            if not service.timer:
                service.no_worker_since = state.now
            deadlines.watch_service(state, service, request)
        dispatch.serve_queue(state, service)

    # --- offers to other brokers

    def offer_changed(self, service: Service) -> None:
        """Called when the service gets its first local worker, loses its last one, or its routes change."""
        for worker in self.offered:
            self._update_offer(worker, service)

    def offers_changed(self) -> None:
        """Called at shutdown, when all offers are withdrawn so that other brokers send no more requests, and when rights have changed."""
        if self.offered:
            for service in list(self._state.services.values()):
                self.offer_changed(service)

    def entries_changed(self) -> None:
        """Called when rights have changed."""
        self._entries.rights_changed()

    def _update_offer(self, worker: Worker, service: Service) -> None:
        """Offers the other broker the shortest route to the service that does not pass through that broker, if the route changed."""
        session = worker.session
        path: Path = ()
        if self._access.may_know(session, service.name):
            path = self._shortest_path(service, worker, session.peer_identity)
        offered = self.offered[worker]
        if path == offered.get(service.name, ()):
            return
        if path:
            offered[service.name] = path
            session.offer_service(service.name, path)
        else:
            del offered[service.name]
            session.withdraw_service(service.name)

    def _shortest_path(self, service: Service, asking: Worker, peer: bytes) -> Path:
        here = identity(self._state)
        sibling = asking.session.is_sibling
        if self._state.draining and not sibling:
            return ()
        if service.workers:
            return (here,)
        best: Path = ()
        for worker, path in service.remote.items():
            if sibling and worker.session.is_sibling:
                continue  # all processes of a broker are joined to each other
            if worker is not asking and peer not in path and (not best or len(path) < len(best)):
                best = path
        return (here, *best) if best and len(best) < self._state.tuning.bridge_hops else ()

    # --- requests to other brokers

    def queued(self, service: Service) -> None:
        if service.workers:
            self._siblings.queued(service)
        else:
            self.send_queued(service)

    def has_room(self) -> None:
        if self.blocked:
            self.send_blocked()

    def forget(self, service: Service) -> None:
        self._siblings.forget(service)

    def send_queued(self, service: Service) -> None:
        """Sends queued requests of a service without local workers over a bridge. A request from another broker that has no route from here
        is returned at once, so that it can be tried elsewhere."""
        state = self._state
        self.blocked.pop(service, None)
        while queues.startable(service) and not service.workers:
            request = queues.first(service)
            worker, possible = self._route(service, request)
            if worker is not None:
                if worker.session.is_sibling:
                    queues.pop_across(service)
                else:
                    queues.pop(service)
                worker.credit -= 1
                dispatch.dispatch(state, request, worker)
            elif possible:
                self.blocked[service] = None
                return
            elif request.session.is_bridge:
                queues.remove(service, request)  # not popped: what is returned does not use its client's turn
                outcomes.fail(state, request, NO_WORKER, "no other broker offers the service")
            else:
                return

    def send_blocked(self) -> None:
        """A bridge has room again."""
        for service in list(self.blocked):
            self.send_queued(service)

    def _route(self, service: Service, request: Request) -> "tuple[Worker | None, bool]":
        """The bridge with the shortest route and free capacity, among equals the one with the fewest requests; and whether any bridge has
        a route."""
        passed = request.session.path_of(request)
        best: Worker | None = None
        possible = False
        if len(passed) + 1 >= MAX_HOPS:
            return None, False
        for worker, path in service.remote.items():
            if passed and not set(path).isdisjoint(passed):
                continue
            possible = True
            if worker.credit <= 0 or not worker.session.has_room():
                continue
            if best is None or (len(path), len(worker.held)) < (len(service.remote[best]), len(best.held)):
                best = worker
        return best, possible

    def bridge_final(self, worker: Worker, token: bytes, body: Body) -> bool:
        """Like ``Broker.final`` and ``dispatch.add_credit``, for a bridge: it has no services of its own to serve. Returns False, and does
        nothing, if the request has ended or has a history."""
        state = self._state
        request = worker.held.get(token)
        if request is None or request.state == DONE or request.history is not NO_HISTORY:
            return False
        del worker.held[token]
        dispatch.put_down(state, request)
        replies.count_reply(worker, request, state.now)
        replies.reply_with(state, request, body)
        worker.session.link.charge(WORK_REQUEST)
        worker.credit += 1
        if state.records_messages:
            state.recorder.credit_added(worker, 1)
        if self.blocked:
            self.send_blocked()
        if state.freed:
            dispatch.serve_freed(state)
        return True

    def bridge_failed(self, worker: Worker, token: bytes, code: str, text: str, runs: bool = False) -> None:
        """``runs``: a worker of that process still has the request, so it counts as running here."""
        state = self._state
        running = worker.held.get(token) if runs else None
        if running is not None:
            if running.state != DONE and code in OUTCOMES and code != FAILED:
                outcomes.fail(state, running, code, text)
            elif running.state != DONE:
                replies.failed(state, running, code, text)
            return
        request = worker.held.pop(token, None)
        if request is None:
            replies.stale(state, worker, token, "failure", len(text))
            return
        worker.done += 1
        dispatch.put_down(state, request)
        if request.state != DONE:
            if code == SHUTDOWN and request.session.is_internal:
                # Uses up no attempt of the durable job, which runs again.
                outcomes.fail(state, request, SHUTDOWN, text)
            elif code in NOT_ACCEPTED:
                service_room.restore(state, request)
                registration.requeue(state, request, worker, f"{code} at the other broker: {text}")
                if request.state != DONE:
                    self._serve_again(request.service, request)
            elif code in OUTCOMES and code != FAILED:
                outcomes.fail(state, request, code, text)
            else:
                replies.failed(state, request, code, text)
        dispatch.add_credit(state, worker)

    # --- requests held by other brokers for too long

    def take_back(self) -> None:
        """Called once a second: requeues requests that a bridge has held for too long while a local worker is idle."""
        state = self._state
        for bridge in list(self.learned):
            late = state.now - state.tuning.bridge_patience
            for request in [request for request in bridge.held.values() if request.dispatched <= late]:
                if bridge.session.is_sibling and request.service.limits is not None:
                    continue  # it would run twice, and the limit counts it once
                if request.state != DONE and request.service.idle and bridge.session.cancel_request(bridge, request):
                    del bridge.held[request.token]
                    dispatch.put_down(state, request)
                    registration.requeue(
                        state, request, bridge, "the other broker has not answered, and a local worker is idle"
                    )
                    dispatch.request_released(state, bridge)
                    dispatch.serve_queue(state, request.service)
