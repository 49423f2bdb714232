"""Partial replies of jobs in every store: in memory, SQLite and PostgreSQL."""

import sqlite3
from pathlib import Path

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.ops import Finish, GetParts, Insert, Purge, PutParts, Remove, Reopen
from polydomo.broker.jobs.part import Position, StoredPart
from tests.stores.cases import Case, ended, new


def part(attempt: int, number: int, body: bytes = b"\x00\x01x", first: int = 1, job: str = "A") -> StoredPart:
    made = StoredPart(job, attempt, number, number * len(body), body)
    made.first_kept = first
    return made


def read(case: Case, after: Position = (0, 0), most: int = 100, size: int = 10_000, job: str = "A") -> GetParts:
    op = GetParts(job, after, most, size)
    case.backend.read(op)
    return op


def places(op: GetParts) -> list[Position]:
    return [(each.attempt, each.number) for each in op.parts]


def test_parts_are_read_back_in_order_and_after_a_position(case: Case) -> None:
    case.apply(Insert(new("A")), Insert(new("B")))
    assert (places(read(case)), read(case).last) == ([], None)
    case.apply(PutParts([part(1, 1), part(1, 2, b"", job="B")]), PutParts([part(1, 2, b"\x00\x03two"), part(1, 3)]))
    op = read(case, (1, 1))
    assert [(each.number, each.body, each.stop, each.damaged) for each in op.parts] == [
        (2, b"\x00\x03two", 10, False),
        (3, b"\x00\x01x", 9, False),
    ]
    assert op.last is not None and (op.last.number, op.last.stop, op.last.damaged) == (3, 9, False)
    assert places(read(case, most=2)) == [(1, 1), (1, 2)]
    assert places(read(case, size=8)) == [(1, 1), (1, 2)]
    assert places(read(case, (1, 1), size=1)) == [(1, 2)], "one at least"
    assert [each.body for each in read(case, job="B").parts] == [b""]


def test_the_same_parts_again_change_nothing(case: Case) -> None:
    """A commit in doubt is repeated."""
    op = PutParts([part(1, number, first=max(1, number - 1)) for number in (1, 2, 3)])
    case.apply(Insert(new("A")), op)
    case.apply(op)
    assert places(read(case)) == [(1, 2), (1, 3)]


def test_a_new_attempt_replaces_the_parts_of_the_one_before(case: Case) -> None:
    case.apply(Insert(new("A")), PutParts([part(1, 1), part(1, 2)]))
    case.apply(PutParts([part(2, 1)]))
    assert places(read(case)) == [(2, 1)]
    case.apply(PutParts([part(3, 0, b"")]))
    op = read(case)
    assert places(op) == [] and op.last is not None and (op.last.attempt, op.last.number, op.last.stop) == (3, 0, 0)


def test_a_new_leader_knows_the_last_attempt_and_so_does_a_job_that_is_reopened(case: Case) -> None:
    case.apply(Insert(new("A")), Insert(new("B")), PutParts([part(4, 1)]))
    assert {job.id: job.streamed for job in case.backend.load(0.0).jobs} == {"A": 4, "B": 0}
    case.apply(Finish(ended(new("A"), states.DEAD)))
    assert places(read(case)) == [(4, 1)], "they are kept with the job"
    reopen = Reopen("A", 250.0)
    case.apply(reopen)
    assert reopen.job is not None and reopen.job.streamed == 4


def test_parts_are_removed_with_their_job(case: Case) -> None:
    case.apply(Insert(new("A")), Insert(new("B")), PutParts([part(1, 1), part(1, 1, job="B")]))
    gone = ended(new("A"))
    gone.keep = 300.0
    case.apply(Finish(gone), Finish(ended(new("B"))))
    case.apply(Purge(299.0))
    assert places(read(case)) == [(1, 1)]
    case.apply(Purge(301.0), Remove("B"))
    assert (places(read(case)), places(read(case, job="B"))) == ([], [])


def test_damage_is_found_when_a_part_is_read(tmp_path: Path) -> None:
    case = Case("sqlite", tmp_path, None)
    case.apply(Insert(new("A")), PutParts([part(1, 1), part(1, 2), part(1, 3)]))
    case.backend.close()
    with sqlite3.connect(tmp_path / "jobs.db") as file:
        file.execute("UPDATE job_parts SET body = x'000179' WHERE number = 1")
        file.execute("UPDATE job_parts SET stop = 7 WHERE number = 3")
    case = Case("sqlite", tmp_path, None)
    op = read(case)
    assert [(each.number, each.damaged, each.body) for each in op.parts] == [
        (1, True, b""),
        (2, False, b"\x00\x01x"),
        (3, True, b""),
    ]
    assert op.last is not None and op.last.damaged
    case.backend.close()
