"""Liveness: heartbeats on time, silence, workers without heartbeats while busy, and workers that return."""

import pytest

from polydomo.broker.observe import states
from polydomo.broker.policy import Policy
from polydomo.model.name_patterns import chosen
from polydomo.model.tuning import Tuning
from polydomo.stores.memory import MemoryBackend
from tests.broker.jobs.kept import keep_jobs
from tests.broker.rig import Peer, World


@pytest.fixture
def world() -> World:
    return World()


def lost(world: World) -> list[str]:
    return [why for _, state, why in world.notes.lefts if state == "lost"]


def keep_alive(peer: Peer, seconds: float, every: float = 2.5) -> None:
    """The peer beats; time passes."""
    done = 0.0
    while done < seconds:
        peer.world.wait(every)
        done += every
        peer.say_beat()


# --- our beats


def test_the_broker_beats_after_an_interval_without_output(world: World) -> None:
    worker = world.worker(silence=0)
    world.wait(10.2)
    assert len(worker.beats) == 4
    assert worker.beats == pytest.approx([2.5, 5.0, 7.5, 10.0], abs=0.11)
    assert all(b - a >= 2.5 for a, b in zip([0.0, *worker.beats], worker.beats, strict=False))


def test_a_dispatched_request_counts_as_a_heartbeat(world: World) -> None:
    worker, client = world.worker(silence=0), world.client()
    world.wait(2)
    client.ask()
    world.wait(2.4)
    assert worker.beats == [], '"Peers SHOULD NOT send HEARTBEAT commands while also sending other commands"'
    world.wait(0.2)
    assert len(worker.beats) == 1


def test_some_workers_are_never_beaten_to(world: World) -> None:
    worker = world.worker(beat=0, silence=0)
    world.wait(1000)
    assert worker.beats == [] and len(world.broker.timers) == 0


def test_input_does_not_delay_a_heartbeat_that_is_due(world: World) -> None:
    """Pending input is read before timers run; the first heartbeat of a busy worker sets its timer again."""
    worker, client = world.worker(), world.client()
    client.ask()
    world.broker.now += 2.6
    worker.say_beat()
    assert worker.me.beats_while_busy
    world.broker.run_timers()
    world.check()
    assert len(worker.beats) == 1


# --- silence


def test_a_silent_worker_is_lost_without_a_message(world: World) -> None:
    worker = world.worker()
    world.wait(7.45)
    assert worker.said == []
    world.wait(0.15)
    assert worker.said == ["expire", "gone"]
    assert lost(world) == ["no heartbeat for 7.5 s"] and world.broker.services == {}
    before = len(worker.beats)
    world.wait(100)
    assert len(worker.beats) == before, "it SHOULD stop sending it messages of any type"


def test_a_worker_that_beats_stays(world: World) -> None:
    worker = world.worker()
    keep_alive(worker, 100)
    assert worker.said == []
    world.wait(7.6)
    assert worker.said == ["expire", "gone"]


def test_a_healthy_worker_that_beats_from_a_poll_loop_is_never_late(world: World) -> None:
    """The Guide's, libmdp's, JeroMQ's and majortomo's workers are silent for up to two intervals, and a little more."""
    worker = world.worker()
    for _ in range(20):
        world.wait(5.1)
        assert states.of_worker(world.broker, worker.me).state == "ready"
        worker.say_beat()
    assert [row["state"] for row in world.broker.monitor.events if row["kind"] == "worker"] == ["ready"]
    world.wait(5.7)
    assert states.of_worker(world.broker, worker.me).state == "late"
    assert worker.said == []


def test_any_message_counts(world: World) -> None:
    worker, client = world.worker(), world.client()
    for _ in range(10):
        world.wait(5)
        client.ask()
        worker.part(b"x")
        worker.answer()
    assert worker.said == []
    world.wait(7.6)
    assert worker.said == ["expire", "gone"]


def test_silence_is_detected_on_time_in_every_history(world: World) -> None:
    """The look at a worker is never late: busy, then idle, then silent."""
    worker, client = world.worker(), world.client()
    client.ask()
    world.wait(20)
    worker.answer()
    since = world.now
    world.wait(7.45)
    assert worker.said == []
    world.wait(0.2)
    assert worker.said == ["expire", "gone"]
    assert world.now - since < 7.7


# --- while busy


def test_a_worker_that_does_not_beat_while_busy_finishes_a_long_job_and_it_runs_once(world: World) -> None:
    worker, other, client = world.worker(), world.worker(silence=0), world.client()
    world.wait(6)
    client.ask()
    world.wait(600)
    assert worker.said == [] and other.jobs == []
    worker.answer(b"at last")
    assert client.finals == [[b"at last"]]
    assert len(world.notes.attempts) == 1


def test_busy_timeout_ends_its_patience() -> None:
    world = World(tuning=Tuning(busy_timeout=30.0))
    worker, client = world.worker(), world.client()
    world.wait(5)
    client.ask()
    world.wait(29.9)
    assert worker.said == []
    world.wait(0.5)
    assert worker.said == ["expire", "gone"] and len(lost(world)) == 1
    assert world.notes.requeues == [1]


def test_a_busy_timeout_below_the_liveness_does_not_shorten_it() -> None:
    world = World(tuning=Tuning(busy_timeout=1.0))
    worker, client = world.worker(), world.client()
    client.ask()
    world.wait(7.4)
    assert worker.said == []
    world.wait(0.2)
    assert worker.said == ["expire", "gone"]


def test_once_it_has_beaten_while_busy_normal_liveness_holds(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask()
    keep_alive(worker, 20)
    assert worker.said == [] and worker.me.beats_while_busy
    world.wait(7.6)
    assert worker.said == ["expire", "gone"]
    fresh = world.worker()
    assert len(fresh.jobs) == 1
    assert not worker.answer(b"late")
    assert client.finals == []


def test_beats_busy_holds_for_later_requests_too(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask()
    keep_alive(worker, 5)
    worker.answer()
    client.ask()
    world.wait(7.6)
    assert worker.said == ["expire", "gone"]


def test_heartbeats_while_idle_do_not_shorten_the_busy_timeout(world: World) -> None:
    worker, client = world.worker(), world.client()
    keep_alive(worker, 20)
    client.ask()
    world.wait(100)
    assert worker.said == [] and not worker.me.beats_while_busy


def test_a_heartbeat_that_crossed_the_request_does_not_count_as_busy(world: World) -> None:
    """It was sent while the worker was idle; one that comes later was not."""
    worker, client = world.worker(), world.client()
    world.wait(2.5)
    client.ask()
    world.wait(0.05)
    worker.say_beat()
    world.wait(100)
    assert worker.said == [] and not worker.me.beats_while_busy
    worker.say_beat()
    world.wait(7.6)
    assert worker.said == ["expire", "gone"]


def test_a_partial_does_not_count_as_a_heartbeat(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask()
    worker.part(b"x")
    assert not worker.me.beats_while_busy
    world.wait(100)
    assert worker.said == []


# --- polling workers


def test_a_polling_worker_is_beaten_only_while_it_waits_and_must_answer_in_time(world: World) -> None:
    peer = Peer(world)
    peer.polls = True
    peer.register(b"echo", credit=1, auto_credit=False, beat=10, silence=10)
    world.wait(9.9)
    assert peer.beats == [] and peer.me.polling
    world.wait(0.2)
    assert len(peer.beats) == 1 and peer.me.credit == 0
    peer.me.polling = False  # its poll was answered, as its codec would say
    world.wait(9.8)
    assert peer.said == []
    world.wait(0.3)
    assert peer.said == ["expire", "gone"]


def test_a_polling_worker_whose_job_has_a_time_is_lost_with_it(world: World) -> None:
    peer, client = Peer(world), world.client()
    peer.polls = True
    peer.register(b"echo", credit=1, auto_credit=False, beat=10, silence=10)
    client.ask(run=60.0)
    peer.me.polling = False
    world.wait(59.9)
    assert peer.said == [] and client.failures == []
    world.wait(0.8)
    assert client.failures == ["timeout"] and peer.said == ["gone"]
    assert world.notes.requeues == []


# --- connections that come back


def test_an_orphan_gets_nothing_and_is_lost_in_time(world: World) -> None:
    peer, client = world.worker(credit=2), world.client()
    client.ask(b"held")
    world.broker.orphan_worker(peer.me, 1.0)
    world.check()
    peer.link.lost()
    world.check()
    client.ask(b"waits")
    assert peer.bodies() == [b"held"]
    world.wait(0.9)
    assert peer.said == []
    world.wait(0.2)
    assert peer.said == ["gone"] and lost(world) == ["the connection was lost, and the worker did not reconnect"]
    assert world.worker(credit=2).bodies() == [b"held", b"waits"]


def test_an_adopted_orphan_continues(world: World) -> None:
    old, new, client = world.worker(), Peer(world), world.client()
    client.ask()
    worker = old.me
    world.broker.orphan_worker(worker, 1.0)
    old.close()
    world.wait(0.5)
    world.broker.adopt_worker(worker, new)
    world.check()
    assert worker.session is new and new.worker_count == 1 and old.worker_count == 0
    world.wait(5)
    new.worker, new.jobs = worker, old.jobs
    assert new.answer(b"from the new connection")
    assert client.finals == [[b"from the new connection"]]
    new.close()
    assert lost(world) == ["connection closed"]


def test_orphaning_and_adopting_what_is_gone_does_nothing(world: World) -> None:
    peer, other = world.worker(), Peer(world)
    peer.leave()
    world.broker.orphan_worker(peer.me, 1.0)
    world.broker.adopt_worker(peer.me, other)
    world.check()
    assert other.worker_count == 0


# --- timers of codecs


class Alarmed(Peer):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.rung: list[tuple[object, float]] = []

    def on_timer(self, key: object) -> None:
        self.rung.append((key, round(self.world.now, 1)))


def test_later_rings_unless_the_connection_is_gone(world: World) -> None:
    stays, goes = Alarmed(world), Alarmed(world)
    for peer in (stays, goes):
        world.broker.set_timer(5.0, peer, "five")
        world.broker.set_timer(1.0, peer, "one")
    world.wait(2)
    goes.close()
    world.wait(10)
    assert stays.rung == [("one", 1.0), ("five", 5.0)] and goes.rung == [("one", 1.0)]
    assert world.broker.next_deadline() is None


# --- next_deadline


def test_next_deadline_covers_every_timer(world: World) -> None:
    assert world.broker.next_deadline() is None
    client = world.client()
    client.ask(deadline=3.0)
    due = world.broker.next_deadline()
    assert due is not None and 3.0 <= due - world.broker.now < 3.05
    client.ask(service=b"other")
    worker = world.worker(b"third")
    due = world.broker.next_deadline()
    assert due is not None and 2.5 <= due - world.broker.now < 2.55, "our first beat"
    worker.leave()
    client.close()
    assert world.broker.next_deadline() is None


def test_many_deadlines_each_on_time() -> None:
    world = World(Policy(max_outstanding=1000))
    client = world.client()
    for i in range(200):
        client.ask(deadline=0.37 * i + 0.013)
    for i in range(200):
        world.wait(0.37 * i + 0.013 - world.now - 0.0001)
        assert len(client.failures) == i, "never early"
        world.wait(0.0001 + 0.011 + 0.01 * (0.37 * i + 0.013))
        assert len(client.failures) >= i + 1, "late by a tick or a hundredth of the wait"
        if world.now > 0.37 * (i + 1) + 0.013:
            break
    world.wait(100)
    assert len(client.failures) == 200


def test_timers_work_if_the_owner_is_late(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask(b"x", service=b"other", deadline=1.0)
    world.broker.now += 500.0
    world.broker.was_suspended(500.0)
    world.broker.run_timers()
    world.check()
    assert client.failures == ["timeout"]
    assert worker.said == [], "messages that it sent meanwhile are not read yet: that time is not its silence"
    world.broker.run_timers()
    world.check()
    world.wait(7.6)
    assert worker.said == ["expire", "gone"]


def test_time_while_the_broker_was_stopped_does_not_count_as_silence(world: World) -> None:
    worker, client = world.worker(), world.client()
    client.ask(b"x")
    worker.say_beat()
    world.wait(1.0)
    worker.say_beat()  # it beats while it works: from now on its silence counts
    world.wait(1.0)
    world.broker.now += 60.0  # SIGSTOP, or a suspended machine
    world.broker.was_suspended(60.0)
    world.broker.run_timers()
    world.check()
    assert lost(world) == []
    worker.say_beat()  # what had come meanwhile is read now
    world.wait(7.0)
    assert lost(world) == []
    world.wait(1.0)
    assert len(lost(world)) == 1


def test_a_wall_clock_that_is_set_does_not_excuse_silence(world: World) -> None:
    """The deadlines of jobs follow the wall clock. One that is overdue after a step does not mean that the broker was stopped."""
    keep_jobs(world.broker, chosen(["kept"]), MemoryBackend())
    durable = world.broker.durable
    assert durable is not None
    silent, orphan = world.worker(), world.worker()
    world.wait(6.0)
    orphan.say_beat()
    world.broker.orphan_worker(orphan.me, world.broker.tuning.memo_reconnect)
    durable.wall_shift += 1e6
    world.wait(world.broker.tuning.memo_reconnect + 0.1)
    assert not orphan.me.alive and silent.me.alive
    durable.wall_shift += 1e6
    world.wait(1.0)
    assert not silent.me.alive


def test_nor_for_the_silence_of_what_is_in_the_catalog(world: World) -> None:
    broker = world.broker
    assert broker.directory.register(world.client(), "camera", "192.0.2.1", {"name": "camera"}, 1.0) == ""
    broker.now += 60.0
    broker.was_suspended(60.0)
    broker.run_timers()
    assert broker.directory.lookup("camera"), "its beats wait to be read"
    assert broker.directory.heartbeat("camera", "192.0.2.1")
    world.wait(2.0)
    assert broker.directory.lookup("camera")
    world.wait(1.5)
    assert not broker.directory.lookup("camera"), "it is really silent"
    world.check()


def test_a_worker_that_may_not_be_silent_any_longer_is_lost_in_time(world: World) -> None:
    """Busy, it was allowed ``busy_timeout``; its request is taken back without a message from it, and its silence counts again."""
    worker, client = world.worker(beat=0), world.client()
    worker.can_cancel = True
    request = client.ask()
    assert request is not None
    world.wait(5.8)
    world.broker.cancel(request, "the client does not want it any more")
    assert not worker.me.held
    world.wait(1.8)
    assert lost(world) == ["no heartbeat for 7.5 s"]
