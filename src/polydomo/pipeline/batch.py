"""``polydomo pipeline run``: loads new segments of the journal into the tables.

The driver compares names and decides what to compute: which hours are rebuilt, and from which row each run is audited. Spark computes
(``compute.py``, ``audit``), and the driver publishes the staged files in one commit (``commit.py``).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.journal.files.segments import Ranges
from polydomo.journal.ids import decode, run_name
from polydomo.journal.quantities import counted
from polydomo.model.objective import Objective
from polydomo.pipeline import bronze, delta, segments
from polydomo.pipeline.audit.auditor import Auditor, RunItem
from polydomo.pipeline.audit.facts import Facts, load_facts, newest_state, stays
from polydomo.pipeline.audit.once import Once
from polydomo.pipeline.commit import TableStore
from polydomo.pipeline.compute import Computation, Inputs, together
from polydomo.pipeline.delta import PARQUET
from polydomo.pipeline.maintain import floor_of
from polydomo.pipeline.payloads.tables import Payload, PayloadTables
from polydomo.pipeline.readable import readable
from polydomo.pipeline.saved_sums import SavedSums
from polydomo.pipeline.segments import (
    FoundSegments,
    ProcessedRanges,
    SegmentFile,
    between,
    by_run,
    hour_of,
    shifted,
    unit_of,
    unit_of_hour,
)
from polydomo.pipeline.session import LazySpark
from polydomo.pipeline.sql import HOUR_US, describe, description_kept, gather, is_gathered, most_gathered, views_kept
from polydomo.pipeline.summary import Summary, conclude
from polydomo.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]
ENGINE = 3  # of the saved sums: hours that an earlier version computed are computed again


@dataclass
class Options:
    since: datetime | None = None
    until: datetime | None = None
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    payloads: Sequence[Payload] = ()
    format: str = PARQUET
    tables: Sequence[Table] = ()  # of the user


def run(
    journals: Sequence[str],
    tables: str,
    options: Options | None = None,
    session: "LazySpark | SparkSession | None" = None,
    tell: Tell = lambda line: None,
    step: Callable[[str], None] = lambda name: None,
) -> Summary:
    """Loads new segments. ``session`` is a Spark session, or one that is started when it is needed (by default a local one, which is closed
    at the end). ``tell`` is called with progress messages, ``step`` with the steps of the commit."""
    options, summary = options or Options(), Summary()
    with LazySpark.of(session) as spark:
        found = segments.find(journals, options.since, options.until)
        with TableStore(tables, step, delta.check(options.format, tables)) as store:
            summary.problems += found.problems
            if store.recovered:
                tell(store.recovered)
            Batch(store, found, options, spark, tell, summary).run()
            conclude(store, summary)
    return summary


class Batch:
    """One run over the new segments."""

    def __init__(
        self, store: TableStore, found: FoundSegments, options: Options, spark: LazySpark, tell: Tell, summary: Summary
    ) -> None:
        self.store = store
        self.options = options
        self.spark = spark
        self.tell = tell
        self.summary = summary
        self.roots = found.roots
        self.known = store.units()
        floor = floor_of(store)  # hours before it were removed by `polydomo pipeline maintain`
        self.there = {unit: there for unit, there in found.units().items() if unit >= floor}
        self.partial = options.since is not None or options.until is not None
        self.read: set[str] = set()  # segments whose rows are in the tables now

    def run(self) -> None:
        began = time.monotonic()
        fresh = self._fresh()
        if not fresh:
            hint = f"; no segments were found in {', '.join(self.roots)}" if not self.there and not self.known else ""
            self.tell(f"nothing new{hint}")
            return
        self.summary.segments = sum(len(found) for found in fresh.values())
        units = self._dirty(fresh)
        span = str(units[0]) if len(units) == 1 else f"{units[0]} to {units[-1]}"
        self.tell(f"{counted(self.summary.segments, 'new segment')}; {counted(len(units), 'hour')} to compute: {span}")
        self._compute(units, fresh)
        self.summary.units = units
        self.summary.seconds = time.monotonic() - began
        self.tell(
            f"computed on {self.spark.where}, {self.summary.seconds:.1f} s; rows: "
            + ", ".join(f"{t} {n:,}" for t, n in sorted(self.summary.rows.items()))
        )

    def has_new(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self._fresh())

    # --- new segments -----------------------------------------------------------------------------------------------------

    def _fresh(self) -> dict[str, list[SegmentFile]]:
        """The segments that are not in the tables, by unit."""
        fresh = {}
        for unit, there in list(self.there.items()):
            noted = self.known.get(unit, {}).get("segments", ())
            taken = ProcessedRanges(noted)
            new = [segment for segment in there if not taken.has(segment)]
            present = ProcessedRanges(segment.id for segment in there)
            gone = [one for one in noted if not present.has(segments.parse_id(one))]
            if new and gone:
                self.summary.problems.append(
                    f"{unit}: {len(new)} late segments skipped: {len(gone)} others of that hour are in the tables, "
                    "but no longer in the journal"
                )
                self.there[unit] = [segment for segment in there if taken.has(segment)]
            elif gone:
                del self.there[unit]  # the hour cannot be rebuilt
            elif new or (noted and self.known[unit].get("bounds", ["", ""]) != self._bounds(unit)):
                fresh[unit] = new
        return fresh

    def _bounds(self, unit: str) -> list[str]:
        """The times at which ``since`` and ``until`` cut the hour."""
        moments = (self.options.since, self.options.until)
        return [str(moment) if moment is not None and unit_of(moment) == unit else "" for moment in moments]

    def _dirty(self, fresh: Mapping[str, Sequence[SegmentFile]]) -> list[str]:
        """The hours to rebuild."""
        dirty = set(fresh) | {
            unit for unit, known in self.known.items() if known.get("engine") != ENGINE and unit in self.there
        }
        last_known: dict[int, str] = {}
        for unit, known in sorted(self.known.items()):
            for one in known.get("segments", ()):
                last_known[segments.parse_id(one).run] = unit
        for unit, new in fresh.items():
            for run in {segment.run for segment in new}:
                before = last_known.get(run, unit)
                if before < unit:  # its workers were present until the end of that hour, and in the hours between
                    dirty |= set(between(before, unit))
            for other, known in self.known.items():  # hours that read messages of this one
                if other > unit and any(back <= unit for back in known.get("back", {}).values()):
                    dirty.add(other)
            if shifted(unit, 1) in self.known:
                dirty.add(shifted(unit, 1))
            if self.known.get(shifted(unit, -1), {}).get("open"):
                dirty.add(shifted(unit, -1))
        for mine in by_run(self._segments(self.there)).values():  # hours in which a broker was idle
            lived = [segment.unit for segment in mine]
            dirty |= set(between(min(lived), max(lived))) - set(self.known) - set(self.there)
        return sorted(
            unit for unit in dirty if unit in self.there or unit not in self.known or not self.known[unit]["segments"]
        )

    # --- what to read ---------------------------------------------------------------------------------------------------------

    @cached_property
    def states(self) -> dict[int, str]:
        """The runs that have a saved audit state, and the directory of each."""
        folder = f"{self.store.own}/runs"
        return {decode(name): f"{folder}/{name}" for name in self.store.storage.names(folder)}

    def _facts(self, run: int) -> Facts:
        return load_facts(f"{self.states[run]}/facts.json", run)

    def _items(self, fresh: Mapping[str, Sequence[SegmentFile]], again: AbstractSet[int]) -> list[RunItem]:
        """The runs to audit, and from where: those with new segments, and any other of which a new row may state losses."""
        new = by_run(segment for found in fresh.values() for segment in found)
        every = by_run(self._segments(self.there))
        if self.partial:
            return [RunItem(run) for run in every]
        made = []
        for run, mine in every.items():
            folder = self.states.get(run, "")
            if folder and run in new and run not in again:
                made.append(RunItem(run, *self._base(run, new[run], mine), folder))
            elif not folder or run in again:
                made.append(RunItem(run, folder=folder))
        for run in [run for run in self.states if run not in {item.run for item in made}]:
            facts = self._facts(run)
            made.append(RunItem(run, facts.last, newest_state(self.states[run], facts), self.states[run], new=False))
        return made

    def _base(self, run: int, new: Sequence[SegmentFile], every: Sequence[SegmentFile]) -> tuple[int, str]:
        """The newest saved state before all new rows: its sequence number and its path. The audit starts after it."""
        facts, folder = self._facts(run), self.states[run]
        first = min(segment.first for segment in new)
        before = [(seq, f"{folder}/{name}") for seq, _, name in facts.states if seq < first]
        base, state = max(before, default=(0, ""))
        there = Ranges(sorted((segment.first, segment.last) for segment in every))
        # the journal still has all rows after it that were audited
        if all(there.covers(max(begin, base + 1), end) for begin, end in facts.ranges if end > base):
            return base, state
        self.summary.problems.append(
            f"run {run_name(run)}: late rows are not audited: rows after them are no longer in the journal, "
            "so the audit cannot be repeated from there"
        )
        return facts.last, newest_state(folder, facts)

    # --- the work -----------------------------------------------------------------------------------------------------------

    def _segments(self, units: Iterable[str]) -> list[SegmentFile]:
        return [segment for unit in units for segment in self.there.get(unit, ())]

    def _open(self, found: Iterable[SegmentFile]) -> dict[str, list[str]]:
        """The paths of readable segments by kind; the others are reported."""
        good = readable([segment.path for segment in found], self.summary.problems, self.read)
        return {kind: sorted(path for path in good if f"kind={kind}/" in path) for kind in schema.KINDS}

    def _compute(self, units: list[str], fresh: Mapping[str, Sequence[SegmentFile]]) -> None:
        rows = sum(segment.rows for segment in self._segments(units) if segment.kind == schema.MESSAGES)
        spark = self.spark.get(rows)
        gather(spark, rows <= most_gathered(spark))
        with views_kept(spark), description_kept(spark):
            self._compute_on(spark, units, fresh)

    def _compute_on(self, spark: "SparkSession", units: list[str], fresh: Mapping[str, Sequence[SegmentFile]]) -> None:
        options, store = self.options, self.store
        dirty = self._open(self._segments(units))
        journal = bronze.JournalFrames(spark, self.spark.combined, options.since, options.until)
        auditor = self._look(journal, dirty, fresh)
        hours = sorted(hour_of(unit) for unit in units)
        chosen = [row for row in auditor.blocks if row["h"] in set(hours)]
        counts = {name: sum(row[name] for row in chosen) for name in bronze.COUNTS}
        inputs = Inputs(journal, dirty, self._near(units, chosen, dirty))
        brokers = {row["broker"] for row in auditor.blocks} | {self._facts(run).broker for run in self.states}
        work = Computation(
            spark, store.staging, inputs, hours, counts, len(brokers), dict(options.objectives), options.tables
        )

        def judge() -> None:
            nonlocal auditor
            again: set[int] = set()
            while redo := auditor.check():
                again |= set(redo)
                auditor = self._look(journal, dirty, fresh, again)
            auditor.publish()
            self._once(auditor, work, units)

        together([judge, work.tables_of_requests], spark)
        sums = SavedSums(store, units, self.known)
        more = [unit for unit in sums.changed() if unit in self.known and self.known[unit].get("engine") == ENGINE]
        present = self._stays(auditor, [*units, *more])
        small = is_gathered(spark)
        gather(spark, True)  # sums are few rows
        work.platinum(sums.files(more), sorted({*hours, *map(hour_of, more)}), present)
        gather(spark, small)
        payloads = PayloadTables(store, work)
        for payload in options.payloads:
            payloads.write(payload)
        work.users(store.is_staged)
        self._commit(units, more, chosen, sums, auditor)

    def _look(
        self,
        journal: bronze.JournalFrames,
        dirty: dict[str, list[str]],
        fresh: Mapping[str, Sequence[SegmentFile]],
        again: AbstractSet[int] = frozenset(),
    ) -> Auditor:
        """Finds out which rows there are, and opens the audit of those that were not audited yet. ``again``: runs to audit from the
        beginning."""
        every = self._segments(self.there)
        items = self._items(fresh, again)
        bases = {item.run: item.base for item in items if item.new}
        new = self._open(segment for segment in every if segment.run in bases and segment.last > bases[segment.run])
        found = {kind: sorted({*dirty[kind], *paths}) for kind, paths in new.items()}
        messages, records = (journal.frame(kind, found[kind]) for kind in schema.KINDS)
        # a run that is not audited has no fresh rows
        paths = {path for some in found.values() for path in some}
        runs = {segment.run for segment in every if segment.path in paths}
        all_bases = {item.run: item.base if item.new else 1 << 62 for item in items if item.run in runs}
        describe(journal.spark, "journal: which rows there are")
        blocks = bronze.probe(messages, records, all_bases)
        lives = bronze.lives(messages, all_bases) if any(row["lives"] for row in blocks if row["fresh"]) else []
        messages, records = (journal.frame(kind, new[kind]) for kind in schema.KINDS)
        auditor = Auditor(self.store, messages, records, blocks, self.partial)
        auditor.open(items, lives)
        return auditor

    def _near(
        self, units: Sequence[str], blocks: Iterable[Mapping[str, Any]], dirty: dict[str, list[str]]
    ) -> dict[str, list[str]]:
        """The segments of the hours, of the hours around them (a bridged request may have parts there), and of earlier hours that have
        messages about requests which ended in them, or about nodes of flows which did."""
        known = {shifted(unit, by) for unit in units for by in (-1, 0, 1)}
        found = self._segments(sorted(known - set(units)))

        def messages(first: int, last: int) -> list[SegmentFile]:
            """Of the other hours from the first to the last."""
            others = [unit for unit in between(unit_of_hour(first), unit_of_hour(last)) if unit not in known]
            return [one for one in self._segments(others) if one.kind == schema.MESSAGES]

        for row in blocks:
            if row["back"] is not None:
                found += [one for one in messages(row["back"], row["h"] - 1) if one.run == row["run"]]
        backs = [(row["flow_back"], row["h"]) for row in blocks if row["flow_back"] is not None]
        if backs:  # whichever brokers ran the nodes
            found += messages(min(back for back, _ in backs), max(hour for _, hour in backs))
        more = self._open(found)
        return {kind: sorted({*dirty[kind], *more[kind]}) for kind in schema.KINDS}

    def _stays(self, auditor: Auditor, units: Sequence[str]) -> list[tuple[Any, ...]]:
        """When workers were present, of all runs that lived in these hours."""
        first, last = hour_of(min(units)) * HOUR_US, (hour_of(max(units)) + 1) * HOUR_US
        made = [row for run in auditor.runs.values() for row in stays(run.facts, run.workers())]
        for run, folder in self.states.items():
            if run not in auditor.runs:
                facts = self._facts(run)
                if facts.begins < last and facts.time >= first:
                    made += stays(facts, self.store.storage.table(f"{folder}/workers.parquet").to_pylist())
        return made

    def _once(self, auditor: Auditor, work: Computation, units: Sequence[str]) -> None:
        """Checks events that must happen only once, over all runs."""
        if work.counts["once"]:
            Once(self.store, units, floor_of(self.store), self.partial).check(work.messages, auditor)

    # --- the commit -----------------------------------------------------------------------------------------------------------

    def _commit(
        self,
        units: Sequence[str],
        more: Sequence[str],
        blocks: Iterable[Mapping[str, Any]],
        sums: SavedSums,
        auditor: Auditor,
    ) -> None:
        opened = self.store.open_logs(units)
        notes: dict[str, dict[str, Any]] = {}
        for unit in units:
            mine = [row for row in blocks if row["h"] == hour_of(unit)]
            back: dict[str, str] = {}
            for row in mine:
                for name, hour in ((run_name(row["run"]), row["back"]), ("flows", row["flow_back"])):
                    if hour is not None:
                        back[name] = min(back.get(name, "~"), unit_of_hour(hour))
            notes[unit] = {
                "segments": sorted(one.id for one in self.there.get(unit, ()) if one.path in self.read),
                "bounds": self._bounds(unit),
                "engine": ENGINE,
                "open": opened.get(unit, 0) + sum(row["parts"] for row in mine),
                "back": back,
                "spill": sums.spilled.get(unit, {}),
            }
        taken = {one for known in self.known.values() for one in known.get("segments", ())}
        self.summary.segments = len({one for known in notes.values() for one in known["segments"]} - taken)
        self.summary.rows = {**self.store.staged_rows(), **auditor.rows}
        removes = [*(f"{self.store.root}/{one}" for one in auditor.gone), *sums.gone(), *self._outdated()]
        self.store.commit(notes, removes, sums=more)

    def _outdated(self) -> list[str]:
        """Outdated states of runs."""
        gone = []
        staged = f"{self.store.staging}/_runs"
        for name in self.store.storage.names(staged):
            facts = load_facts(f"{staged}/{name}/facts.json", decode(name))
            kept = {state[2] for state in facts.states}
            folder = f"{self.store.own}/runs/{name}"
            gone += [
                f"{folder}/{file}"
                for file in self.store.storage.names(folder)
                if file.startswith("state-") and file not in kept
            ]
        return gone


__all__ = ["Batch", "Options", "Summary", "run"]
