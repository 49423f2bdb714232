"""What is tried with every pair of client and worker. A case asserts what must hold, and returns in a few words what the client or the
worker saw: those words make the table of docs/protocols/matrix.md."""

from collections.abc import Callable

from polydomo.limits import MIB
from polydomo.model.outcomes import CANCELLED, FAILED, GAVE_UP, NO_WORKER, OK, TIMEOUT
from polydomo.protocols.dcp.ends import DcpWorkerEnd
from polydomo.protocols.ends import Frames
from polydomo.stores.memory import MemoryBackend
from tests.across.kinds import ClientKind, WorkerKind
from tests.across.world import BUSY_TIMEOUT, Client, Worker, World

SERVICE = b"work"
IDLE_SILENCE = 15.0  # seconds that an idle worker may be silent: eMQP 5 beats of 3 s, others less

Case = Callable[[ClientKind, WorkerKind], str]


def carried(body: Frames, single: bool) -> Frames:
    """A body as a peer with one-frame bodies gets or sends it."""
    return [b"".join(body)] if single else body


def there(client: ClientKind, worker: WorkerKind, body: Frames) -> Frames:
    return carried(body, client.single or worker.single)


def start(client: ClientKind, worker: WorkerKind) -> tuple[World, Client, Worker]:
    world = World()
    return world, Client(world, client.end), Worker(world, worker.end)


def works(world: World, client: ClientKind, hand: Worker) -> None:
    """The next client is served after any case."""
    after = Client(world, client.end)
    after.ask(SERVICE, [b"again"])
    job = hand.take()
    assert job.body == [b"again"]
    hand.final(job, [b"and again"])
    assert after.wait_for_final() == [b"and again"]


def call(client: ClientKind, worker: WorkerKind) -> str:
    """One request and one reply; then the worker serves the next request."""
    world, asking, hand = start(client, worker)
    asking.ask(SERVICE, [b"ping"])
    job = hand.take()
    assert (job.service, job.body) == (SERVICE, [b"ping"])  # nothing of the client's envelope is in it
    hand.final(job, [b"pong"])
    assert asking.wait_for_final() == [b"pong"]
    assert len(asking.heard) == 1
    assert world.notes.outcomes == [OK]
    works(world, client, hand)
    return "answered"


def partials(client: ClientKind, worker: WorkerKind) -> str:
    """Two partials and the final."""
    world, asking, hand = start(client, worker)
    asking.ask(SERVICE, [b"go"])
    job = hand.take()
    hand.end.partial(job, [b"one"])
    world.settle()
    hand.end.partial(job, [b"two", b"2"])
    world.settle()
    before = asking.heard
    hand.final(job, [b"end"])
    asking.wait_for_final()
    if client.partials and worker.partials:
        assert before == [("partial", [b"one"]), ("partial", [b"two", b"2"])]
        assert asking.heard == [("partial", [b"one"]), ("partial", [b"two", b"2"]), ("final", [b"end"])]
        return "one by one"
    assert before == []
    assert asking.heard == [("final", there(client, worker, [b"one", b"two", b"2", b"end"]))]
    one = ", in one frame" if client.single or worker.single else ""
    return ("joined by the broker" if worker.partials else "joined by the worker") + one


def stream_end(client: ClientKind, worker: WorkerKind) -> str:
    """Two partials, and a final without a body: a generator that returns nothing."""
    world, asking, hand = start(client, worker)
    asking.ask(SERVICE, [b"go"])
    job = hand.take()
    hand.end.partial(job, [b"one"])
    world.settle()
    hand.end.partial(job, [b"two", b"2"])
    world.settle()
    hand.final(job, [])
    last = asking.wait_for_final()
    if client.partials and worker.partials:
        assert asking.heard[:2] == [("partial", [b"one"]), ("partial", [b"two", b"2"])]
        assert len(asking.heard) == 3 and last in ([], [b""])
        return "an empty final"
    assert asking.heard == [("final", there(client, worker, [b"one", b"two", b"2"]))]
    return "the partials, and nothing more"


def timeout(client: ClientKind, worker: WorkerKind) -> str:
    """The worker takes longer than the client waits: its late reply is dropped, and it serves the next client."""
    world, asking, hand = start(client, worker)
    asking.ask(SERVICE, [b"slow"], timeout=5.0)
    job = hand.take()
    if client.timed:
        world.wait(6.0)
        assert world.notes.outcomes == [TIMEOUT]
    else:
        asking.line.close()  # no word for it: whoever gives up goes
        world.settle()
        assert world.notes.outcomes == [CANCELLED]
    hand.final(job, [b"late"])
    world.wait(5.0)
    failures = [("failure", [TIMEOUT.encode()])] if client.timed and client.gets_failures else []
    assert asking.heard == failures
    hand.look()
    world.settle()
    works(world, client, hand)
    return "ended by its own timeout" if client.timed else "ended when the client left"


def expiry(client: ClientKind, worker: WorkerKind) -> str:
    """No worker offers the service in time. A worker that registers later does not get the request."""
    world = World()
    asking = Client(world, client.end)
    asking.ask(SERVICE, [b"anybody"], timeout=20.0)
    world.wait(61.0)
    assert world.notes.outcomes in ([NO_WORKER], [TIMEOUT])
    hand = Worker(world, worker.end)
    world.wait(5.0)
    assert hand.idle()
    failures = [("failure", [world.notes.outcomes[0].encode()])] if client.gets_failures else []
    assert asking.heard == failures
    works(world, client, hand)
    return "failure: no-worker" if failures else "no answer"


def death(client: ClientKind, worker: WorkerKind) -> str:
    """The connection of the worker that holds the request breaks: another worker gets it, and the client one reply."""
    world, asking, first = start(client, worker)
    second = first if worker.alone else Worker(world, worker.end)
    asking.ask(SERVICE, [b"precious"])
    assert first.take().body == [b"precious"] and second.idle()
    first.line.close()
    world.wait(2.0)  # a memo01 worker has a second to appear again
    if worker.alone:
        second = Worker(world, worker.end)
    job = second.take()
    assert job.body == [b"precious"]
    second.final(job, [b"saved"])
    assert asking.wait_for_final() == [b"saved"]
    world.wait(5.0)
    assert len(asking.heard) == 1 and world.notes.outcomes == [OK]
    works(world, client, second)
    return "requeued"


def silence(client: ClientKind, worker: WorkerKind) -> str:
    """The worker that holds the request hangs, its connection open: another worker gets it, as soon as if the first had been idle where the
    document demands heartbeats of a busy worker, and the late reply is dropped."""
    world, asking, first = start(client, worker)
    second = first if worker.alone else Worker(world, worker.end)
    asking.ask(SERVICE, [b"precious"], timeout=BUSY_TIMEOUT + 10.0)
    stuck = first.take()
    first.line.frozen = True
    began = world.broker.now
    if worker.alone:
        world.wait(BUSY_TIMEOUT, lambda: not world.broker.workers)
        second = Worker(world, worker.end)
    world.wait(BUSY_TIMEOUT + 5.0, lambda: not second.idle())
    waited = world.broker.now - began
    if client.timed and worker.polls:
        # "a job that passes it has ended, silently for the client, and is not requeued"
        assert second.idle()
        world.wait(10.0)
        assert asking.heard == [] and world.notes.outcomes == [TIMEOUT]
        words = "ended by its own timeout"
    else:
        job = second.take()
        assert job.body == [b"precious"]
        second.final(job, [b"saved"])
        assert asking.wait_for_final() == [b"saved"]
        words = "requeued, as if idle" if worker.strict else "requeued after its busy timeout"
        assert waited <= IDLE_SILENCE + 1.0 if worker.strict else IDLE_SILENCE + 1.0 < waited <= BUSY_TIMEOUT + 1.0
    first.line.frozen = False
    first.end.final(stuck, [b"late"])
    world.wait(5.0)
    assert [body for body in asking.finals if body == [b"late"]] == []
    assert len(asking.heard) == (1 if words.startswith("requeued") else 0)
    first.line.close()
    world.wait(2.0)
    works(world, client, second)
    return words


def empty(client: ClientKind, worker: WorkerKind) -> str:
    """A body without frames, in both directions."""
    _, asking, hand = start(client, worker)
    asking.ask(SERVICE, [])
    job = hand.take()
    assert job.body in ([], [b""])
    hand.final(job, [])
    answer = asking.wait_for_final()
    assert answer in ([], [b""])
    names = ("no frames", "one empty frame")
    there, back = names[len(job.body)], names[len(answer)]
    return there if there == back else f"{there}, and back {back}"


def frames(client: ClientKind, worker: WorkerKind) -> str:
    """A body of many frames, some of them empty or long, in both directions."""
    world, asking, hand = start(client, worker)
    if worker.shown_by_reply:
        first = Client(world, client.end)
        first.ask(SERVICE, [b"which dialect?"])
        hand.final(hand.take(), [b"this one"])
        assert first.wait_for_final() == [b"this one"]
    body = [b"a", b"", b"c" * 300, b"", *(b"%d" % number for number in range(100)), b""]
    asking.ask(SERVICE, body)
    job = hand.take()
    assert job.body == there(client, worker, body)
    hand.final(job, body[::-1])
    assert asking.wait_for_final() == there(client, worker, body[::-1])
    return "joined in one" if client.single or worker.single else "unchanged"


def large(client: ClientKind, worker: WorkerKind) -> str:
    """A request and a reply of 1 MiB each."""
    _, asking, hand = start(client, worker)
    body = bytes(range(256)) * (MIB // 256)
    asking.ask(SERVICE, [body])
    job = hand.take()
    assert job.body == [body]
    hand.final(job, [body[::-1]])
    assert asking.wait_for_final() == [body[::-1]]
    return "unchanged"


def failure(client: ClientKind, worker: WorkerKind) -> str:
    """The worker's function fails. MDX has a failure message. With other protocols the worker leaves and registers again,
    which counts as an attempt."""
    world, asking, hand = start(client, worker)
    asking.ask(SERVICE, [b"bad"])
    attempts = 0
    while not hand.idle():
        attempts += 1
        assert attempts <= 3
        hand.fail(hand.take(), "broken", "it does not work")
        world.wait(2.0)
    assert attempts == (1 if worker.reports_failures else 3)
    assert world.notes.outcomes == [FAILED if worker.reports_failures else GAVE_UP]
    code = "broken" if worker.reports_failures else GAVE_UP
    assert asking.heard == ([("failure", [code.encode()])] if client.gets_failures else [])
    works(world, client, hand)
    return (f"failure: {code}" if client.gets_failures else "no answer") + (
        "" if worker.reports_failures else ", after 3 attempts"
    )


def chain(client: ClientKind, worker: WorkerKind) -> str:
    """A DCP worker forwards the request to the service of this worker, whose reply goes to the client."""
    world, asking, hand = start(client, worker)
    middle = Worker(world, DcpWorkerEnd, b"front")
    asking.ask(b"front", [b"raw"])
    first = middle.take()
    assert first.body == [b"raw"]
    assert isinstance(middle.end, DcpWorkerEnd)
    middle.end.forward(first, SERVICE, [b"half done"])
    world.settle()
    job = hand.take()
    assert job.body == [b"half done"]
    hand.final(job, [b"done"])
    assert asking.wait_for_final() == [b"done"]
    assert world.notes.outcomes == [OK]
    works(world, client, hand)
    return "answered"


def durable(client: ClientKind, worker: WorkerKind) -> str:
    """The service is durable, and the broker crashes while a worker holds the request. The next broker gives it to a worker again;
    the client repeats the request and gets the stored result."""
    disk = MemoryBackend()
    crashed = World(disk)
    asking, first = Client(crashed, client.end), Worker(crashed, worker.end)
    asking.ask(SERVICE, [b"precious"])
    assert first.take().body == [b"precious"]
    world = World(disk)
    hand = Worker(world, worker.end)
    world.wait(5.0)
    job = hand.take()
    assert job.body == [b"precious"]
    hand.final(job, [b"done"])
    world.wait(5.0)
    again = Client(world, client.end)
    again.ask(SERVICE, [b"precious"])
    assert hand.idle()
    assert again.wait_for_final() == [b"done"]
    return "run again, and the repeat gets the stored result"


CASES: dict[str, tuple[str, Case]] = {
    "call": ("A call", call),
    "partials": ("Partials", partials),
    "stream end": ("A stream that ends without a last body", stream_end),
    "timeout": ("A reply that comes too late", timeout),
    "expiry": ("No worker offers the service in time", expiry),
    "death": ("The worker's connection breaks", death),
    "silence": ("The worker hangs", silence),
    "empty": ("An empty body", empty),
    "frames": ("A body of many frames", frames),
    "large": ("A body of 1 MiB", large),
    "failure": ("The worker's function fails", failure),
    "durable": ("The broker crashes, and the service is durable", durable),
    "chain": ("Through a DCP worker that passes it on", chain),
}
