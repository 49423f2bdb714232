"""Bridging: services of other brokers, and requests that go to them.

A bridge is a worker that offers what the other broker offers, used only for services without a local worker, and a client for the
requests that come from there. Each offer names the brokers on the way, so that no broker is offered its own service by a detour: a broker
that finds itself on the way ignores the offer, and one that lost a service does not accept it from a broker that had it from here.
"""

from typing import TYPE_CHECKING

from polydomo.broker import builtin_services, deadlines, dispatch, outcomes, queues, replies, service_table, workers
from polydomo.limits import MAX_CARRIERS, MAX_HOPS, MAX_RELAYED, MAX_SERVICE_NAME, RELAY_JUMP, WORK_OFFER
from polydomo.protocols.model import Path, Service, Worker
from polydomo.protocols.request import DONE, FAILED, NO_WORKER, OUTCOMES, REFUSED, SHUTDOWN, Request
from polydomo.protocols.session import Session

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

NOT_ACCEPTED = (NO_WORKER, REFUSED, SHUTDOWN)  # the other broker has not worked on the request: another one may


class Bridging:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._identity = b""
        self.offered: dict[Worker, dict[bytes, Path]] = {}  # bridge -> the services that the other broker was offered
        self.learned: dict[Worker, dict[bytes, Service]] = {}  # bridge -> the services that it offers
        self.missed: dict[tuple[Worker, bytes], Path] = {}  # offers for which there was no room in the service table
        self.blocked: dict[Service, None] = {}  # requests are queued, and every bridge that could take one is full
        self.relayed: dict[tuple[bytes, bytes], tuple[int, Session]] = {}  # origin, topic -> last publication, and over
        # which bridge it came; least recent first
        self.carriers: dict[
            bytes, tuple[Session, int]
        ] = {}  # origin -> the bridge its publications come over, and the highest number

    def identity(self) -> bytes:
        if not self._identity:
            self._identity = self._broker.random_bytes(8).hex().encode()
        return self._identity

    # --- bridges come and go

    def open(self, session: Session, peer: bytes, window: int) -> Worker | None:
        broker = self._broker
        if peer == self.identity():
            broker.refusal = "this broker is at both ends of it"
            return None
        if broker.draining:
            broker.refusal = workers.SHUTTING_DOWN
            return None
        interval = broker.tuning.bridge_beat
        silence = interval * broker.tuning.beats_missed
        worker = workers.register(broker, session, [], None, window, 0, interval, silence, None)
        if worker is not None:
            worker.beats_while_busy = True  # the other broker sends heartbeats whatever it holds
            self.offered[worker] = {}
            self.learned[worker] = {}
            for service in list(broker.services.values()):
                self._update_offer(worker, service)
        return worker

    def bridge_lost(self, worker: Worker, held: "list[Request]") -> None:
        """Its requests have been requeued; now the services that it offered lose it."""
        learned = self.learned.pop(worker, {})
        self.offered.pop(worker, None)
        self.missed = {offer: path for offer, path in self.missed.items() if offer[0] is not worker}
        for service in learned.values():
            del service.remote[worker]
        for service in learned.values():
            self._routes_changed(service)
        for request in held:
            if request.state != DONE:  # it is queued again, perhaps for a service that was withdrawn meanwhile
                self._serve_again(request.service, request)

    def bridge_offers(self, worker: Worker, name: bytes, path: Path) -> None:
        broker = self._broker
        learned = self.learned.get(worker)
        if learned is None:
            return
        known = learned.get(name)
        worker.session.link.charge(WORK_OFFER * len(self.learned))
        self.missed.pop((worker, name), None)
        if (
            not path
            or len(path) > broker.tuning.bridge_hops
            or self.identity() in path
            or builtin_services.is_reserved(name)
            or len(name) > MAX_SERVICE_NAME
        ):
            if known is not None:
                del learned[name]
                del known.remote[worker]
                self._routes_changed(known)
            return
        if name not in broker.services and not service_table.make_room(broker, [name], worker.session):
            if len(self.missed) < broker.policy.max_services:
                self.missed[worker, name] = path
            return
        service = service_table.find_or_add(broker, name)
        service.remote[worker] = path
        learned[name] = service
        self._routes_changed(service)

    def retry_missed(self) -> None:
        """Accepts offers for which there had been no room, as far as there is room now."""
        room = self._broker.policy.max_services - len(self._broker.services)
        if room > 0:
            for (worker, name), path in list(self.missed.items())[:room]:
                self.bridge_offers(worker, name, path)

    def _routes_changed(self, service: Service) -> None:
        self.offer_changed(service)
        if service.remote:
            deadlines.unwatch_service(self._broker, service)
        if service.queue_length:
            self._serve_again(service)
        else:
            service_table.forget_unused(self._broker, service)

    def _serve_again(self, service: Service, request: Request | None = None) -> None:
        """Requests are queued and the routes have changed; ``request`` is one that a bridge has just returned."""
        broker = self._broker
        if not service.workers and not service.remote:
            if not service.timer:
                service.no_worker_since = broker.now
            deadlines.watch_service(broker, service, request)
        dispatch.serve_queue(broker, service)

    # --- what other brokers are offered

    def offer_changed(self, service: Service) -> None:
        """The service has its first local worker, or none any more, or other routes."""
        for worker in self.offered:
            self._update_offer(worker, service)

    def withdraw_all(self) -> None:
        """The broker shuts down: other brokers should not send it anything more."""
        if self.offered:
            for service in list(self._broker.services.values()):
                self.offer_changed(service)

    def _update_offer(self, worker: Worker, service: Service) -> None:
        """Offers the other broker the shortest route to the service that does not pass that broker, if that changed."""
        session = worker.session
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
        here = self.identity()
        if self._broker.draining:
            return ()
        if service.workers:
            return (here,)
        best: Path = ()
        for worker, path in service.remote.items():
            if worker is not asking and peer not in path and (not best or len(path) < len(best)):
                best = path
        return (here, *best) if best and len(best) < self._broker.tuning.bridge_hops else ()

    # --- requests to other brokers

    def send_queued(self, service: Service) -> None:
        """The service has no local worker: queued requests go over a bridge. A request from another broker that cannot go on from here is
        returned at once, so that it can be tried elsewhere."""
        broker = self._broker
        self.blocked.pop(service, None)
        while service.queue_length and not service.workers:
            request = queues.first(service)
            worker, possible = self._route(service, request)
            if worker is not None:
                queues.remove(service, request)
                worker.credit -= 1
                dispatch.dispatch(broker, request, worker)
            elif possible:
                self.blocked[service] = None
                return
            elif request.session.is_bridge:
                queues.remove(service, request)
                outcomes.fail(broker, request, NO_WORKER, "no broker that it has not passed offers it")
            else:
                return

    def send_blocked(self) -> None:
        """A bridge has room again."""
        for service in list(self.blocked):
            self.send_queued(service)

    def _route(self, service: Service, request: Request) -> "tuple[Worker | None, bool]":
        """The bridge with the shortest path, among equals the one with the fewest requests; and whether any bridge is possible at all."""
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

    def bridge_failed(self, worker: Worker, token: bytes, code: str, text: str) -> None:
        broker = self._broker
        request = worker.held.pop(token, None)
        if request is None:
            replies.stale(broker, worker, token, "failure", len(text))
            return
        worker.done += 1
        if request.state != DONE:
            if code in NOT_ACCEPTED:
                service_table.restore(broker, request)
                workers.requeue(broker, request, worker, f"{code} at the other broker: {text}")
                if request.state != DONE:
                    self._serve_again(request.service, request)
            elif code in OUTCOMES and code != FAILED:
                outcomes.fail(broker, request, code, text)
            else:
                replies.failed(broker, request, code, text)
        dispatch.add_credit(broker, worker)

    # --- publications of other brokers

    def first_seen(self, session: Session, origin: bytes, topic: bytes, number: int) -> bool:
        """Whether a publication of another broker is new here, and came over the bridge that may carry it: that broker's own if there is
        one, else the first that did, for as long as it is there. Over one bridge the publications of a topic arrive in order, so the
        last number is enough."""
        if origin == self.identity():
            return False
        own = session.peer_identity == origin
        carrier, highest = self.carriers.get(origin, (session, 0))
        if carrier is not session:
            if not own and not carrier.disconnected:
                return False
            highest = 0
        if highest and number > highest + RELAY_JUMP:
            self._broker.report_violation(session, f"a publication whose number jumped from {highest} to {number}")
            return False
        key = (origin, topic)
        last, before = self.relayed.get(key, (0, session))
        if number <= last and (before is session or not own or self._is_last_value(origin, topic, number)):
            return False
        self.carriers[origin] = session, max(highest, number)
        self.relayed.pop(key, None)
        self.relayed[key] = number, session
        if len(self.relayed) > MAX_RELAYED:
            del self.relayed[next(iter(self.relayed))]
        if len(self.carriers) > MAX_CARRIERS:
            del self.carriers[next(iter(self.carriers))]
        return True

    def _is_last_value(self, origin: bytes, topic: bytes, number: int) -> bool:
        """Whether this very publication is the topic's last value already: a bridge that is new repeats it."""
        value = self._broker.publishing.last_values.get(topic)
        return value is not None and value.origin == origin and value.number == number

    # --- requests that stay away

    def take_back(self) -> None:
        """Once a second: requests that a bridge has kept for long, while a local worker is idle, go to that worker."""
        broker = self._broker
        for bridge in list(self.learned):
            late = broker.now - broker.tuning.bridge_patience
            for request in [request for request in bridge.held.values() if request.dispatched <= late]:
                if request.state != DONE and request.service.idle and bridge.session.cancel_request(bridge, request):
                    del bridge.held[request.token]
                    workers.requeue(
                        broker, request, bridge, "the other broker has not answered, and a worker here is idle"
                    )
                    dispatch.request_released(broker, bridge)
                    dispatch.serve_queue(broker, request.service)
