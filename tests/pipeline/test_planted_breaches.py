"""Small generated journals: an audit finds each breach that was planted, and nothing else."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench.generate_journal import generate
from polydomo.journal.reading.audit import audit


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(directory.rglob("*.parquet")) for row in pq.ParquetFile(file).read().to_pylist()]


# With 5, no request was left to break a rule with. With the others, the worker that replaced the last one of a lane had the number of the
# first one of the next lane, and registered again after that was lost.
@pytest.mark.parametrize("seed", [5, 18, 20, 26, 41])
def test_each_breach_breaks_one_rule(tmp_path: Path, seed: int) -> None:
    facts = generate(tmp_path, 1_500, seed=seed, seconds=900)
    planted = sorted((rule, run) for rule, run, _ in facts["planted"])
    assert sorted((breach.rule, breach.run) for breach in audit(rows_of(tmp_path))) == planted


def test_a_journal_without_breaches_breaks_no_rule(tmp_path: Path) -> None:
    generate(tmp_path, 1_500, seed=26, breaches=0, seconds=900)
    assert audit(rows_of(tmp_path)) == []


def test_too_many_breaches_for_the_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="generate more rows or fewer breaches"):
        generate(tmp_path, 1_500, breaches=20, seconds=900)
