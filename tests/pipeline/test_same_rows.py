"""Journals from the simulator: plain Python and Spark compute the same rows of every table.

The journals come from worlds full of faults (crashes of workers, clients and brokers, cut connections, bridges).
Times are stretched, so that a minute becomes hours. Segments are loaded in several batches, some of them late, and must give the same
tables as one batch.
"""

import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from polydomo.journal import schema
from polydomo.journal.histogram import bucket
from polydomo.journal.ids import RequestId
from polydomo.journal.reading.audit import kind_of
from polydomo.model.flows.needs import needs_text
from polydomo.model.objective import Objective
from polydomo.pipeline.audit import auditor, prefilter
from polydomo.pipeline.batch import Options
from polydomo.pipeline.tables import TABLES
from sim import memoised
from sim.run import run_seed
from tests.pipeline import journals
from tests.pipeline.comparing import at_level_requests, comparable, content, hours_are_right, stretched, table_rows
from tests.pipeline.journals import Row
from tests.pipeline.reference import Reference
from tests.pipeline.shared import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = ("time", "accepted", "first_dispatched", "dispatched", "first_partial", "created")
OBJECTIVES = {"*": Objective(30.0, 0.95)}
SHORT = [6]  # with bridges, crashes and several runs
LONG = [6, 14, *range(20, 60)]


def life(seed: int, level: str = schema.MESSAGES, factor: float = 150.0) -> list[Row]:
    """The journal of a simulated world."""
    return slowed(run_seed(seed).record.journal, level, factor)


def slowed(journal: Iterable[Row], level: str, factor: float) -> list[Row]:
    """A journal with all times stretched by a factor."""
    rows = [dict(row) for row in journal]
    for row in rows:
        for name in TIMES:
            if row.get(name) is not None and not isinstance(row[name], datetime):
                row[name] = datetime.fromtimestamp(row[name] / 1e6, UTC)
    first = min(row["time"] for row in rows)
    made = stretched(rows, factor, first.replace(hour=0, minute=0, second=0, microsecond=0))
    return at_level_requests(made) if level == schema.REQUESTS else made


def with_shared_runs(rows: list[Row], dice: random.Random) -> list[Row]:
    """Adds requests that shared runs, by memoising or by keys; one in ten of their events is in an earlier hour."""
    made = [dict(row) for row in rows]
    last = {run: max(row["seq"] for row in rows if row["run"] == run) for run in {row["run"] for row in rows}}
    able = [row for row in made if kind_of(row) == schema.REQUESTS and row["worker_protocol"] != "bridge"]
    for row in [row for row in able if dice.random() < 0.2]:
        keyed = dice.random() < 0.4
        row["worker_protocol"] = "keyed" if keyed else "memoised"
        if dice.random() < 0.1:
            earlier = timedelta(hours=dice.randrange(3))
            row["accepted"] -= earlier
            for name in ("wait", "total"):
                row[f"{name}_us"] += round(earlier.total_seconds() * 1e6)
                row[f"{name}_bucket"] = bucket(row[f"{name}_us"])
        last[row["run"]] += 1
        made.append(schema.row(schema.MESSAGES, time=row["accepted"], broker=row["broker"], run=row["run"], seq=last[row["run"]],
                               event=schema.KEYED if keyed else schema.MEMO, number=row["number"], client=row["client"],
                               service=row["service"], key="order-7" if keyed else "",
                               outcome=dice.choice(["first", "joined"] if keyed else ["hit", "miss", "joined"])))  # fmt: skip
    return made


def with_jobs(rows: list[Row], dice: random.Random) -> list[Row]:
    """Adds durable jobs that go from run to run, principals, and now and then a second outcome or run of a schedule."""
    made = with_shared_runs(rows, dice)
    for row in made:
        if dice.random() < 0.5:
            row["principal"] = dice.choice(["anna", "bert"])
            if "worker_principal" in row:
                if dice.random() < 0.1:
                    row |= {"job": "01JOB", "client_protocol": dice.choice(["job", row["client_protocol"]])}
                row["worker_principal"] = dice.choice(["", "carl"])
    principals: dict[tuple[int, int], str] = {}
    for row in made:
        if row.get("event") in (schema.REGISTERED, schema.LEFT, schema.LOST):  # a worker has one principal
            row["principal"] = principals.setdefault((row["run"], row["worker"]), row["principal"])
    runs = sorted({row["run"] for row in rows})
    last = {run: max((row for row in made if row["run"] == run), key=lambda row: int(row["seq"])) for run in runs}
    seqs = {run: last[run]["seq"] for run in runs}
    first = min(row["time"] for row in rows)
    begun = {run: min(row["time"] for row in rows if row["run"] == run) for run in runs}

    def add(run: int, outcome: str, **more: Any) -> None:
        seqs[run] += 1
        time = begun[run] + (last[run]["time"] - begun[run]) * dice.random()
        made.append(schema.row(schema.MESSAGES, time=time, broker=last[run]["broker"], run=run, seq=seqs[run], event=schema.JOB,
                               outcome=outcome, **more))  # fmt: skip

    for i in range(40):
        job = {
            "job": f"01JOB{i:021d}",
            "service": dice.choice(["a", "b"]),
            "origin": "job",
            "created": first,
            "principal": "anna",
        }
        add(dice.choice(runs), "accepted", size=9, **job)
        for attempt in range(dice.randrange(3)):
            add(dice.choice(runs), "retry", attempt=attempt + 1, code="failed", reason="no", wait_us=10**6, **job)
        for _ in range(dice.choice([0, 1, 1, 1, 1, 2])):
            state = dice.choice(["done", "dead", "cancelled"])
            add(dice.choice(runs), state, attempt=2, code="ok", wait_us=7, size=3, once=str(job["job"]), **job)
    for i in range(12):
        due = first + timedelta(minutes=i)
        for _ in range(dice.choice([1, 1, 2])):
            add(
                dice.choice(runs),
                dice.choice(["fired", "skipped"]),
                schedule="nightly",
                created=due,
                once=f"nightly {due}",
            )
    return made


def with_flows(rows: list[Row], dice: random.Random) -> list[Row]:
    """Adds flows whose rows go from run to run: some grow, some are retried, and now and then a rule is broken or a row is lost."""
    made = [dict(row) for row in rows]
    runs = sorted({row["run"] for row in rows})
    seqs = {run: max(row["seq"] for row in rows if row["run"] == run) for run in runs}
    spans = {
        run: [min(times), max(times)] for run in runs if (times := [row["time"] for row in rows if row["run"] == run])
    }
    brokers = {row["run"]: row["broker"] for row in rows}
    first, last = min(begin for begin, _ in spans.values()), max(end for _, end in spans.values())

    def add(event: str, outcome: str, time: datetime, **more: Any) -> None:
        open_then = [run for run in runs if spans[run][0] <= time <= spans[run][1]]
        if not open_then or dice.random() < 0.01:
            return
        run = dice.choice(open_then)
        seqs[run] += 1
        made.append(schema.row(schema.MESSAGES, time=time, broker=brokers[run], run=run, seq=seqs[run], event=event,
                               outcome=outcome, **more))  # fmt: skip

    for i in range(12):
        begun = first + (last - first) * 0.5 * dice.random()
        flow = {"flow": str(RequestId(int(begun.timestamp() * 1000), 7, i))}
        whole = {
            **flow,
            "name": f"graph{i % 3}",
            "key": dice.choice(["", "monday"]),
            "principal": "anna",
            "created": begun,
        }
        count = dice.choice([1, 2, 5, 12])
        add(schema.FLOW, "started", begun, nodes=count, **whole)
        at, position = begun, 0
        for turn in range(dice.choice([1, 1, 2])):
            since = position
            if turn:
                add(schema.FLOW, "retrying", at, nodes=count, **whole)
            for number in range(count):
                about = {**flow, "node": number, "name": f"n{number}"}
                chosen = sorted(dice.sample(range(number), min(number, dice.randrange(4))))
                needs = needs_text(chosen, 100)
                job = {**about, "job": f"01NODE{i:04d}{number:016d}", "service": dice.choice(["a", "b"]), "created": at}
                at += (last - at) * 0.1 * dice.random()
                end = at + (last - at) * 0.2 * dice.random()
                early = dice.random() < 0.05
                if dice.random() < 0.1:
                    position += 1
                    add(
                        schema.NODE, dice.choice(["skipped", "cancelled"]), end, position=position, since=since, **about
                    )
                    continue
                add(schema.JOB, dice.choice(["accepted", "reopened"]) if turn else "accepted", at, needs=needs,
                    position=1 if early else position + 1, **job)  # fmt: skip
                if dice.random() < 0.2:  # perhaps in one run of a broker
                    for step in dice.choice([["hit"], ["hit"], ["miss"], ["hit", "miss"], ["miss", "hit", "joined"]]):
                        add(schema.MEMO, step, at, **about, job=job["job"])
                    code = "reused"
                else:
                    code = "ok"
                for _ in range(dice.choice([1, 1, 1, 1, 2])):
                    position += 1
                    add(schema.JOB, dice.choice(["done", "done", "dead"]), end, position=position, since=since, attempt=1,
                        code=code, once=f"{job['job']} {turn}", **job)  # fmt: skip
                if dice.random() < 0.1 and number:
                    add(
                        schema.NODE,
                        "done",
                        end,
                        needs=str(dice.randrange(number)),
                        position=position,
                        since=since,
                        **about,
                    )
            at += (last - at) * 0.3 * dice.random()
            add(
                schema.FLOW,
                dice.choice(["done", "failed", "cancelled"]),
                at,
                nodes=count,
                position=position,
                reason="x",
                **whole,
            )
    return made


def pieces(rows: list[Row], dice: random.Random, count: int) -> list[list[Row]]:
    """Splits the rows of each run into ranges of its sequence, like segments, in an order in which some are late."""
    made = []
    for run in sorted({row["run"] for row in rows}):
        mine = sorted((row for row in rows if row["run"] == run), key=lambda row: row["seq"])
        seqs = sorted({row["seq"] for row in mine})
        edges = sorted(dice.sample(seqs, min(count, len(seqs)))) if seqs else []
        for low, high in zip([0, *edges], [*edges, seqs[-1] + 1], strict=True):
            part = [row for row in mine if low <= row["seq"] < high]
            if part:
                made.append(part)
    made.sort(key=lambda part: part[0]["time"])
    for _ in range(len(made) // 3):
        i = dice.randrange(len(made) - 1)
        made[i], made[i + 1] = made[i + 1], made[i]
    return made


def same(tables: Path, rows: list[Row], names: list[str] | None = None) -> None:
    hours_are_right(tables)
    found = content(tables)
    expected = Reference(rows, OBJECTIVES).tables
    for name in names or TABLES:
        assert found[name] == comparable(name, expected[name]), name


def take_in(directory: Path, rows: list[Row], dice: random.Random, batches: int) -> Path:
    """Loads the rows in several batches."""
    parts = pieces(rows, dice, 4)
    for i in range(batches):
        for part in parts[len(parts) * i // batches : len(parts) * (i + 1) // batches]:
            journals.write(directory / "journal", part)
        if (directory / "journal").is_dir():
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(auditor, "FEW_ROWS", 10**6 if i % 2 else 0)  # with prefilters and without
                summary = load([str(directory / "journal")], str(directory / "tables"), Options(objectives=OBJECTIVES))
            assert not summary.problems
    return directory / "tables"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "level", "batches"),
    [
        *((seed, schema.MESSAGES, 2) for seed in SHORT),
        pytest.param(5, schema.REQUESTS, 3, marks=pytest.mark.long),
        *(
            pytest.param(seed, level, 3, marks=pytest.mark.long)
            for seed in LONG
            for level in (schema.MESSAGES, schema.REQUESTS)
        ),
    ],
)
def test_incremental_results_equal_plain_python(tmp_path: Path, seed: int, level: str, batches: int) -> None:
    rows = with_flows(with_jobs(life(seed, level), random.Random(seed)), random.Random(seed))
    same(take_in(tmp_path, rows, random.Random(seed), batches), rows)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "level", "on_spark"),
    [
        (11, schema.REQUESTS, False),
        pytest.param(11, schema.REQUESTS, True, marks=pytest.mark.long),
        *(pytest.param(seed, schema.MESSAGES, True, marks=pytest.mark.long) for seed in range(2, 12)),
    ],
)
def test_memoised_services_of_a_simulated_broker(tmp_path: Path, seed: int, level: str, on_spark: bool) -> None:
    world = memoised.World(seed).run()
    rows = slowed(world.recorder.rows(), level, 40.0)
    if on_spark:
        tables = take_in(tmp_path, rows, random.Random(seed), 2)
        same(tables, rows)
    requests = table_rows(tables, "requests") if on_spark else Reference(rows, OBJECTIVES).tables["requests"]
    counts = Counter(row["memo"] for row in requests)
    assert (counts["hit"], counts["miss"], counts["joined"]) == (world.memo.hits, world.memo.misses, world.memo.joined)
    assert counts["hit"] and counts["joined"]


def mutated(rows: list[Row], dice: random.Random) -> list[Row]:
    """Leaves rows out, repeats and mixes them, so that many rules are broken."""
    made = [dict(row) for row in rows]
    for row in dice.sample(made, min(max(60, len(made) // 12), len(made))):
        deed = dice.randrange(5)
        if deed == 0:
            made.remove(row)
        elif deed == 1 and "worker" in row:
            row["worker"] = dice.randrange(6)
        elif deed == 2 and "client" in row:
            row["client"] = dice.randrange(4)
        elif deed == 3:
            last = max((other for other in made if other["run"] == row["run"]), key=lambda other: int(other["seq"]))
            made.append({**row, "seq": last["seq"] + 1, "time": last["time"]})
        elif kind_of(row) == schema.MESSAGES:
            twin = dice.choice([other for other in made if other["run"] == row["run"]])
            made.append({**row, "seq": twin["seq"], "time": twin["time"]})  # a number that is there twice
    return made


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "batches"),
    [(11, 2), *(pytest.param(seed, 4, marks=pytest.mark.long) for seed in (11, *range(60, 90)))],
)
def test_the_audit_bit_by_bit_finds_every_breach_that_plain_python_finds(
    tmp_path: Path, seed: int, batches: int
) -> None:
    dice = random.Random(seed)
    rows = mutated(life(seed, factor=60.0), dice)
    assert len({row["rule"] for row in Reference(rows).tables["audit"]}) > 2
    same(take_in(tmp_path, rows, dice, batches), rows, ["audit", "audit_rules"])


def test_every_prefilter_was_written_for_the_rules_as_they_are() -> None:
    """Fails if a rule was changed without revising its prefilter; until then the prefilter is not used."""
    assert all(map(prefilter.usable, prefilter.WRITTEN_FOR))


@pytest.mark.long
def test_without_prefilters_the_audit_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefilter, "usable", lambda scope: False)
    rows = mutated(life(3, factor=60.0), random.Random(3))
    same(take_in(tmp_path, rows, random.Random(1), 2), rows, ["audit", "audit_rules"])


@pytest.mark.timeout(900)
def test_percentiles_in_sparks_sql_are_those_of_the_journal(spark: "SparkSession") -> None:
    from polydomo.journal import histogram
    from polydomo.pipeline.tables.histograms import percentile

    counts = {histogram.bucket(us): n for us, n in ((10, 5), (500, 90), (70_000, 4), (9_000_000, 1))}
    entries = ", ".join(f"{bucket}, {n}L" for bucket, n in counts.items())
    for share in (0.01, 0.5, 0.95, 0.99, 0.999):
        (row,) = spark.sql(f"SELECT {percentile('h', share)} AS p FROM (SELECT map({entries}) AS h)").collect()
        assert row.p == pytest.approx(histogram.percentile(counts, share))
