"""``polydomo pipeline run``: loads new segments of the journal into the tables.

The driver compares names and decides what to compute: which hours are rebuilt, and from which row each run is audited. Spark computes
(``compute.py``, ``audit``), and the driver publishes the staged files in one commit (``commit.py``).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.journal.ids import decode, run_name
from polydomo.model.objective import Objective
from polydomo.pipeline import bronze, delta, segments
from polydomo.pipeline.audit.auditor import Auditor, RunItem
from polydomo.pipeline.audit.facts import Facts, load_facts, newest_state, stays
from polydomo.pipeline.audit.once import ALL_RUNS, Once, rule_rows
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
    hour_of,
    shifted,
    unit_of,
    unit_of_hour,
)
from polydomo.pipeline.session import LazySpark
from polydomo.pipeline.sql import HOUR_US, describe, description_kept, gather, is_gathered, most_gathered, views_kept
from polydomo.pipeline.summary import Summary, conclude, counted
from polydomo.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    summary = Summary()
    with LazySpark.of(session) as spark:
        _run(journals, tables, options or Options(), spark, tell, step, summary)
    return summary


def _run(
    journals: Sequence[str],
    tables: str,
    options: Options,
    spark: LazySpark,
    tell: Tell,
    step: Callable[[str], None],
    summary: Summary,
) -> None:
    found = segments.find(journals, options.since, options.until)
    with TableStore(tables, step, delta.check(options.format, tables)) as store:
        summary.problems += found.problems
        if store.recovered:
            tell(store.recovered)
        Batch(store, found, options, spark, tell, summary).run()
        conclude(store, summary)


@dataclass
class _Audit:
    """The audit of a batch, before it is checked: the rows to audit, and what is known about all rows of the batch."""

    auditor: Auditor
    messages: "DataFrame"
    records: "DataFrame"
    blocks: list[dict[str, Any]]
    again: AbstractSet[int]  # runs that are audited from the beginning

    def check(self) -> list[int]:
        """Checks the rules; returns runs that must be audited from the beginning."""
        return self.auditor.check(self.messages, self.records, self.blocks) if self.auditor.runs else []


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
        self.states: dict[int, str] = {}  # run -> directory of its saved state
        self.gone: list[str] = []  # published files that nothing replaces

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
        self._saved_runs()
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
            elif new or (noted and not gone and self.known[unit].get("bounds", ["", ""]) != self._bounds(unit)):
                fresh[unit] = new
            if gone and not new:
                del self.there[unit]  # the hour cannot be rebuilt
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
        lives = self._lives()
        for first, last in lives.values():  # hours in which a broker was idle
            dirty |= {unit for unit in between(first, last) if unit not in self.known and unit not in self.there}
        return sorted(
            unit for unit in dirty if unit in self.there or unit not in self.known or not self.known[unit]["segments"]
        )

    def _lives(self) -> dict[int, tuple[str, str]]:
        """The first and the last hour of each run in the journal."""
        made: dict[int, tuple[str, str]] = {}
        for unit, there in self.there.items():
            for segment in there:
                first, last = made.get(segment.run, (unit, unit))
                made[segment.run] = min(first, unit), max(last, unit)
        return made

    # --- what to read ---------------------------------------------------------------------------------------------------------

    def _saved_runs(self) -> None:
        """Lists the runs that have a saved audit state."""
        folder = f"{self.store.own}/runs"
        self.states = {decode(name): f"{folder}/{name}" for name in self.store.storage.names(folder)}

    def _items(self, fresh: Mapping[str, Sequence[SegmentFile]], again: AbstractSet[int]) -> list[RunItem]:
        """The runs to audit, and from where: those with new segments, and any other of which a new row may state losses."""
        new: dict[int, list[SegmentFile]] = {}
        for found in fresh.values():
            for segment in found:
                new.setdefault(segment.run, []).append(segment)
        every: dict[int, list[SegmentFile]] = {}
        for there in self.there.values():
            for segment in there:
                every.setdefault(segment.run, []).append(segment)
        if self.partial:
            return [RunItem(run) for run in every]
        made = []
        for run, mine in every.items():
            folder = self.states.get(run, "")
            if run in again or (run in new and not folder):
                made.append(RunItem(run, folder=folder))
            elif run in new:
                base, state = self._base(run, new[run], mine)
                made.append(RunItem(run, base, state, folder))
            elif not folder:
                made.append(RunItem(run))
        for run, folder in self.states.items():
            if run not in {item.run for item in made}:
                facts = load_facts(f"{folder}/facts.json", run)
                made.append(RunItem(run, facts.last, newest_state(folder, facts), folder, new=False))
        return made

    def _base(self, run: int, new: Sequence[SegmentFile], every: Sequence[SegmentFile]) -> tuple[int, str]:
        """The newest saved state before all new rows: its sequence number and its path. The audit starts after it."""
        folder = self.states.get(run)
        if folder is None:
            return 0, ""
        facts = load_facts(f"{folder}/facts.json", run)
        first = min(segment.first for segment in new)
        for seq, _, name in sorted(facts.states, reverse=True):
            if seq < first:
                if not self._covered(facts, seq, every):
                    break
                return seq, f"{folder}/{name}"
        else:
            if self._covered(facts, max(0, facts.first - 1), every):
                return 0, ""
        self.summary.problems.append(
            f"run {run_name(run)}: late rows are not audited: rows after them are no longer in the journal, "
            "so the audit cannot be repeated from there"
        )
        return facts.last, newest_state(folder, facts)

    def _covered(self, facts: Facts, base: int, every: Sequence[SegmentFile]) -> bool:
        """Whether the journal still has all rows after ``base`` that were audited."""
        spans = sorted((segment.first, segment.last) for segment in every)
        for first, last in facts.ranges:
            at = max(first, base + 1)
            for start, end in spans:
                if start <= at <= end:
                    at = end + 1
            if at <= last:
                return False
        return True

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
        audit = self._look(journal, dirty, fresh)
        hours = sorted(hour_of(unit) for unit in units)
        chosen = [row for row in audit.blocks if row["h"] in set(hours)]
        counts = {name: sum(row[name] for row in chosen) for name in bronze.COUNTS}
        inputs = Inputs(journal, dirty, self._near(units, chosen, dirty))
        brokers = len(
            {row["broker"] for row in audit.blocks}
            | {load_facts(f"{one}/facts.json", run).broker for run, one in self.states.items()}
        )
        work = Computation(
            spark, store.staging, inputs, hours, counts, brokers, dict(options.objectives), options.tables
        )

        def judge() -> None:
            nonlocal audit
            while redo := audit.check():  # from the beginning of these runs
                audit = self._look(journal, dirty, fresh, audit.again | set(redo))
            audit.auditor.publish()
            self._once(audit.auditor, work, units)

        together([judge, work.tables_of_requests], spark)
        auditor, published = audit.auditor, audit.auditor.out
        self.gone += [f"{store.root}{path}" for path in published.gone]
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
        self._commit(units, more, chosen, sums, published.rows)

    def _look(
        self,
        journal: bronze.JournalFrames,
        dirty: dict[str, list[str]],
        fresh: Mapping[str, Sequence[SegmentFile]],
        again: AbstractSet[int] = frozenset(),
    ) -> "_Audit":
        """Finds out which rows there are, and opens the audit of those that were not audited yet. ``again``: runs to audit from the
        beginning."""
        items = self._items(fresh, again)
        bases = {item.run: item.base for item in items if item.new}
        wanted = [
            segment
            for there in self.there.values()
            for segment in there
            if segment.run in bases and segment.last > bases[segment.run]
        ]
        new = self._open(wanted)
        found = {kind: sorted({*dirty[kind], *paths}) for kind, paths in new.items()}
        messages, records = (journal.frame(kind, found[kind]) for kind in schema.KINDS)
        # a run that is not audited has no fresh rows
        paths = {path for some in found.values() for path in some}
        runs = {segment.run for there in self.there.values() for segment in there if segment.path in paths}
        all_bases = {item.run: item.base if item.new else 1 << 62 for item in items if item.run in runs}
        describe(journal.spark, "journal: which rows there are")
        blocks = bronze.probe(messages, records, all_bases)
        auditor = Auditor(journal.spark, self.store.storage, self.store.staging, self.partial)
        lives = bronze.lives(messages, all_bases) if any(row["lives"] for row in blocks if row["fresh"]) else []
        auditor.open(items, blocks, lives)
        messages, records = (journal.frame(kind, new[kind]) for kind in schema.KINDS)
        return _Audit(auditor, messages, records, blocks, again)

    def _near(
        self, units: Sequence[str], blocks: Iterable[Mapping[str, Any]], dirty: dict[str, list[str]]
    ) -> dict[str, list[str]]:
        """The segments of the hours, of the hours around them (a bridged request may have parts there), and of earlier hours that have
        messages about requests which ended in them, or about nodes of flows which did."""
        around = {shifted(unit, by) for unit in units for by in (-1, 1)} - set(units)
        found = self._segments(sorted(around & set(self.there)))
        for row in blocks:
            if row["back"] is not None:
                for unit in between(unit_of_hour(row["back"]), shifted(unit_of_hour(row["h"]), -1)):
                    if unit not in units and unit not in around:
                        found += [
                            one
                            for one in self.there.get(unit, ())
                            if one.run == row["run"] and one.kind == schema.MESSAGES
                        ]
        backs = [(row["flow_back"], row["h"]) for row in blocks if row["flow_back"] is not None]
        if backs:  # whichever brokers ran the nodes
            first, last = min(back for back, _ in backs), max(hour for _, hour in backs)
            for unit in set(between(unit_of_hour(first), unit_of_hour(last))) - set(units) - around:
                found += [one for one in self.there.get(unit, ()) if one.kind == schema.MESSAGES]
        more = self._open(found)
        return {kind: sorted({*dirty[kind], *more[kind]}) for kind in schema.KINDS}

    def _stays(self, auditor: Auditor, units: Sequence[str]) -> list[tuple[Any, ...]]:
        """When workers were present, of all runs that lived in these hours."""
        first, last = hour_of(min(units)) * HOUR_US, (hour_of(max(units)) + 1) * HOUR_US
        made = [row for run in auditor.runs.values() for row in stays(run.facts, run.workers())]
        for run, folder in self.states.items():
            if run not in auditor.runs:
                facts = load_facts(f"{folder}/facts.json", run)
                if facts.begins < last and facts.time >= first:
                    made += stays(facts, self.store.storage.table(f"{folder}/workers.parquet").to_pylist())
        return made

    def _once(self, auditor: Auditor, work: Computation, units: Sequence[str]) -> None:
        """Checks events that must happen only once, over all runs."""
        if not work.counts["once"]:
            return
        store, folder = self.store, f"{self.store.own}/once"
        saved = {}
        for name in store.storage.names(folder):
            unit = f"{name[:10]}/{name[11:13]}"
            if name[0].isdigit() and unit not in units and unit >= floor_of(store):
                saved[unit] = f"{folder}/{name}"
        once = Once(store.storage, store.own, store.staging, saved, floor_of(store), self.partial)
        found = once.check(work.messages)
        if found is None:
            return
        breaches, counts, newest = found
        facts = Facts(ALL_RUNS, units=once.published())
        latest = max([newest, *facts.units.get("audit_rules", [])])
        auditor.stage_audit(facts, breaches.drop_columns(["once"]).to_pylist())
        auditor.stage_rules(facts, latest, rule_rows(counts))
        once.save(breaches, facts.units)

    # --- the commit -----------------------------------------------------------------------------------------------------------

    def _commit(
        self,
        units: Sequence[str],
        more: Sequence[str],
        blocks: Iterable[Mapping[str, Any]],
        sums: SavedSums,
        rows: dict[str, int],
    ) -> None:
        opened = self.store.open_logs(units)
        notes: dict[str, dict[str, Any]] = {}
        for unit in units:
            good = [segment for segment in self.there.get(unit, ()) if segment.path in self.read]
            notes[unit] = {
                "segments": sorted(segment.id for segment in good),
                "bounds": self._bounds(unit),
                "engine": ENGINE,
            }
            mine = [row for row in blocks if row["h"] == hour_of(unit)]
            notes[unit]["open"] = opened.get(unit, 0) + sum(row["parts"] for row in mine)
            back: dict[str, str] = {}
            for row in mine:
                if row["back"] is not None:
                    name = run_name(row["run"])
                    back[name] = min(back.get(name, "~"), unit_of_hour(row["back"]))
                if row["flow_back"] is not None:
                    back["flows"] = min(back.get("flows", "~"), unit_of_hour(row["flow_back"]))
            notes[unit]["back"] = back
            notes[unit]["spill"] = sums.spilled.get(unit, {})
        taken = {one for known in self.known.values() for one in known.get("segments", ())}
        self.summary.segments = len({one for known in notes.values() for one in known["segments"]} - taken)
        self.summary.rows = {**self.store.staged_rows(), **rows}
        removes = [*self.gone, *sums.gone(), *self._outdated()]
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
