"""One suite for every store: in memory, SQLite and PostgreSQL."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.ops import (
    NOT_LEADER,
    UNAVAILABLE,
    Collected,
    DropSchedule,
    Finish,
    Fire,
    Get,
    Insert,
    Progress,
    Purge,
    PutLimits,
    PutPause,
    PutSchedule,
    Remove,
    Reopen,
    ScheduleRow,
    Select,
    StoreError,
)
from polydomo.model.service_limits import ServiceLimits
from polydomo.stores.groups import MOST_BYTES
from polydomo.stores.sqlite import SqliteBackend
from tests.stores.cases import Case, ended, new, tried


def test_a_stored_job_is_read_back_unchanged(case: Case) -> None:
    job = new("A")
    job.key, job.digest, job.expires, job.origin = "k", b"\x01\x00", 500.25, states.REQUEST
    job.tell({"attempt": 1, "reason": "no luck \u2014 at all"})
    case.apply(Insert(job))
    found = case.get("A")
    for name in (
        "id",
        "service",
        "body",
        "key",
        "digest",
        "origin",
        "priority",
        "created",
        "due",
        "expires",
        "run",
        "state",
        "story",
    ):
        assert getattr(found, name) == getattr(job, name), name
    assert found.backoff == job.backoff


def test_a_key_belongs_to_one_job(case: Case) -> None:
    first, second, third = new("A"), new("B"), new("C")
    first.key = second.key = "same"
    one, two, three = Insert(first), Insert(second), Insert(third)
    case.apply(one, two, three)
    assert two.existing is not None and two.existing.id == "A"
    assert one.existing is None or one.existing.id == "A"  # found again within one statement: still itself
    assert three.existing is None or three.existing.id == "C"
    assert Get("B").job is None
    again = Insert(second)
    case.apply(again)
    assert again.existing is not None and again.existing.id == "A"
    selected = Select("", b"", 10)
    case.backend.read(selected)
    assert sorted(job.id for job in selected.jobs) == ["A", "C"]


def test_inserting_again_finds_the_job_itself(case: Case) -> None:
    case.apply(Insert(new("A")))
    again = Insert(new("A"))
    case.apply(again)
    assert again.existing is not None and again.existing.id == "A"


def test_an_outcome_is_recorded_once(case: Case) -> None:
    case.apply(Insert(new("A")))
    first, second = Finish(ended(new("A"))), Finish(ended(new("A"), states.DEAD, at=201.0))
    case.apply(first)
    case.apply(second)
    assert (first.done, second.done) == (True, False)
    found = case.get("A")
    assert (found.state, found.result, found.attempts, found.ended) == (states.DONE, b"\x00\x02hi", 2, 200.0)
    assert found.body == b""  # of no use any more
    again = Finish(ended(new("A")))
    case.apply(again)
    assert again.done  # the very same outcome, applied again after a commit in doubt


def test_progress_is_kept_and_does_not_reopen(case: Case) -> None:
    case.apply(Insert(new("A")), Insert(new("B")))
    case.apply(Progress(tried("A", 1, 150.0)), Progress(tried("B", 1, 0.0)), Finish(ended(new("B"))))
    found = case.get("A")
    assert (found.attempts, found.due, found.story) == (1, 150.0, [{"attempt": 1}])
    case.apply(Progress(tried("B", 9, 9.0)))
    assert case.get("B").attempts == 2


def test_a_dead_job_keeps_its_body_and_can_be_reopened(case: Case) -> None:
    case.apply(Insert(new("A")))
    case.apply(Finish(ended(new("A"), states.DEAD)))
    assert case.get("A").body == b"\x00\x04body"
    reopen, nothing = Reopen("A", 250.0), Reopen("X", 250.0)
    case.apply(reopen, nothing)
    assert nothing.job is None
    assert reopen.job is not None and (reopen.job.state, reopen.job.attempts, reopen.job.due) == (states.OPEN, 0, 250.0)
    again = Reopen("A", 250.0)
    case.apply(again)  # the very same operation, after a commit in doubt
    assert again.job is not None
    (found,) = case.backend.load(0.0).jobs
    assert found.id == "A" and [row["outcome"] for row in found.story] == [states.REOPENED]
    assert found.reopened() == again.job.reopened() != ""


def test_only_ended_jobs_are_removed(case: Case) -> None:
    case.apply(Insert(new("A")), Insert(new("B")))
    case.apply(Finish(ended(new("B"), states.DEAD)))
    one, two, three = Remove("A"), Remove("B"), Remove("C")
    case.apply(one, two, three)
    assert [one.done, two.done, three.done] == [False, True, False]


def test_results_are_purged_when_they_were_kept_long_enough(case: Case) -> None:
    jobs = [new("A"), new("B"), new("C")]
    jobs[1].key = "free again"
    case.apply(*(Insert(job) for job in jobs))
    case.apply(Finish(ended(new("A"), keep=300.0)), Finish(ended(jobs[1], keep=400.0)))
    early, late = Purge(350.0), Purge(1000.0)
    case.apply(early)
    assert early.count == 1 and case.get("B").key == "free again"
    case.apply(late)
    assert late.count == 1  # C is open, however old
    again = new("D")
    again.key = "free again"
    op = Insert(again)
    case.apply(op)
    assert op.existing is None or op.existing.id == "D"


def test_a_new_leader_loads_what_is_open(case: Case) -> None:
    jobs = [new("A", 3.0), new("B", 1.0), new("C", 2.0), new("D", 4.0)]
    for job in jobs[2:]:
        job.digest, job.origin = b"digest", states.REQUEST
    row = ScheduleRow("nightly", b"render", b"", "0 3 * * *", "Europe/Berlin", 1.0)
    row.next, row.missed, row.settings = 99.0, "skip", '{"run_us":5}'
    case.apply(*(Insert(job) for job in jobs), PutSchedule(row), PutPause(b"render", True), PutPause(b"x", True))
    case.apply(Finish(ended(jobs[2])), Finish(ended(jobs[3])), Collected("D"), PutPause(b"x", False))
    limits = ServiceLimits(running=5, starts=90, window=10.0, per="group")
    case.apply(
        PutLimits("a*", ServiceLimits(1)),
        PutLimits("b", ServiceLimits(2)),
        PutLimits("a*", limits),
        PutLimits("b", None),
    )
    loaded = case.backend.load(150.0)
    assert [job.id for job in loaded.jobs] == ["B", "A"]
    assert [job.id for job in loaded.uncollected] == ["C"]
    assert loaded.paused == [b"render"] and loaded.limits == {"a*": limits}
    found = loaded.schedules[0]
    assert (found.name, found.timing, found.zone, found.missed, found.next) == (
        "nightly",
        "0 3 * * *",
        "Europe/Berlin",
        "skip",
        99.0,
    )
    assert found.settings == '{"run_us":5}'
    assert case.backend.load(250.0).uncollected == []


def test_a_run_of_a_schedule_is_made_once(case: Case) -> None:
    tick = ScheduleRow("tick", b"render", b"", "every 5s", "UTC", 1.0)
    case.apply(PutSchedule(tick))
    first, second, skipped = (
        Fire(tick, 10.0, 15.0, new("A")),
        Fire(tick, 10.0, 15.0, new("B")),
        Fire(tick, 15.0, 20.0, None),
    )
    case.apply(first)
    case.apply(second)
    case.apply(skipped)
    assert [first.done, second.done, skipped.done] == [True, False, True]
    assert [job.id for job in case.backend.load(0.0).jobs] == ["A"]
    assert case.backend.load(0.0).schedules[0].next == 20.0
    again = Fire(tick, 10.0, 15.0, new("A"))
    case.apply(again)
    assert again.done  # its own, after a commit in doubt
    gone, drop = DropSchedule("no"), DropSchedule("tick")
    case.apply(gone, drop)
    assert [gone.done, drop.done] == [False, True]


def test_jobs_are_selected_and_counted(case: Case) -> None:
    case.apply(*(Insert(new(f"J{n}", float(n), b"a" if n % 2 else b"b")) for n in range(6)))
    case.apply(Finish(ended(new("J1", 1.0, b"a"), states.DEAD)))
    everything, dead, some = Select("", b"", 4), Select(states.DEAD, b"", 10), Select(states.OPEN, b"a", 10)
    for op in (everything, dead, some):
        case.backend.read(op)
    assert [job.id for job in everything.jobs] == ["J5", "J4", "J3", "J2"]
    assert everything.counts == {states.OPEN: 5, states.DEAD: 1}
    assert [job.id for job in dead.jobs] == ["J1"] and dead.jobs[0].body == b""
    assert [job.id for job in some.jobs] == ["J5", "J3"]


def test_jobs_in_the_order_in_which_they_ended(case: Case) -> None:
    jobs = [new(f"J{n}", float(n), b"a") for n in range(6)]
    case.apply(*(Insert(job) for job in jobs))
    for n, when in ((3, 50.0), (1, 60.25), (2, 60.25), (4, 70.0)):
        made = ended(new(f"J{n}", float(n), b"a"), states.DEAD if n == 4 else states.DONE)
        made.ended = when
        case.apply(Finish(made))
    found: list[str] = []
    position = (0.0, "")
    while True:
        page = Select("", b"", 2)
        page.by_end = True
        page.after_time, page.after_id = position
        case.backend.read(page)
        if not page.jobs:
            break
        found += [job.id for job in page.jobs]
        position = (page.jobs[-1].ended, page.jobs[-1].id)
    assert found == ["J3", "J1", "J2", "J4"]  # open ones are not among them


def test_a_group_is_all_or_nothing_under_an_old_epoch(case: Case) -> None:
    with pytest.raises(StoreError) as caught:
        case.backend.apply([Insert(new("A"))], case.epoch - 1)
    assert caught.value.code == NOT_LEADER
    assert case.backend.load(0.0).jobs == []


def test_written_jobs_survive_closing(case: Case) -> None:
    case.apply(*(Insert(new(f"J{n:04}", float(n))) for n in range(2500)))
    case.backend.close()
    case.backend = case.another()
    assert len(case.backend.load(0.0).jobs) == 2500


def test_only_one_broker_gets_the_lease_and_the_other_is_fenced(case: Case) -> None:
    if not case.backend.shared:
        pytest.skip("SQLite serves one broker")
    other = case.another()
    try:
        seen = other.acquire("b", "tcp://b", 60.0)
        assert (seen.mine, seen.address) == (False, "tcp://a")
        assert case.backend.renew(case.epoch, 0.0)  # and is over at once
        taken = other.acquire("b", "tcp://b", 60.0)
        assert taken.mine and taken.epoch > case.epoch
        assert not case.backend.renew(case.epoch, 60.0)
        with pytest.raises(StoreError) as caught:
            case.apply(Insert(new("A")))
        assert caught.value.code == NOT_LEADER
        other.apply([Insert(new("B"))], taken.epoch)
        other.release(taken.epoch)
        again = case.backend.acquire("a", "tcp://a", 60.0)
        assert again.mine and again.epoch > taken.epoch
        assert not other.acquire("a", "tcp://b", 60.0).mine  # another broker that was given the same name
        restarted = other.acquire("a", "tcp://a", 60.0)  # the same broker after a restart
        assert restarted.mine and restarted.epoch > again.epoch
    finally:
        other.close()


# --- SQLite alone ------------------------------------------------------------------------------------------------------


def test_two_brokers_cannot_use_one_file(tmp_path: Path) -> None:
    first = SqliteBackend(tmp_path / "jobs.db")
    first.open()
    with pytest.raises(StoreError, match="another broker uses the job store"):
        SqliteBackend(tmp_path / "jobs.db").open()
    first.close()
    second = SqliteBackend(tmp_path / "jobs.db")
    second.open()
    second.close()


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    store = SqliteBackend(tmp_path / "jobs.db")
    store.open()
    store.close()
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("UPDATE lease SET schema = 99")
    connection.close()
    with pytest.raises(StoreError, match="schema version 99") as caught:
        store.open()
    assert caught.value.code == UNAVAILABLE


@pytest.mark.parametrize(("page", "saved"), [(0, 500), (1, 0), (-1, 400)], ids=["first", "root", "last"])
def test_what_is_left_of_a_damaged_file_is_saved(
    tmp_path: Path, page: int, saved: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteBackend(path)
    store.open()
    epoch = store.acquire("a", "", 1.0).epoch
    store.apply([Insert(new(f"J{n:03}")) for n in range(500)], epoch)
    store.close()
    with open(path, "r+b") as file:
        file.seek(page * 4096, 2 if page < 0 else 0)
        file.write(b"\xff" * 4096)
    damaged = path.read_bytes()[4096:]
    store.open()
    found = store.load(0.0).jobs
    assert saved <= len(found) <= 500 and all(job.body == b"\x00\x04body" for job in found)
    (kept,) = tmp_path.glob("jobs.db.damaged-*")
    assert kept.read_bytes()[4096:] == damaged
    assert str(kept) in caplog.text
    epoch = store.acquire("a", "", 1.0).epoch
    store.apply([Insert(new("new"))], epoch)
    store.close()
    store.open()  # it is an ordinary store again
    assert len(store.load(0.0).jobs) == len(found) + 1
    store.close()
    assert len(list(tmp_path.glob("jobs.db.damaged-*"))) == 1


def damaged_log(tmp_path: Path, at: int) -> SqliteBackend:
    """A store that was not closed, and in whose write-ahead log one byte has changed."""
    original = SqliteBackend(tmp_path / "original.db")
    original.open()
    epoch = original.acquire("a", "", 1.0).epoch
    for n in range(40):
        original.apply([Insert(new(f"J{n:03}"))], epoch)
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{original.path}{suffix}", tmp_path / f"jobs.db{suffix}")
    original.close()
    with open(tmp_path / "jobs.db-wal", "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ 0x10,)))
    return SqliteBackend(tmp_path / "jobs.db")


FRAME = 24 + 4096
PLACES = {
    "header": 17,
    "sum of the header": 27,
    "page": 32 + 60 * FRAME + 2000,
    "number of the page": 32 + 60 * FRAME + 2,
    "salt": 32 + 60 * FRAME + 13,
    "sum of a frame": 32 + 60 * FRAME + 18,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_transactions_after_damage_in_the_write_ahead_log_are_recovered(
    tmp_path: Path, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = damaged_log(tmp_path, place)
    store.open()
    assert len(store.load(0.0).jobs) == 40  # later frames have newer versions of that page
    assert "write-ahead log" in caplog.text
    store.close()


def test_an_incomplete_last_transaction_is_not_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As after a power failure: it was never acknowledged."""
    store = damaged_log(tmp_path, 17)
    log = tmp_path / "jobs.db-wal"
    with open(log, "r+b") as file:
        file.seek(17)
        byte = file.read(1)[0]
        file.seek(17)
        file.write(bytes((byte ^ 0x10,)))  # the header is right again
        file.seek(-50, 2)
        file.write(b"power")
    store.open()
    assert len(store.load(0.0).jobs) == 39
    assert caplog.text == ""
    store.close()


def test_large_bodies_and_results_are_written_one_per_statement(tmp_path: Path) -> None:
    """The values of a statement are copied while Python's lock is held: the event loop must not wait for many of them at once."""
    case = Case("sqlite", tmp_path, None)
    jobs = [new(name) for name in "ABC"]
    for job in jobs:
        job.body = bytes(MOST_BYTES)
    statements: list[str] = []
    connection = case.backend._here()  # type: ignore[attr-defined]
    connection.set_trace_callback(statements.append)
    case.apply(*map(Insert, jobs))
    for job in jobs:
        ended(job).result = bytes(MOST_BYTES)
    case.apply(*map(Finish, jobs))
    connection.set_trace_callback(None)
    assert [text[:6] for text in statements if text.startswith(("INSERT", "UPDATE"))] == ["INSERT"] * 3 + ["UPDATE"] * 3
    assert {case.get(name).result for name in "ABC"} == {bytes(MOST_BYTES)}
    case.backend.close()
