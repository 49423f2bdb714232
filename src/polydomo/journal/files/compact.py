"""``polydomo journal compact``: merges the small segments of a journal that no broker is writing."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from polydomo.errors import SettingError
from polydomo.journal.files import merge, runs
from polydomo.journal.files.segments import Segment, all_segments, segments


@dataclass
class Compaction:
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    problems: list[str] = field(default_factory=list)


def compact(
    directory: Path,
    before: datetime | None = None,
    dry_run: bool = False,
    report: Callable[[str], None] = lambda line: None,
    step: merge.Step = lambda name: None,
) -> Compaction:
    """Merges segments older than ``before``, hour by hour. Raises SettingError if a broker is writing the journal."""
    try:
        lock = runs.lock(directory)
    except SettingError:
        raise SettingError(
            f"a broker is writing the journal in {directory} and merges its own files; to merge older ones, stop it first"
        ) from None
    try:
        return _compact(directory, before, dry_run, report, step)
    finally:
        os.close(lock)


def _compact(
    directory: Path, before: datetime | None, dry_run: bool, report: Callable[[str], None], step: merge.Step
) -> Compaction:
    outcome = Compaction()
    outcome.files_before, outcome.bytes_before = _total(all_segments(directory))
    if not dry_run:
        runs.publish_rest(directory)  # a merge that was killed is completed first
        outcome.problems += merge.remove_superseded(directory)
    until = f"date={before:%Y-%m-%d}/hour={before:%H}" if before else "~"
    found = [(segment, segment.path.stat().st_size) for segment in segments(directory) if segment.hour < until]
    groups = merge.plan(merge.batches(found))
    if dry_run:
        spared = sum(_files(group) - _kinds(group) for group in groups)
        outcome.files_after, outcome.bytes_after = outcome.files_before - spared, outcome.bytes_before
        return outcome
    while groups:
        group = groups.pop(0)
        try:
            merge.merge(group, step=step)
        except merge.Unreadable as error:
            outcome.problems.append(f"{error.segment.path}: not merged: {error.why}")
            groups[:0] = merge.plan(merge.without(group, error.segment))
        else:
            report(f"{group[0].hour}: {_files(group)} files merged into {_kinds(group)}")
    outcome.files_after, outcome.bytes_after = _total(all_segments(directory))
    return outcome


def _total(found: list[Segment]) -> tuple[int, int]:
    return len(found), sum(segment.path.stat().st_size for segment in found)


def _files(group: list[merge.SegmentGroup]) -> int:
    return sum(len(batch.files) for batch in group)


def _kinds(group: list[merge.SegmentGroup]) -> int:
    return len({segment.kind for batch in group for segment in batch.files})
