"""Simulates shared runs with faults, in the broker's core alone: memoised services, and requests with an idempotency key. Peers are
scripted, time is simulated, and the seed determines everything.

Clients repeat a few distinct requests; they disconnect, cancel and time out. Workers fail, send partial replies, disconnect and are slow.
The store loses replies and rejects writes. Some clients accept partial replies, some do not. There are only a few keys, which are sometimes
used with another body. Checked at every step:

| rule | what must hold |
|---|---|
| `invariant` | all collections of the broker are consistent |
| `one-outcome` | a request has one outcome |
| `reply` | a worker sent this reply for this service and body; if a reply is stored, it is the stored one |
| `once` | identical requests, and requests with one key, do not run at the same time; a request with a stored reply does not run |
| `key` | a request with a key gets the reply to its own body; it is rejected only if a request with that key and another body is open |
| `unwanted` | a keyed run without clients continues only after a lost connection, and is cancelled in time |
| `rest` | after the faults have stopped, every request ends, and no shared run is left |
| `journal` | every hit, miss and joined request has its row, and the audit finds nothing |
"""

from collections import Counter
from random import Random

from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.policy import Policy
from polydomo.broker.requests import queues
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.journal import schema
from polydomo.journal.levels import Levels
from polydomo.journal.reading.audit import audit
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.limits import KEYED_LINGER
from polydomo.model.detached_link import DetachedLink
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.outcomes import KEY_REUSED
from polydomo.model.records import DONE, Request, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.request_options import options_of
from polydomo.model.session import ProtocolSession
from polydomo.model.tuning import Tuning
from polydomo.protocols.memo.store_api import MemoValues, StoreFault
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import Body, join, split
from polydomo.wire.link import Hub, LinkHandler
from sim.suspended import excuse_suspension

SERVICES = (b"memo.a", b"memo.b", b"plain", b"keyed")
BODIES = 4
KEYS = 3
STEPS = 400
HEALING = 300  # steps within which everything must end
START = 1000.0

Key = tuple[bytes, bytes]  # service, body


def key_of(body: bytes) -> bytes:
    """The key of a keyed request, which its body names."""
    words = split(body)[0].split()
    return words[1] if words[0] == b"key" else b""


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
    """A store that can fail for a while, and that loses entries."""

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


class Peer(ProtocolSession):
    """A client, or a worker of one service."""

    protocol = "scripted"

    def __init__(self, world: "World") -> None:
        super().__init__(world.broker, DetachedLink(Hub(), LinkHandler(), "scripted"))
        self.world = world
        self.worker: Worker | None = None
        self.jobs: list[tuple[Request, Key]] = []
        self.parts: dict[Request, list[bytes]] = {}  # partial replies, by request
        self.expects_conflict = False  # its request has a key that is in use with another body
        world.broker.session_opened(self)

    def send_partial(self, request: Request, body: Body) -> None:
        self.parts.setdefault(request, []).extend(split(body))

    def send_final(self, request: Request, body: Body) -> None:
        self.world.answered(request, join([*self.parts.pop(request, []), *split(body)]))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self.parts.pop(request, None)
        self.world.failed(request, code)

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
        self.memo = Memoiser(self.broker, self.broker, self.store, chosen(["memo.*"]), PatternMap({}))
        self.broker.use_memo(self.memo)
        self.asked: list[Request] = []  # by clients
        self.outcomes: Counter[Request] = Counter()
        self.given: dict[Key, set[bytes]] = {}  # replies that workers sent
        self.kept: dict[Key, bytes] = {}  # replies that the store must have
        self.begun: dict[bytes, list[bytes]] = {}  # partial replies of attempts that go on, by token
        self.count = 0
        self.healing = False
        self.clients = [self._new_client() for _ in range(4)]
        self.workers = [self._new_worker(number) for number in range(8)]

    def _new_client(self) -> Peer:
        peer = Peer(self)
        peer.takes_partials = self.rng.random() < 0.5
        return peer

    def _new_worker(self, number: int) -> Peer:
        peer = Peer(self)
        worker = self.broker.register_worker(peer, [SERVICES[number % 4]], None, WorkerTerms(1, 1))
        assert isinstance(worker, Worker)
        peer.worker = worker
        return peer

    # --- what is checked

    def runs(self, request: Request, key: Key) -> None:
        if key[0] == b"plain":
            return
        if key[0] == b"keyed":
            for worker in self.workers:
                for job, its_key in worker.jobs:
                    same = its_key[0] == b"keyed" and key_of(its_key[1]) == key_of(key[1])
                    if same and job is not request and job.state != DONE:
                        raise Breach("once", f"{key} runs twice at a time")
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
            raise Breach("reply", f"{body!r} to {key}, which no worker replied")
        if key in self.kept and self.kept[key] != body:
            raise Breach("reply", f"{body!r} to {key}, and the store has another one")
        self.ended(request)

    def failed(self, request: Request, code: str) -> None:
        client = request.session
        assert isinstance(client, Peer)
        if (code == KEY_REUSED) != client.expects_conflict:
            raise Breach("key", f"request {request.number} ended with {code}")
        self.ended(request)

    def check_unwanted(self) -> None:
        keyed = self.broker.keyed
        for run in keyed.runs.open.values() if keyed is not None else ():
            if not run.waiting and self.broker.now > run.lingers_until + 1.0:
                raise Breach("unwanted", f"a run under the key {run.key!r} continues without a client")

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
        if service == b"keyed":
            self.ask_keyed(client, deadline)
            return
        request = self.broker.request(client, service, body, body, deadline=deadline)
        if request is not None:
            self.asked.append(request)

    def ask_keyed(self, client: Peer, deadline: float) -> None:
        rng = self.rng
        key = b"%d" % rng.randrange(KEYS)
        body = join([b"key %b %d" % (key, rng.random() < 0.1)])
        expected = self.open_body(key)
        client.expects_conflict = expected not in (b"", body)
        request = self.broker.request(client, b"keyed", body, body, deadline, options_of(False, key))
        client.expects_conflict = False
        if request is not None:
            self.asked.append(request)

    def open_body(self, key: bytes) -> bytes:
        """The body of the open requests under a key, as the clients know it, or of a run that may be joined again."""
        for request in self.asked:
            body = request.ref
            if request.state != DONE and isinstance(body, bytes) and key_of(body) == key:
                return body
        for peer in self.workers:
            for job, its_key in peer.jobs:
                if its_key[0] == b"keyed" and job.state != DONE and key_of(its_key[1]) == key:
                    return its_key[1]
        service = self.broker.services.get(b"keyed")
        for request in queues.waiting(service) if service is not None else ():  # its worker was lost
            if key_of(bytes(request.body)) == key:
                return bytes(request.body)
        return b""

    def cancel(self) -> None:
        """A client cancels a request; it gets no reply."""
        mine = [request for request in self.asked if request.state != DONE and not request.session.disconnected]
        if mine:
            request = self.rng.choice(mine)
            self.broker.cancel(request, "given up")
            self.ended(request)

    def work(self) -> None:
        busy = [peer for peer in self.workers if peer.jobs and peer.worker is not None and peer.worker.alive]
        if not busy:
            return
        peer = self.rng.choice(busy)
        assert peer.worker is not None
        luck = 1.0 if self.healing else self.rng.random()
        if luck > 0.7 and not self.healing:  # a partial reply, and the rest later: requests join in between
            request, _ = peer.jobs[0]
            self.count += 1
            part = b"part %d" % self.count
            if self.broker.partial(peer.worker, request.token, join([part])):
                self.begun.setdefault(request.token, []).append(part)
            return
        request, key = peer.jobs.pop(0)
        if luck < 0.15:
            self.begun.pop(request.token, None)
            self.broker.fail(peer.worker, request.token, "oops", "it went wrong")
            return
        self.count += 1
        reply = join([key[0], split(key[1])[0], b"%d" % self.count])
        whole = reply
        if luck < 0.35:  # a client that takes no partial replies gets them with the final one
            parts = self.begun.pop(request.token, [])
            self.broker.partial(peer.worker, request.token, join([b"part"]))
            whole = join([*parts, b"part", *split(reply)])
        elif request.token in self.begun:
            whole = join([*self.begun.pop(request.token), *split(reply)])
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
            self.clients[at] = self._new_client()
        else:
            at = self.rng.randrange(len(self.workers))
            worker = self.workers[at]
            worker.jobs.clear()
            self.broker.session_closed(worker, CloseReason(CloseCause.CONNECTION_LOST, "lost"))
            worker.disconnected = True
            self.workers[at] = self._new_worker(at)

    def forget(self) -> None:
        """The store fails, works again, or loses its entries."""
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
        self.broker.now += self.rng.random() if self.rng.random() < 0.95 else 1.5 * KEYED_LINGER

    def step(self) -> None:
        rng = self.rng
        if self.healing:
            self.work()
            self.wait()
        else:
            actions = (self.ask, self.work, self.wait, self.leave, self.forget, self.cancel)
            rng.choices(actions, (40, 35, 15, 6, 4, 3))[0]()
        excuse_suspension(self.broker)
        self.broker.run_timers()
        self.broker.end_turn()
        try:
            self.broker.check_invariants()
        except AssertionError as error:
            raise Breach("invariant", str(error)) from error
        self.check_unwanted()

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
        keyed = self.broker.keyed
        for runs in (self.memo.runs, *([keyed.runs] if keyed is not None else [])):
            if self.broker.open_requests or runs.open or runs.worker.held:
                raise Breach("rest", f"the broker or its {runs.protocol} requests are not at rest")
        self._read_journal()
        return self

    def _read_journal(self) -> None:
        rows = self.recorder.rows()
        made = [row["outcome"] for row in rows if row.get("event") == schema.MEMO]
        memo = self.memo
        counted = [made.count(how) for how in ("hit", "miss", "joined")]
        if counted != [memo.hits, memo.misses, memo.joined]:
            raise Breach("journal", f"rows {counted}, counted {[memo.hits, memo.misses, memo.joined]}")
        keyed = self.broker.keyed
        made = [row["outcome"] for row in rows if row.get("event") == schema.KEYED]
        if keyed is not None and [made.count("first"), made.count("joined")] != [keyed.started, keyed.joined]:
            raise Breach("journal", f"rows {Counter(made)}, counted {[keyed.started, keyed.joined]}")
        found = [str(breach) for breach in audit(rows)]
        if found:
            raise Breach("journal", found[0])
