"""The crossing: services of other brokers, and requests that go to them and come from them.

A bridge is a worker that offers what was learned from the other side, used only where a service has no local worker, and a client that
asks for what is offered here. What is offered is told onward with the brokers on the way, so that nobody is offered his own service by a
detour: a broker that finds itself on the way takes no notice, and one that has lost a service does not believe whoever had it from there.
"""

from polydomo.broker import queues, reserved
from polydomo.broker.floor import Floor
from polydomo.limits import MAX_HOPS, MAX_RELAYED, MAX_SERVICE_NAME
from polydomo.protocols.bridge import BridgeSession, Journey, Path, path_of
from polydomo.protocols.request import DONE, FAILED, NO_WORKER, OUTCOMES, REFUSED, SHUTDOWN, Request
from polydomo.protocols.verbs import Service, Session, Worker

NOT_TAKEN = (NO_WORKER, REFUSED, SHUTDOWN)  # the other broker has not worked on it: it may be tried elsewhere


class Crossing(Floor):
    __slots__ = ()

    def identity(self) -> bytes:
        if not self.bridges.identity:
            self.bridges.identity = self._entropy.take(8).hex().encode()
        return self.bridges.identity

    def name_of(self, request: Request) -> str:
        return self.recorder.request_id(request) or str(request.number)

    # --- bridges come and go ---------------------------------------------------------------------------------------------------

    def bridge(self, session: Session, peer: bytes, window: int) -> Worker | None:
        if peer == self.identity():
            self.refusal = "this broker is at both ends of it"
            return None
        if self.draining:
            self.refusal = "the broker is shutting down"
            return None
        tuning = self.tuning
        worker = self.register(
            session, [], None, window, False, tuning.bridge_beat, tuning.bridge_beat * tuning.beats_missed
        )
        if worker is not None:
            worker.beats_busy = True  # it beats whatever it holds
            self.bridges.told[worker] = {}
            self.bridges.learned[worker] = {}
            for service in list(self.services.values()):
                self._tell(worker, service)
        return worker

    def _bridge_lost(self, worker: Worker, held: "list[Request]") -> None:
        """Everything it held has been given back; what it offered is offered by it no more."""
        learned = self.bridges.learned.pop(worker, {})
        self.bridges.told.pop(worker, None)
        self.bridges.missed = {offer: path for offer, path in self.bridges.missed.items() if offer[0] is not worker}
        for service in learned.values():
            del service.away[worker]
        for service in learned.values():
            self._rerouted(service)
        for request in held:
            if request.state != DONE:  # it waits again, perhaps for a service that had been retracted meanwhile
                self._wait_on(request.service, request)

    def learn(self, worker: Worker, service: bytes, path: Path) -> None:
        learned = self.bridges.learned.get(worker)
        if learned is None:
            return
        known = learned.get(service)
        missed = self.bridges.missed
        missed.pop((worker, service), None)
        if not path or len(path) > self.tuning.bridge_hops or self.identity() in path or not _may_be_offered(service):
            if known is not None:
                del learned[service]
                del known.away[worker]
                self._rerouted(known)
            return
        target = self.services.get(service)
        if target is None:
            if not self._make_room([service]):
                if len(missed) < self.policy.max_services:
                    missed[worker, service] = path
                return
            target = self.services[service] = Service(service)
            target.empty_since = self.now
        target.away[worker] = path
        learned[service] = target
        self._rerouted(target)

    def _learn_missed(self) -> None:
        """Offers for which there had been no room, as far as there is now."""
        room = self.policy.max_services - len(self.services)
        if room > 0:
            for (worker, service), path in list(self.bridges.missed.items())[:room]:
                self.learn(worker, service, path)

    def _rerouted(self, service: Service) -> None:
        """The ways to the service have changed."""
        self._offer_changed(service)
        if service.away and service.timer:
            self.timers.remove(service.timer, service)
            service.timer = 0
        if service.length:
            self._wait_on(service)
        else:
            self._reap(service)

    def _wait_on(self, service: Service, request: Request | None = None) -> None:
        """Some wait whose way has changed; ``request`` is one that a bridge has just given back."""
        if not service.workers and not service.away:
            if not service.timer:
                service.empty_since = self.now
            self._watch(service, request)
        self._pump(service)

    # --- what others are told ------------------------------------------------------------------------------------------------

    def _offer_changed(self, service: Service) -> None:
        for worker in self.bridges.told:
            self._tell(worker, service)

    def _tell(self, worker: Worker, service: Service) -> None:
        """Tells the other side of the shortest way to the service that does not lead over itself, if that is news."""
        session = worker.session
        assert isinstance(session, BridgeSession)
        path = self._way(service, worker, session.peer)
        told = self.bridges.told[worker]
        if path == told.get(service.name, ()):
            return
        if path:
            told[service.name] = path
            session.offer(service.name, path)
        else:
            del told[service.name]
            session.retract(service.name)

    def _way(self, service: Service, asking: Worker, peer: bytes) -> Path:
        here = self.identity()
        if self.draining:
            return ()
        if service.workers:
            return (here,)
        best: Path = ()
        for worker, path in service.away.items():
            if worker is not asking and peer not in path and (not best or len(path) < len(best)):
                best = path
        return (here, *best) if best and len(best) < self.tuning.bridge_hops else ()

    def withdraw_offers(self) -> None:
        """The broker is leaving: nobody should send it anything more."""
        for service in list(self.services.values()):
            self._offer_changed(service)

    # --- requests that go away -------------------------------------------------------------------------------------------------

    def _pump_away(self, service: Service) -> None:
        """No local worker: what waits goes over a bridge. A request from another broker that cannot go on from here goes back at once, so
        that it can be tried elsewhere."""
        waiting = self.bridges.waiting
        waiting.pop(service, None)
        while service.length and not service.workers:
            request = queues.first(service)
            worker, possible = self._route(service, request)
            if worker is not None:
                queues.remove(service, request)
                worker.credit -= 1
                self._dispatch(request, worker)
            elif possible:
                waiting[service] = None
                return
            elif isinstance(request.ref, Journey):
                queues.remove(service, request)
                self._fail(request, NO_WORKER, "no broker that it has not been at offers it")
            else:
                return

    def _route(self, service: Service, request: Request) -> "tuple[Worker | None, bool]":
        """The shortest way, among equals the least burdened bridge; and whether there is any, be it without room now."""
        been = path_of(request)
        best: Worker | None = None
        possible = False
        if len(been) + 1 >= MAX_HOPS:
            return None, False
        for worker, path in service.away.items():
            if been and not set(path).isdisjoint(been):
                continue
            possible = True
            session = worker.session
            assert isinstance(session, BridgeSession)
            if worker.credit <= 0 or not session.has_room():
                continue
            if best is None or (len(path), len(worker.held)) < (len(service.away[best]), len(best.held)):
                best = worker
        return best, possible

    def grant(self, worker: Worker, count: int = 1) -> None:
        super().grant(worker, count)
        if self.bridges.waiting and worker in self.bridges.learned:
            for service in list(self.bridges.waiting):
                self._pump_away(service)

    def _settle(self, worker: Worker) -> None:
        if worker in self.bridges.learned:
            self.grant(worker)  # what was taken back from it
        else:
            super()._settle(worker)

    def failed_away(self, worker: Worker, token: bytes, code: str, text: str) -> None:
        request = worker.held.pop(token, None)
        if request is None:
            self._stale(worker, token, "failure", len(text))
            return
        worker.done += 1
        if request.state != DONE:
            if code in NOT_TAKEN:
                self._home(request)
                self._give_back(request, worker, f"{code} at the other broker: {text}")
                if request.state != DONE:
                    self._wait_on(request.service, request)
            elif code in OUTCOMES and code != FAILED:
                self._fail(request, code, text)
            else:
                self._end(request, FAILED, f"{code}: {text}")
                request.session.send_failure(request, code, text)
        self.grant(worker)

    def travelled(self, request: Request, route: "list[str]") -> None:
        self.recorder.travelled(request, route)

    # --- what is published elsewhere ---------------------------------------------------------------------------------------------

    def first_seen(self, origin: bytes, topic: bytes, number: int) -> bool:
        """Whether a publication of another broker is new here. Of each topic they come in order on every way: the last number is enough."""
        if origin == self.identity():
            return False
        relayed = self.bridges.relayed
        key = (origin, topic)
        if relayed.get(key, 0) >= number:
            return False
        relayed.pop(key, None)
        relayed[key] = number
        if len(relayed) > MAX_RELAYED:
            del relayed[next(iter(relayed))]
        return True


def _may_be_offered(name: bytes) -> bool:
    return not reserved.is_reserved(name) and len(name) <= MAX_SERVICE_NAME
