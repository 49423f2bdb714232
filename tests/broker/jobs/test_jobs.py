"""The life of a job: stored before it is reported, retries, dead letters, keys, repeats, leadership."""

import math
from datetime import datetime

import pytest

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.jobs import EXPIRED
from polydomo.broker.jobs.ops import (
    FULL,
    NOT_LEADER,
    UNAVAILABLE,
    Finish,
    Fire,
    Get,
    Insert,
    PutPause,
    Replace,
    ScheduleRow,
    Select,
    StoreError,
)
from polydomo.broker.jobs.policy import JobListener
from polydomo.limits import COST_JOB, STORE_AGAIN, STORE_AGAIN_MOST
from polydomo.model.outcomes import FAILED, GAVE_UP, NO_WORKER, OK, REFUSED, TOO_LARGE
from polydomo.model.retry_policy import Backoff
from tests.broker.jobs.machine import World


class Ends(JobListener):
    """What the outcomes of jobs have as their mark: no two may be equal."""

    def __init__(self) -> None:
        self.once: list[str] = []

    def job_event(self, event: JobEvent) -> None:
        if event.what in states.ENDED:
            self.once.append(event.once)


@pytest.fixture
def world() -> World:
    world = World()
    world.lead()
    world.room[b"work"] = 2
    return world


def stored(world: World, id: str) -> tuple[str, str, int]:
    op = Get(id)
    world.backend.read(op)
    assert op.job is not None
    return op.job.state, op.job.outcome, op.job.attempts


def test_nothing_is_acknowledged_or_started_before_it_is_on_disk(world: World) -> None:
    world.submit("A")
    assert (world.heard(), world.started) == ([], [])
    world.store.sync()
    assert world.heard() == [("A", states.OPEN)] and [job.id for job in world.started] == ["A"]
    world.jobs.wait("A", world.hear)
    world.end()
    assert world.heard() == []
    world.store.sync()
    assert world.heard() == [("A", states.DONE)] and stored(world, "A") == (states.DONE, "ok", 1)
    assert not world.jobs.open
    world.jobs.check()


def test_a_restart_before_the_disk_forgets_the_job_and_after_it_runs_it(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.submit("B")
    again = World(world.backend)
    again.room[b"work"] = 9
    again.lead()
    assert [job.id for job in again.started] == ["A"]


def test_a_restart_before_the_outcome_is_on_disk_runs_it_again(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.end()
    again = World(world.backend)
    again.room[b"work"] = 1
    again.lead()
    again.end()
    again.store.sync()
    assert stored(again, "A")[0] == states.DONE
    world.store.sync()  # the first broker wakes up: it is fenced
    assert world.heard() == [("A", states.OPEN)]
    assert again.jobs.counters.done == 1


def test_failed_attempts_wait_longer_and_longer_then_the_job_is_dead(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.jobs.wait("A", world.hear)
    for wait in (1.0, 2.0):
        world.fail()
        world.store.sync()
        assert world.started == []
        world.pass_time(wait - 0.01)
        assert world.started == []
        world.pass_time(0.01)
        assert len(world.started) == 1
    job = world.fail()
    world.store.sync()
    assert world.heard() == [("A", states.OPEN), ("A", states.DEAD)]
    assert stored(world, "A") == (states.DEAD, FAILED, 3)
    assert [row["attempt"] for row in job.story] == [1, 2, 3]
    assert job.story[0]["reason"] == "it was failed"


def test_progress_survives_a_restart(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.fail()
    world.store.sync()
    again = World(world.backend)
    again.room[b"work"] = 1
    again.lead()
    assert again.started == []
    again.pass_time(1.0)
    assert again.started[0].attempts == 1 and len(again.started[0].story) == 1


def test_a_worker_may_say_when_to_try_again(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.end(FAILED, after=7.0)
    world.pass_time(6.9)
    assert not world.started
    world.pass_time(0.2)
    assert world.started


def test_a_job_that_was_not_started_uses_no_attempt(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.room[b"work"] = 0
    world.end(NO_WORKER, taken=False)
    assert world.jobs.open["A"].attempts == 0 and not world.started
    world.room[b"work"] = 1
    world.jobs.service_changed(b"work")
    assert world.started
    world.end(REFUSED, taken=False)
    world.pass_time(1.0)
    assert world.started and world.started[0].attempts == 0


def test_a_lost_worker_is_an_attempt(world: World) -> None:
    world.submit("A", backoff=Backoff(attempts=2, first=0.0, most=0.0))
    world.store.sync()
    world.end(GAVE_UP)
    world.pass_time(0.0)
    world.end(GAVE_UP)
    world.store.sync()
    assert stored(world, "A") == (states.DEAD, GAVE_UP, 2)


def test_a_result_that_is_too_large_is_not_tried_again(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.end(TOO_LARGE)
    world.store.sync()
    assert stored(world, "A")[0] == states.DEAD


def test_priorities_then_age_within_what_the_workers_can_use(world: World) -> None:
    world.room[b"work"] = 0
    for id, priority in (("A", 0), ("B", 5), ("C", 0), ("D", 5)):
        world.submit(id, priority=priority)
    world.store.sync()
    world.room[b"work"] = 2
    world.jobs.service_changed(b"work")
    assert [job.id for job in world.started] == ["B", "D"]
    world.end()
    assert [job.id for job in world.started] == ["D", "A"]


def test_a_delay_and_a_time_to_live(world: World) -> None:
    world.submit("A", due=world.time + 10)
    world.submit("B", due=world.time + 10, expires=world.time + 5)
    world.store.sync()
    assert not world.started
    world.pass_time(5.0)
    assert stored(world, "B")[:2] == (states.DEAD, EXPIRED)
    world.pass_time(5.0)
    assert [job.id for job in world.started] == ["A"]


def test_a_retry_after_the_end_of_life_is_not_made(world: World) -> None:
    world.submit("A", expires=world.time + 0.5)
    world.store.sync()
    world.fail()
    world.store.sync()
    assert stored(world, "A")[:2] == (states.DEAD, EXPIRED)


def test_the_same_key_is_the_same_job(world: World) -> None:
    world.submit("A", key="k")
    world.submit("B", key="k")  # before the first is on disk
    world.store.sync()
    assert world.heard() == [("A", states.OPEN), ("A", states.OPEN)] and len(world.started) == 1
    world.submit("C", key="k")
    assert world.heard() == [("A", states.OPEN)]
    world.end()
    world.store.sync()
    world.submit("D", key="k")
    world.store.sync()
    assert world.heard() == [("A", states.DONE)] and not world.started
    world.pass_time(200.0)  # its result is kept no longer
    world.submit("E", key="k")
    world.store.sync()
    assert world.heard() == [("E", states.OPEN)]


def test_a_job_can_be_cancelled_in_any_phase(world: World) -> None:
    world.room[b"work"] = 1
    world.submit("A")
    world.submit("B")
    world.submit("C", due=world.time + 100)
    world.store.sync()
    world.heard()
    for id in "ABC":
        world.jobs.cancel(id, "no longer wanted", world.hear)
        world.store.sync()
    assert world.heard() == [("A", states.CANCELLED), ("B", states.CANCELLED), ("C", states.CANCELLED)]
    assert world.stopped[0] == "A"
    world.jobs.cancel("A", "again", world.hear)
    world.jobs.cancel("X", "unknown", world.hear)
    world.store.sync()
    assert world.heard() == [("A", states.CANCELLED), ("", "none")]
    world.pass_time(200.0)
    assert not world.jobs.open


def test_dead_jobs_are_reopened_and_removed(world: World) -> None:
    world.submit("A", backoff=Backoff(attempts=1))
    world.store.sync()
    world.fail()
    world.store.sync()
    world.heard()
    world.jobs.reopen("A", world.hear)
    world.jobs.reopen("X", world.hear)
    world.store.sync()
    assert world.heard() == [("A", states.OPEN), ("", "none")]
    assert world.started[0].attempts == 0
    world.fail()
    world.store.sync()
    removed: list[bool] = []
    world.jobs.remove("A", lambda done, error: removed.append(done))
    world.store.sync()
    assert removed == [True]


def test_a_new_leader_remembers_which_jobs_are_dead(world: World) -> None:
    for id in ("A", "B"):
        world.submit(id, backoff=Backoff(attempts=1))
        world.store.sync()
        world.fail()
        world.store.sync()
    world.submit("C")
    assert [*world.jobs.dead] == ["A", "B"]
    again = World(world.backend)
    again.time = world.time
    again.lead()
    assert [(note.id, note.service, note.outcome) for note in again.jobs.dead.values()] == [
        ("A", b"work", FAILED),
        ("B", b"work", FAILED),
    ]
    again.jobs.remove("A", lambda done, error: None)
    again.jobs.reopen("B", again.hear)
    again.store.sync()
    assert not again.jobs.dead


def test_a_paused_service_waits(world: World) -> None:
    world.jobs.pause(b"work", True)
    world.submit("A")
    world.pass_time(1e6)
    assert not world.started
    again = World(world.backend)
    again.room[b"work"] = 1
    again.lead()
    assert not again.started  # the pause was stored
    again.jobs.pause(b"work", False)
    assert again.started


def test_the_repeat_of_a_plain_request_finds_its_job_once(world: World) -> None:
    for id in "AB":
        world.submit(id, digest=b"same", origin=states.REQUEST)
    world.store.sync()
    world.jobs.wait("A", world.hear)
    world.jobs.wait("B", world.hear)
    world.heard()
    assert world.jobs.claim(b"same") == ""  # their clients are there
    world.jobs.stop_waiting("A", world.hear)
    world.end()
    world.end()
    world.store.sync()
    assert world.jobs.claim(b"same") == "A"
    assert world.jobs.claim(b"same") == ""
    world.store.sync()
    assert world.heard() == [("B", states.DONE)]
    again = World(world.backend)
    again.lead()
    assert again.jobs.claim(b"same") == "A"  # B's result was sent
    assert again.jobs.claim(b"same") == ""
    later = World(world.backend)
    later.lead()
    later.time += 1000.0
    assert later.jobs.claim(b"same") == ""


def test_at_its_limits_new_jobs_are_refused(world: World) -> None:
    world.policy.max_jobs = 2
    for id in "ABC":
        world.submit(id)
    world.store.sync()
    assert world.heard() == [("", FULL), ("A", states.OPEN), ("B", states.OPEN)]
    world.policy.max_jobs = 100
    world.policy.max_bytes = 8
    world.submit("D")
    world.store.trouble = StoreError(FULL, "the disk is full")
    world.policy.max_bytes = 100
    world.submit("E")
    assert world.heard() == [("", FULL), ("", FULL)]


def test_a_follower_rejects_jobs_and_names_the_leader(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.submit("B")
    world.jobs.wait("A", world.hear)
    world.heard()
    world.backend.acquire("b", "", 10.0)
    world.store.sync()
    assert world.heard() == [("", NOT_LEADER)]
    world.jobs.follow("tcp://b", "the lease is another's")
    assert world.heard() == [("", NOT_LEADER)] and world.stopped == ["A"]
    world.submit("C")
    world.jobs.find("A", world.hear)
    world.jobs.reopen("A", world.hear)
    assert world.heard() == [("", NOT_LEADER)] * 3
    assert "tcp://b" in world.jobs.not_leading().text
    assert world.jobs.next_deadline() == 0.0


def test_a_suspended_leader_starts_nothing(world: World) -> None:
    world.jobs.suspend(True)
    world.submit("A")
    assert world.heard() == [("", NOT_LEADER)]
    world.jobs.suspend(False)
    world.submit("A")
    world.store.sync()
    assert world.started


def test_a_suspended_leader_does_not_name_the_broker_that_it_followed(world: World) -> None:
    world.jobs.follow("tcp://b", "another broker is the leader")
    world.lead()
    world.jobs.suspend(True)
    error = world.jobs.not_leading()
    assert error.code == NOT_LEADER and "tcp://b" not in error.text


def schedule(world: World, timing: str = "every 10s", missed: str = "once") -> ScheduleRow:
    row = ScheduleRow("tick", b"work", b"\x00\x01t", timing, "UTC", world.time)
    row.missed = missed
    world.schedules.check(row)
    world.schedules.put(row, lambda done, error: None)
    world.store.sync()
    return row


def test_the_next_runs_of_one_schedule(world: World) -> None:
    row = schedule(world)
    found = world.schedules.one("tick")
    assert found is not None and isinstance(found["runs"], list)
    times = [datetime.fromisoformat(run["local"]).timestamp() for run in found["runs"]]
    assert times == [row.next + 10.0 * number for number in range(10)]
    assert world.schedules.one("tock") is None


def test_a_schedule_runs_once_each_time(world: World) -> None:
    schedule(world)
    for _ in range(3):
        world.pass_time(5.0)
        assert not world.started
        world.pass_time(5.0)
        assert [job.schedule for job in world.started] == ["tick"]
        world.end()
        world.store.sync()
    assert world.jobs.counters.fired == 3


def test_a_run_that_is_being_stored_is_not_made_twice_by_a_failover(world: World) -> None:
    schedule(world)
    world.time += 10.0
    world.schedules.run_due()  # and the broker is suspended before it is on disk
    other = World(world.backend)
    other.time = world.time + 3.0
    other.room[b"work"] = 1
    other.lead()
    other.pass_time(0.0)
    assert len(other.started) == 1
    world.store.sync()
    world.jobs.follow("", "fenced")
    assert not world.started and len(other.jobs.open) == 1


def test_a_repeated_submission_of_a_damaged_job_is_not_taken_for_another_one() -> None:
    first, repeated = (states.Job("A", b"work", b"x", 0.0) for _ in range(2))
    first.service = b"wosk"  # a flipped bit on disk
    assert not repeated.repeats(first)
    first.condemn("the stored job is damaged")
    assert repeated.repeats(first)
    first.principal = "alice"
    assert not repeated.repeats(first)


def test_a_running_job_whose_record_is_damaged_keeps_its_outcome(world: World) -> None:
    """Two submissions with one key are being stored; the record changes before the store has answered the second one."""
    world.submit("A", key="k")
    world.submit("B", key="k")
    first, second = world.store.ops
    world.store.ops = [first]
    world.store.sync()
    world.backend.tables.jobs["A"].body = b"\x00\x01y"
    world.store.ops = [second]
    world.store.sync()
    assert world.heard() == [("A", states.OPEN), ("A", states.OPEN)] and world.jobs.counters.damaged == 0
    world.jobs.wait("A", world.hear)
    world.end()
    world.store.sync()
    assert world.heard() == [("A", states.DONE)]
    assert world.backend.tables.jobs["A"].state == states.DONE and not world.jobs.open


def test_the_end_of_a_damaged_job_is_not_recorded_as_that_of_before_it_was_reopened(world: World) -> None:
    """Otherwise the audit would take it for a second outcome: a damaged record does not say that the job was reopened."""
    again, ends = World(world.backend), Ends()
    world.jobs.listener = again.jobs.listener = ends
    world.submit("A")
    world.store.sync()
    world.end(TOO_LARGE)
    world.store.sync()
    world.jobs.reopen("A", world.hear)
    world.store.sync()
    world.backend.tables.jobs["A"].service = b"wosk"  # a flipped bit on disk
    again.lead()
    again.store.sync()
    assert ends.once == ["A", "A damaged"]


@pytest.mark.parametrize("state", [states.DONE, states.DEAD])
@pytest.mark.parametrize("damage", ["state", "id", "gone"])
def test_the_outcome_of_a_running_job_replaces_a_record_that_is_no_longer_open(
    world: World, damage: str, state: str
) -> None:
    world.submit("A", key="k")
    world.store.sync()
    stored = world.backend.tables.jobs
    if damage == "state":
        stored["A"].state = "opeo"
    else:
        record = stored.pop("A")
        if damage == "id":
            record.id = "C"
            stored["C"] = record
            world.backend.tables.checks["C"] = world.backend.tables.checks["A"]
            world.backend.tables.keys[record.scoped_key()] = "C"
    world.jobs.wait("A", world.hear)
    world.end(OK if state == states.DONE else TOO_LARGE)
    world.store.sync()
    world.jobs.check()
    assert world.heard() == [("A", states.OPEN), ("A", state)] and world.jobs.counters.damaged == 1
    world.jobs.find("A", world.hear)
    world.store.sync()
    assert world.heard() == [("A", state)] and not world.jobs.open
    assert (stored["A"].result, list(stored)) == (b"\x00\x02ok" if state == states.DONE else b"", ["A"])


@pytest.mark.parametrize(("missed", "count"), [("once", 1), ("skip", 0)])
def test_missed_runs(world: World, missed: str, count: int) -> None:
    schedule(world, "0 * * * *", missed)
    again = World(world.backend)
    again.time = world.time + 86_400.0 + 1800.0 - (world.time % 3600.0)
    again.room[b"work"] = 9
    again.lead()
    again.pass_time(0.0)
    assert len(again.started) == count
    again.pass_time(1800.0)
    assert len(again.started) == count + 1


def test_open_jobs_take_a_share_of_the_memory(world: World) -> None:
    """Bodies, results until they are stored, and the jobs themselves count."""
    world.submit("A", body=b"x" * 1000)
    size = world.jobs.memory()
    assert size >= 1000 + COST_JOB
    world.policy.max_memory = 2 * size
    world.submit("B", body=b"x" * 1000)
    world.submit("C", body=b"x" * 1000)
    world.store.sync()
    assert world.heard() == [("", FULL), ("A", states.OPEN), ("B", states.OPEN)]
    world.end(body=b"y" * 500)
    assert world.jobs.memory() == 2 * size + 500
    world.jobs.check()
    world.store.sync()
    assert world.jobs.memory() == size


def test_an_outcome_that_the_store_cannot_write_ends_the_job_all_the_same(world: World) -> None:
    world.submit("A")
    world.store.sync()
    assert world.heard() == [("A", states.OPEN)]
    world.jobs.wait("A", world.hear)
    world.end()
    assert world.store.fail_alone(Finish) == 1
    world.store.sync()
    assert world.heard() == [("A", states.DEAD)] and stored(world, "A") == (states.DEAD, FAILED, 1)
    assert not world.jobs.open
    world.jobs.check()


def test_an_outcome_that_fails_twice_is_written_later(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.heard()
    world.jobs.wait("A", world.hear)
    world.end()
    for _ in range(2):
        assert world.store.fail_alone(Finish) == 1
    assert world.store.ops == [] and list(world.jobs.open) == ["A"]
    world.pass_time(STORE_AGAIN)
    assert world.heard() == [("A", states.DEAD)] and stored(world, "A") == (states.DEAD, FAILED, 1)
    assert not world.jobs.open


def test_what_fails_again_and_again_is_put_more_and_more_rarely_and_not_by_another_leader(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.end()
    world.store.fail_alone(Finish)
    world.store.fail_alone(Finish)
    waits: list[float] = []
    failed = world.time
    for _ in range(30):
        assert world.jobs.next_deadline() > world.time, "it would be put in every turn"
        world.time = world.jobs.next_deadline()
        world.jobs.run_due()
        if world.store.fail_alone(Finish):
            waits.append(world.time - failed)
            failed = world.time
        world.store.sync()
    assert len(waits) > 8 and waits == [min(STORE_AGAIN * 2**n, STORE_AGAIN_MOST) for n in range(len(waits))]
    world.jobs.follow("tcp://other", "its lease")
    world.time += 1000.0
    world.jobs.run_due()
    assert world.store.ops == []


def test_an_outcome_that_may_have_been_written_is_not_replaced_by_another(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.heard()
    world.jobs.wait("A", world.hear)
    world.end()
    (finish,) = world.store.ops
    world.backend.apply([finish], world.store.epoch)  # and its answer is lost
    finish.in_doubt = True
    world.store.fail_alone(Finish)
    assert world.store.ops == [] and world.heard() == []
    world.pass_time(STORE_AGAIN)
    assert world.heard() == [("A", states.DONE)] and stored(world, "A") == (states.DONE, OK, 1)


def test_a_submission_that_may_have_been_written_is_not_refused(world: World) -> None:
    world.submit("A")
    (insert,) = world.store.ops
    world.backend.apply([insert], world.store.epoch)
    insert.in_doubt = True
    world.store.fail_alone(Insert)
    assert world.heard() == []
    world.pass_time(STORE_AGAIN)
    assert world.heard() == [("A", states.OPEN)] and [job.id for job in world.started] == ["A"]


def test_a_submission_that_failed_alone_is_refused(world: World) -> None:
    world.submit("A")
    world.store.fail_alone(Insert)
    assert world.heard() == [("", UNAVAILABLE)] and not world.jobs.open
    world.pass_time(STORE_AGAIN)
    assert not world.jobs.open


def test_the_damage_of_a_job_is_recorded_once_although_that_failed_at_first(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.backend.tables.jobs["A"].body = b"other"
    ends = Ends()
    again = World(world.backend)
    again.jobs.listener = ends
    again.store.epoch = again.backend.acquire("a", "", 10.0).epoch
    loaded = again.backend.load(0.0)
    again.jobs.lead(again.store.epoch, loaded)
    again.store.fail_alone(Replace)
    again.jobs.find("A", again.hear)  # and finds it damaged, too
    again.pass_time(STORE_AGAIN)
    assert stored(again, "A")[:2] == (states.DEAD, states.DAMAGED) and len(ends.once) == 1


def test_a_pause_that_failed_alone_is_stored_unless_it_is_over(world: World) -> None:
    world.jobs.pause(b"work", True)
    world.store.fail_alone(PutPause)
    world.pass_time(STORE_AGAIN)
    assert world.backend.tables.paused == {b"work"}
    world.jobs.pause(b"other", True)
    world.store.fail_alone(PutPause)
    world.jobs.pause(b"other", False)
    world.pass_time(STORE_AGAIN)
    assert world.backend.tables.paused == {b"work"}


def test_a_run_of_a_schedule_that_failed_alone_is_stored_once_unless_the_schedule_has_changed(world: World) -> None:
    schedule(world)
    world.time += 10.0
    world.schedules.run_due()
    assert world.store.fail_alone(Fire) == 1
    world.schedules.run_due()
    assert world.store.ops == [], "it would be put in every turn"
    world.pass_time(STORE_AGAIN)
    assert len(world.started) == 1 and world.schedules.plans["tick"].row.next == world.time - STORE_AGAIN + 10.0
    world.time += 10.0
    world.schedules.run_due()
    world.store.fail_alone(Fire)
    world.schedules.drop("tick", lambda done, error: None)
    world.pass_time(STORE_AGAIN)
    assert len(world.started) == 1 and not world.schedules.plans


def test_dead_jobs_of_earlier_runs_are_shown_although_reading_them_failed_at_first(world: World) -> None:
    world.submit("A")
    world.store.sync()
    world.jobs.record(world.started.pop(), states.DEAD, FAILED, "it failed")
    world.store.sync()
    again = World(world.backend)
    again.store.epoch = again.backend.acquire("a", "", 10.0).epoch
    again.jobs.lead(again.store.epoch, again.backend.load(0.0))
    assert again.store.fail_alone(Select) == 1 and not again.jobs.dead
    again.pass_time(STORE_AGAIN)
    assert list(again.jobs.dead) == ["A"]


def test_reasons_are_stored_as_text_that_every_database_accepts(world: World) -> None:
    world.submit("A")
    world.store.sync()
    job = world.started.pop(0)
    world.jobs.attempt_ended(job, FAILED, "cannot read \0 or \udcff", b"", True, math.inf)
    world.store.sync()
    op = Get("A")
    world.backend.read(op)
    assert op.job is not None and op.job.reason == r"cannot read \x00 or \udcff"
