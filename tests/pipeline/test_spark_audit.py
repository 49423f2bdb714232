"""The audit in Spark says what the one in Python says, breach by breach and row by row."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.generate_journal import generate
from polydomo.journal import rules, schema
from polydomo.journal.audit import audit as reference
from polydomo.journal.reader import Reader
from tests.journal.stage import journalled, live
from tests.pipeline.journals import Row, frames, message, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from polydomo.pipeline.tables import audit, screens

Told = tuple[str, int, tuple[tuple[str, str], ...], tuple[int, ...]]


def by_python(rows: list[Row]) -> list[Told]:
    found = []
    for breach in reference(rows):
        about = tuple(sorted((name, str(value)) for name, value in breach.about.items() if name != "run"))
        found.append((breach.rule, breach.run, about, tuple(seq for _, seq in breach.proof)))
    return sorted(found)


def by_spark(spark: "SparkSession", rows: list[Row]) -> list[Told]:
    found = []
    for row in audit.build(*frames(spark, rows))[0].collect():
        about: list[tuple[str, Any]] = [(name, row[name]) for name in rules.BY_ID[row.rule].scope if name != "run"]
        found.append((row.rule, row.run, tuple(sorted((name, str(value)) for name, value in about)), tuple(row.proof)))
    return sorted(found)


def test_planted_breaches_of_every_rule(spark: "SparkSession", tmp_path: Path) -> None:
    facts = generate(tmp_path, 4000, seed=7, breaches=2, seconds=120)
    reader = Reader([tmp_path / name for name in facts["brokers"]])
    rows = reader.rows(schema.MESSAGES) + reader.rows(schema.REQUESTS)
    assert {rule for rule, _, _ in facts["planted"]} == set(rules.BY_ID)
    expected = by_python(rows)
    planted = sorted(
        (rule, run, tuple(sorted((name, str(value)) for name, value in about.items() if name != "run")))
        for rule, run, about in facts["planted"]
    )
    assert [told[:3] for told in expected] == planted
    assert by_spark(spark, rows) == expected


@pytest.mark.parametrize("seed", [3])
def test_broken_lives_of_a_real_broker(spark: "SparkSession", seed: int) -> None:
    """A broker's true journal has no breach; with rows taken out, doubled and mixed up it has many, and both audits find the same."""
    import random

    world, recorder = journalled()
    live(world, seed, 300)
    recorder.end("over")
    rows = [dict(row) for row in recorder.rows()]
    dice = random.Random(seed)
    for row in dice.sample(rows, 40):
        deed = dice.randrange(4)
        if deed == 0:
            rows.remove(row)
        elif deed == 1 and "worker" in row:
            row["worker"] = dice.randrange(6)
        elif deed == 2 and "client" in row:
            row["client"] = dice.randrange(4)
        elif deed == 3:
            rows.append({**row, "seq": max(row["seq"] for row in rows) + 1})
    from datetime import UTC, datetime

    for row in rows:
        row["time"] = (
            row["time"] if isinstance(row["time"], datetime) else datetime.fromtimestamp(row["time"] / 1e6, UTC)
        )
        for name in ("accepted", "first_dispatched", "dispatched", "first_partial"):
            if row.get(name) is not None and not isinstance(row[name], datetime):
                row[name] = datetime.fromtimestamp(row[name] / 1e6, UTC)
    expected = by_python(rows)
    assert len({told[0] for told in expected}) > 4
    assert by_spark(spark, rows) == expected


def test_holes_covers_and_rows_there_twice(spark: "SparkSession") -> None:
    rows = [message(seq, schema.CONNECTED, seq / 10) for seq in range(5, 400)]
    rows = [row for row in rows if row["seq"] not in (70, 71, 72, 200, *range(256, 330))]
    rows += [
        message(100, schema.CONNECTED, 10.0),
        message(1, schema.STARTED, 99.0, run=2, covers_run=1, covers_first=400, covers_last=420),
    ]
    rows += [message(421, schema.MISSING, 99.0, covers_run=1, covers_first=256, covers_last=340)]
    expected = by_python(rows)
    assert len(expected) > 3
    assert by_spark(spark, rows) == expected


def test_every_rule_that_a_screen_clears_is_one_of_its_scope() -> None:
    for scope, known in screens.KNOWN.items():
        assert all(rules.BY_ID[name].scope == scope for name in known)


@pytest.mark.parametrize(
    ("level", "unchecked"),
    [("messages", set()), ("requests", {rule.id for rule in rules.RULES if rule.level == "messages"})],
)
def test_what_the_level_allows_to_check(spark: "SparkSession", level: str, unchecked: set[str]) -> None:
    rows = [message(1, schema.STARTED, 0.0, level=level), record(2, 1, 1.0, 1.1, 1.2, attempts=5, max_attempts=3)]
    messages, requests = frames(spark, rows)
    found = audit.build(messages, requests)[1].collect()
    assert {row.rule for row in found if not row.checkable} == unchecked
    assert {row.rule: row.breaches for row in found if row.breaches} == {"attempts-bounded": 1}
    assert {row.level for row in found} == {level}
