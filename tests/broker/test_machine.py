"""The broker under any order of events: clients and workers of every kind come, speak, crash and go, and time passes.

After every step the invariants hold; when everybody has gone, every request that was ever accepted has had exactly one outcome.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from polydomo.broker.policy import Policy
from polydomo.model.records import DONE, Request, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.request_options import RequestOptions
from polydomo.model.tuning import Tuning
from polydomo.wire.frames import join
from tests.broker.rig import Peer, World

SERVICES = [b"one", b"two"]
POLICY = Policy(
    attempts=2,
    queue_expiry=20.0,
    max_outstanding=4,
    max_queue=5,
    max_held_bytes=400,
    max_services=2,
    max_message=120,
)

some = st.integers(0, 1_000)
services = st.sampled_from(SERVICES)
sizes = st.sampled_from([0, 1, 30, 90])
ANSWERS = ["partial", "partial", "fail", "forward", "release", "give back", "keep"]


class Crew(Peer):
    """A connection that may carry several workers, some of which poll. What each was given is known by its token."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.crew: list[Worker] = []
        self.given: dict[bytes, Worker] = {}  # token -> worker, of everything ever delivered here

    def deliver(self, worker: Worker, request: Request) -> None:
        assert not self.disconnected and worker.alive and worker.credit >= 0
        assert not self.polls or worker.polling, "a polling worker is spoken to while it does not wait"
        assert request.token not in self.given and request.state != DONE
        self.given[request.token] = worker
        if self.polls:
            worker.polling = False

    def send_heartbeat(self, worker: Worker) -> None:
        assert worker.alive and not self.disconnected
        assert not self.polls or worker.polling
        if self.polls:
            worker.polling = False

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        assert worker.held[request.token] is request
        return self.can_cancel

    def revoke_request(self, worker: Worker, request: Request) -> None:
        assert worker.runs and worker.held[request.token] is request and request.state != DONE

    def on_worker_gone(self, worker: Worker) -> None:
        assert not worker.alive


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(POLICY, Tuning(busy_timeout=30.0))
        self.broker = self.world.broker
        self.peers: list[Crew] = []
        self.workers: list[Worker] = []  # ever registered
        self.accepted: list[Request] = []
        self.tokens: set[bytes] = set()
        self.orphans: list[Worker] = []

    def one(self, index: int) -> Crew:
        return self.peers[index % len(self.peers)]

    def worker(self, index: int) -> Worker:
        return self.workers[index % len(self.workers)]

    # --- connections

    @initialize()
    def begin(self) -> None:
        self.peers = [Crew(self.world) for _ in range(3)]

    @precondition(lambda self: len(self.peers) < 6)
    @rule(partials=st.booleans(), cancels=st.booleans(), polls=st.booleans())
    def connect(self, partials: bool, cancels: bool, polls: bool) -> None:
        peer = Crew(self.world)
        peer.takes_partials = partials
        peer.polls = polls
        peer.can_cancel = cancels
        self.peers.append(peer)

    @precondition(lambda self: len(self.peers) > 2)
    @rule(index=some, seconds=st.sampled_from([0.0, 0.5, 5.0]))
    def crash(self, index: int, seconds: float) -> None:
        """A connection is lost; with ``seconds``, its workers may speak again from another one."""
        peer = self.one(index)
        self.peers.remove(peer)
        for worker in peer.crew:
            if seconds and worker.alive and worker.session is peer and worker.auto_credit <= 1:
                self.broker.orphan_worker(worker, seconds)
                self.orphans.append(worker)
        peer.link.lost()

    @precondition(lambda self: self.orphans and self.peers)
    @rule(index=some, where=some)
    def come_back(self, index: int, where: int) -> None:
        worker = self.orphans.pop(index % len(self.orphans))
        old, peer = worker.session, self.one(where)
        if worker.alive and old.polls == peer.polls:
            self.broker.adopt_worker(worker, peer)
            peer.crew.append(worker)

    # --- clients

    @precondition(lambda self: self.peers)
    @rule(
        index=some,
        service=services,
        size=sizes,
        deadline=st.sampled_from([0.0, 0.0, 0.0, 3.0, 40.0]),
        wait=st.sampled_from([0.0, 0.0, 10.0]),
        run=st.sampled_from([0.0, 0.0, 15.0]),
        attempts=st.sampled_from([0, 0, 1, 3]),
        count=st.integers(1, 4),
    )
    def request(
        self, index: int, service: bytes, size: int, deadline: float, wait: float, run: float, attempts: int, count: int
    ) -> None:
        peer, now = self.one(index), self.broker.now
        body = join([bytes(size)]) if size else b""
        for _ in range(count):
            if peer.link.pauses:
                return  # it is not read
            request = self.broker.request(
                peer, service, body, b"", now + deadline if deadline else 0.0, RequestOptions(wait, run, attempts)
            )
            if request is not None:
                self.accepted.append(request)
            else:
                assert peer.failures[-1] in ("refused", "shutdown")

    @precondition(lambda self: self.broker.open_requests)
    @rule(index=some, expired=st.booleans())
    def withdraw(self, index: int, expired: bool) -> None:
        self.broker.cancel(self.accepted[index % len(self.accepted)], "not wanted any more", expired)

    # --- workers

    @precondition(lambda self: self.peers)
    @rule(
        index=some,
        names=st.sampled_from([[b"one"], [b"two"], [b"one", b"two"], []]),
        credit=st.sampled_from([1, 2, 3, 0]),
        auto=st.booleans(),
        liveness=st.sampled_from([(0.0, 0.0), (2.5, 7.5), (0.0, 7.5), (2.5, 0.0)]),
        weighted=st.booleans(),
    )
    def register(
        self, index: int, names: list[bytes], credit: int, auto: bool, liveness: tuple[float, float], weighted: bool
    ) -> None:
        peer = self.one(index)
        weights = list(range(len(names))) if weighted else None
        if peer.polls:
            credit, auto = 1, False  # it waits for its first request
        worker = self.broker.register_worker(peer, names, None, WorkerTerms(credit, auto, *liveness), weights)
        if isinstance(worker, Worker):
            self.workers.append(worker)
            peer.crew.append(worker)

    @precondition(lambda self: self.workers)
    @rule(index=some, service=services)
    def offer(self, index: int, service: bytes) -> None:
        worker = self.worker(index)
        if not worker.orphaned_until and not (worker.session.polls and not worker.polling):
            self.broker.add_service(worker, service)

    @precondition(lambda self: self.workers)
    @rule(index=some, count=st.integers(1, 3))
    def grant(self, index: int, count: int) -> None:
        worker = self.worker(index)
        if worker.alive and not worker.orphaned_until and worker.auto_credit <= 1:
            if worker.session.polls:
                if worker.polling or worker.held:
                    return
                worker.polling = True
                count = 1
            self.broker.add_credit(worker, count)

    @precondition(lambda self: self.workers)
    @rule(index=some, window=st.integers(2, 5), runs=st.integers(1, 5))
    def set_window(self, index: int, window: int, runs: int) -> None:
        worker = self.worker(index)
        if not worker.orphaned_until and not worker.session.polls:
            self.broker.set_credit(worker, window, runs)

    @precondition(lambda self: self.broker.workers)
    @rule(index=some, what=st.sampled_from(["revoke", "beat", "beat", "leave"]))
    def say(self, index: int, what: str) -> None:
        worker = list(self.broker.workers)[index % len(self.broker.workers)]
        if what == "revoke":
            if worker.auto_credit <= 1:
                self.broker.clear_credit(worker)
        elif what == "beat":
            self.broker.heartbeat(worker)
        else:
            self.broker.worker_left(worker, "DISCONNECT")

    def held(self) -> list[tuple[Worker, bytes]]:
        return [(worker, token) for worker in self.broker.workers if not worker.orphaned_until for token in worker.held]

    @precondition(lambda self: self.held())
    @rule(which=some, size=sizes)
    def final(self, which: int, size: int) -> None:
        worker, token = self.held()[which % len(self.held())]
        assert self.broker.final(worker, token, join([bytes(size)]) if size else b"")

    @precondition(lambda self: self.held())
    @rule(which=some, what=st.sampled_from(ANSWERS), size=sizes, service=services)
    def answer(self, which: int, what: str, size: int, service: bytes) -> None:
        worker, token = self.held()[which % len(self.held())]
        body = join([bytes(size)]) if size else b""
        if what == "partial":
            assert self.broker.partial(worker, token, body)
        elif what == "fail":
            assert self.broker.fail(worker, token, "code", "text")
        elif what == "release":
            assert self.broker.release(worker, token)
        elif what == "give back":
            assert self.broker.give_back(worker, token, "it failed")
        elif what == "keep":
            self.broker.kept(worker, token)
        else:
            assert self.broker.forward(worker, token, service, body, b"")

    @precondition(lambda self: self.workers)
    @rule(index=some, which=some, final=st.booleans())
    def late(self, index: int, which: int, final: bool) -> None:
        """A worker answers a request that was dispatched to some worker at some time; the answer counts only if it holds that request."""
        worker = self.worker(index)
        tokens = [token for peer in self.known() for token in peer.given]
        token = tokens[which % len(tokens)] if tokens else b"undefined"
        if not worker.orphaned_until:
            holds = token in worker.held
            assert (self.broker.final if final else self.broker.partial)(worker, token, b"") == holds

    def known(self) -> "list[Crew]":
        return [peer for peer in {worker.session: None for worker in self.workers} if isinstance(peer, Crew)]

    # --- time

    @rule(seconds=st.sampled_from([1.0, 0.01, 1.0, 2.5, 2.5, 8.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule()
    def turn(self) -> None:
        self.broker.end_turn()

    @invariant()
    def holds(self) -> None:
        self.broker.check_invariants()
        for peer in self.peers:
            assert len(peer.requests) <= POLICY.max_outstanding

    def teardown(self) -> None:
        for peer in self.peers:
            peer.link.lost()
        self.world.wait(6.0)  # orphans are given up
        broker, notes = self.broker, self.world.notes
        assert not broker.services and not broker.workers and not broker.sessions and not broker.session_workers
        assert not broker.open_requests and not broker.held_bytes and not len(broker.timers)
        assert not notes.open, "a request was accepted and never ended"
        numbers = [number for number, _ in notes.outcomes]
        assert len(numbers) == len(set(numbers)), "a request ended twice"
        assert set(numbers) == {request.number for request in self.accepted}
        for request in self.accepted:
            assert request.state == DONE and request.outcome


TestBroker = BrokerMachine.TestCase
TestBroker.settings = settings(max_examples=120, stateful_step_count=50)


@pytest.mark.long
@pytest.mark.timeout(3600)  # a play that is cut short looks like one that went wrong
class TestBrokerLong(BrokerMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=20_000, stateful_step_count=80)
