"""Memoised services under trouble, in the broker's core alone: peers are scripted, time is a number, one seed decides everything.

Few distinct requests are made again and again, by clients that leave and give up, to workers that fail, send partial replies, leave and are
slow, with a store that loses replies and refuses to write. Checked at every step:

| rule | what must hold |
|---|---|
| `invariant` | every collection of the broker agrees with every other |
| `one-outcome` | a request has one outcome |
| `reply` | a reply is one that a worker gave to this service and body, and the kept one if there is one |
| `once` | identical requests do not run at the same time, and what the store has does not run |
| `rest` | when everything has healed, every request ends, and nothing is left in the memoiser |
| `journal` | every hit, miss and joined request has its row, and the audit finds nothing |
"""

from collections import Counter
from random import Random

from polydomo.broker.broker import Broker, Entropy
from polydomo.broker.memoising import Memoiser
from polydomo.broker.policy import Policy
from polydomo.journal import schema
from polydomo.journal.audit import audit
from polydomo.journal.chunk import Run
from polydomo.journal.levels import Levels
from polydomo.journal.recorder import JournalRecorder
from polydomo.protocols.detached import DetachedLink
from polydomo.protocols.memo_values import MemoValues, StoreFault
from polydomo.protocols.model import Worker
from polydomo.protocols.request import DONE, Request
from polydomo.protocols.session import Session
from polydomo.protocols.tuning import Tuning
from polydomo.wire.closing import CloseCause, CloseReason
from polydomo.wire.frames import Body, join, split
from polydomo.wire.link import Handler, Hub

SERVICES = (b"memo.a", b"memo.b", b"plain")
BODIES = 4
STEPS = 400
HEALING = 300  # steps within which everything must end
START = 1000.0

Key = tuple[bytes, bytes]  # service, body


class Breach(AssertionError):
    """A rule does not hold."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Dice(Entropy):
    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def take(self, size: int) -> bytes:
        return self._rng.randbytes(size)


class Store(MemoValues):
    """A store that may be broken for a while, and that forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    def reply(self, key: bytes) -> bytes | None:
        if self.broken:
            raise StoreFault("broken")
        return super().reply(key)

    def put_reply(self, key: bytes, service: str, version: str, body: bytes) -> None:
        if self.broken:
            raise StoreFault("broken")
        super().put_reply(key, service, version, body)


class Peer(Session):
    """A client, or a worker of one service."""

    protocol = "scripted"

    def __init__(self, world: "World") -> None:
        super().__init__(world.broker, DetachedLink(Hub(), Handler(), "scripted"))
        self.world = world
        self.worker: Worker | None = None
        self.jobs: list[tuple[Request, Key]] = []
        world.broker.session_opened(self)

    def send_final(self, request: Request, body: Body) -> None:
        self.world.answered(request, bytes(body))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self.world.ended(request)

    def deliver(self, worker: Worker, request: Request) -> None:
        key = request.service.name, bytes(request.body)
        self.world.runs(request, key)
        self.jobs.append((request, key))

    def send_heartbeat(self, worker: Worker) -> None: ...
    def on_worker_expired(self, worker: Worker) -> None: ...
    def dismiss(self, worker: Worker) -> None: ...
    def on_worker_gone(self, worker: Worker) -> None: ...


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.recorder = JournalRecorder(Run("sim", 1, 1.7e9), Levels(schema.MESSAGES), max_chunks=1_000_000)
        policy = Policy(queue_expiry=20.0)
        self.broker = Broker(START, Dice(self.rng), policy, Tuning(), self.recorder)
        self.recorder.attach(self.broker)
        self.recorder.begin("started")
        self.store = Store()
        self.memo = Memoiser(self.broker, self.store, ["memo.*"], {})
        self.broker.memoiser = self.memo
        self.asked: list[Request] = []  # by clients
        self.outcomes: Counter[Request] = Counter()
        self.given: dict[Key, set[bytes]] = {}  # replies that workers gave
        self.kept: dict[Key, bytes] = {}  # replies that the store must have
        self.count = 0
        self.healing = False
        self.clients = [Peer(self) for _ in range(4)]
        self.workers = [self._new_worker(number) for number in range(5)]

    def _new_worker(self, number: int) -> Peer:
        peer = Peer(self)
        peer.worker = self.broker.register_worker(peer, [SERVICES[number % 3]], None, 1, True, 0.0, 0.0)
        return peer

    # --- what is checked

    def runs(self, request: Request, key: Key) -> None:
        if key[0] == b"plain":
            return
        if key in self.kept and not self.store.broken:
            raise Breach("once", f"{key} runs, and the store has its reply")
        for worker in self.workers:
            for job, its_key in worker.jobs:
                if job is not request and job.state != DONE and its_key == key:
                    raise Breach("once", f"{key} runs twice at a time")

    def answered(self, request: Request, body: bytes) -> None:
        key = request.service.name, bytes(request.ref) if isinstance(request.ref, bytes) else b""
        if body not in self.given.get(key, set()):
            raise Breach("reply", f"{body!r} to {key}, which no worker said")
        if key in self.kept and self.kept[key] != body:
            raise Breach("reply", f"{body!r} to {key}, and the store has another one")
        self.ended(request)

    def ended(self, request: Request) -> None:
        self.outcomes[request] += 1
        if self.outcomes[request] > 1:
            raise Breach("one-outcome", f"request {request.number} ended twice")

    # --- what happens

    def ask(self) -> None:
        rng = self.rng
        client = rng.choice(self.clients)
        service = rng.choice(SERVICES)
        body = join([b"body %d" % rng.randrange(BODIES)])
        deadline = self.broker.now + rng.random() * 5 if rng.random() < 0.2 else 0.0
        request = self.broker.request(client, service, body, body, deadline=deadline)
        if request is not None:
            self.asked.append(request)

    def work(self) -> None:
        busy = [peer for peer in self.workers if peer.jobs and peer.worker is not None and peer.worker.alive]
        if not busy:
            return
        peer = self.rng.choice(busy)
        assert peer.worker is not None
        request, key = peer.jobs.pop(0)
        luck = 1.0 if self.healing else self.rng.random()
        if luck < 0.15:
            self.broker.fail(peer.worker, request.token, "oops", "it went wrong")
            return
        self.count += 1
        reply = join([key[0], split(key[1])[0], b"%d" % self.count])
        whole = reply
        if luck < 0.35:  # the client takes no partial replies: they come with the final one
            self.broker.partial(peer.worker, request.token, join([b"part"]))
            whole = join([b"part", *split(reply)])
        self.given.setdefault(key, set()).add(whole)
        if key[0] != b"plain" and request.state != DONE and not self.store.broken:
            self.kept[key] = whole
        self.broker.final(peer.worker, request.token, reply)

    def leave(self) -> None:
        if self.rng.random() < 0.5:
            at = self.rng.randrange(len(self.clients))
            client = self.clients[at]
            self.broker.session_closed(client, CloseReason(CloseCause.PEER_CLOSED, "left"))
            client.disconnected = True
            self.clients[at] = Peer(self)
        else:
            at = self.rng.randrange(len(self.workers))
            worker = self.workers[at]
            worker.jobs.clear()
            self.broker.session_closed(worker, CloseReason(CloseCause.CONNECTION_LOST, "lost"))
            worker.disconnected = True
            self.workers[at] = self._new_worker(at)

    def forget(self) -> None:
        """The store breaks, works again, or drops what it has."""
        if self.rng.random() < 0.3:
            self.store.remove_replies("memo.a")
            self.kept = {key: reply for key, reply in self.kept.items() if key[0] != b"memo.a"}
        else:
            self.store.broken = not self.store.broken
        if self.store.broken:
            self.kept.clear()
            self.store.remove_replies("memo.a")
            self.store.remove_replies("memo.b")

    def wait(self) -> None:
        self.broker.now += self.rng.random()

    def step(self) -> None:
        rng = self.rng
        if self.healing:
            self.work()
            self.wait()
        else:
            rng.choices((self.ask, self.work, self.wait, self.leave, self.forget), (40, 35, 15, 6, 4))[0]()
        self.broker.run_timers()
        self.broker.end_turn()
        try:
            self.broker.check_invariants()
        except AssertionError as error:
            raise Breach("invariant", str(error)) from error

    def run(self) -> "World":
        for _ in range(STEPS):
            self.step()
        self.healing = True
        self.store.broken = False
        for _ in range(HEALING):
            self.step()
        left = [
            request.number for request in self.asked if not self.outcomes[request] and not request.session.disconnected
        ]
        if left:
            raise Breach("rest", f"requests {left} have no outcome")
        if self.broker.open_requests or self.memo.open or self.memo.worker.held:
            raise Breach("rest", "the broker or the memoiser still holds requests")
        self._read_journal()
        return self

    def _read_journal(self) -> None:
        rows = self.recorder.rows()
        made = [row["outcome"] for row in rows if row.get("event") == schema.MEMO]
        memo = self.memo
        counted = [made.count(how) for how in ("hit", "miss", "joined")]
        if counted != [memo.hits, memo.misses, memo.joined]:
            raise Breach("journal", f"rows {counted}, counted {[memo.hits, memo.misses, memo.joined]}")
        found = [str(breach) for breach in audit(rows)]
        if found:
            raise Breach("journal", found[0])
