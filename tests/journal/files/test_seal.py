"""Segments that changed after they were written are named and left out; no wrong row is read."""

import random
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from polydomo.journal.files import merge, runs
from polydomo.journal.files.retention import JournalBounds
from polydomo.journal.files.seal import KEY, MARK, Damaged, damage, verify
from polydomo.journal.reading.reader import Reader
from polydomo.journal.schema import KINDS
from tests.journal.files.test_writer import AGES, started
from tests.journal.stage import live


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("journal")
    world, kept = started(directory, JournalBounds(keep_age=AGES, roll_rows=200))
    for part in range(3):
        live(world, part, 150)
        world.broker.draining = False
        kept.tick()
    kept.stop()
    return directory


def test_segments_are_sealed_and_other_readers_do_not_mind(journal: Path) -> None:
    for segment in runs.segments(journal):
        assert damage(segment.path) == ""
        assert MARK in segment.path.read_bytes()
        count = pq.ParquetFile(segment.path, page_checksum_verification=True).read().num_rows
        with duckdb.connect() as db:
            assert db.execute(f"SELECT count(*) FROM '{segment.path}'").fetchall() == [(count,)]


def test_every_change_is_found(journal: Path) -> None:
    dice = random.Random(7)
    data = max((segment.path.read_bytes() for segment in runs.segments(journal)), key=len)
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 1, 8))):
            changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        if changed != data:
            with pytest.raises(Damaged):
                verify(bytes(changed))
    for _ in range(500):
        with pytest.raises(Damaged):
            verify(data[: dice.randrange(len(data))])


def test_a_damaged_segment_is_left_out_and_its_rows_are_named(journal: Path, tmp_path: Path) -> None:
    whole = {kind: Reader([journal]).rows(kind) for kind in KINDS}
    segment = sorted(runs.segments(journal))[0]
    original = segment.path.read_bytes()
    try:
        segment.path.write_bytes(original[:100] + bytes((original[100] ^ 1,)) + original[101:])
        reader = Reader([journal])
        for kind in KINDS:
            rows = reader.rows(kind)
            assert all(row in whole[kind] for row in rows)
            assert (len(rows) < len(whole[kind])) == (kind == segment.kind)
        (problem,) = reader.problems
        assert f"rows {segment.first} to {segment.last} of run" in problem and "checksum does not match" in problem
        with pytest.raises(merge.Unreadable):
            merge._read(segment, segment.kind)
    finally:
        segment.path.write_bytes(original)


def test_segments_of_older_versions_have_no_seal_and_are_read(journal: Path) -> None:
    segment = runs.segments(journal)[0]
    data = segment.path.read_bytes()
    at = data.rindex(MARK)
    old = (data[:at] + data[at + 8 :]).replace(KEY, b"polydomo.xealed")
    verify(old)


def test_a_merged_segment_is_sealed(journal: Path, tmp_path: Path) -> None:
    for segment in runs.segments(journal):
        copy = tmp_path / segment.path.relative_to(journal)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(segment.path.read_bytes())
    for group in merge.plan(merge.batches([(found, found.path.stat().st_size) for found in runs.segments(tmp_path)])):
        for made in merge.merge(group):
            assert damage(made.path) == "" and MARK in made.path.read_bytes()
            assert merge.parts_of(made.path)
    for kind in KINDS:
        assert len(Reader([tmp_path]).rows(kind)) == len(Reader([journal]).rows(kind))
