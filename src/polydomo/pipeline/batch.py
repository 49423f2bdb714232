"""``polydomo pipeline run``: loads new segments of the journal into the tables.

The driver only compares names and creates a plan: which hours are rebuilt, and from which row each run is audited.
Tasks (``engine``) do the rest.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow.dataset as ds

from polydomo import limits
from polydomo.journal import schema
from polydomo.journal.ids import decode, run_name
from polydomo.pipeline import segments
from polydomo.pipeline.commit import PARQUET, Store
from polydomo.pipeline.engine.plan import HourItem, Payload, Plan, RunItem
from polydomo.pipeline.engine.run import Facts, load_facts
from polydomo.pipeline.executors import Executor, InProcess
from polydomo.pipeline.formats import Format
from polydomo.pipeline.maintain import floor_of
from polydomo.pipeline.segments import FoundSegments, ProcessedRanges, Segment, between, shifted, unit_of
from polydomo.pipeline.tables.audit import CHECKS
from polydomo.pipeline.tables.capacity import Objective

Tell = Callable[[str], None]


@dataclass
class Summary:
    """The result of a run."""

    segments: int = 0  # loaded by this run
    units: list[str] = field(default_factory=list)  # hours that were recomputed
    rows: dict[str, int] = field(default_factory=dict)  # written in these hours, by table
    breaches: dict[str, int] = field(default_factory=dict)  # by rule, in the whole tables
    unchecked: list[str] = field(
        default_factory=list
    )  # rules that could not be checked because of the journal level of some run
    runs: int = 0  # in the whole tables
    problems: list[str] = field(default_factory=list)
    tasks: int = 0
    seconds: float = 0.0
    where: str = ""  # where the tasks ran

    def verdict(self) -> str:
        """The audit's result in one sentence."""
        if not self.runs:
            return "Audit: there is nothing to check yet."
        some = f"{self.runs} broker run{'s' if self.runs != 1 else ''}"
        left = ""
        if self.unchecked:
            left = f" {counted(len(self.unchecked), 'rule')} could not be checked in every run (journal level messages records enough)."
        if not self.breaches:
            return f"Audit: no rule was broken in {some}.{left}"
        count = sum(self.breaches.values())
        each = ", ".join(f"{rule} {n}" for rule, n in sorted(self.breaches.items()))
        return f"Audit: {count} breach{'es' if count != 1 else ''} of the rules in {some}: {each}.{left}"


@dataclass
class Options:
    since: datetime | None = None
    until: datetime | None = None
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    payloads: Sequence[Payload] = ()
    format: str = PARQUET


def run(
    journals: Sequence[str],
    tables: str,
    options: Options | None = None,
    executor: Executor | None = None,
    tell: Tell = lambda line: None,
    step: Callable[[str], None] = lambda name: None,
) -> Summary:
    """Loads new segments. ``tell`` is called with progress messages, ``step`` with the steps of the commit."""
    summary = Summary()
    chosen = options or Options()
    found = segments.find(journals, chosen.since, chosen.until)
    with Store(tables, step) as store:
        summary.problems += found.problems
        if store.recovered:
            tell(store.recovered)
        Batch(store, found, chosen, executor or InProcess(), tell, summary).run()
        conclude(store, summary)
    return summary


def conclude(store: Store, summary: Summary) -> None:
    """The audit's result for the whole tables."""
    path = store.path(CHECKS.name)
    if not store.storage.exists(path):
        return
    system = getattr(store.storage, "system", None)
    inner = getattr(store.storage, "inner", lambda path: path)
    checks = ds.dataset(inner(path), format="parquet", filesystem=system).to_table(
        columns=["rule", "breaches", "checkable", "run"]
    )
    grouped = checks.group_by("rule").aggregate([("breaches", "sum"), ("checkable", "min"), ("run", "count_distinct")])
    for row in grouped.to_pylist():
        summary.runs = max(summary.runs, row["run_count_distinct"])
        if row["breaches_sum"]:
            summary.breaches[row["rule"]] = row["breaches_sum"]
        if not row["checkable_min"]:
            summary.unchecked.append(row["rule"])
    summary.unchecked.sort()


class Batch:
    """One run over the new segments."""

    def __init__(
        self, store: Store, found: FoundSegments, options: Options, executor: Executor, tell: Tell, summary: Summary
    ) -> None:
        self.store = store
        self.options = options
        self.executor = executor
        self.tell = tell
        self.summary = summary
        self.roots = found.roots
        self.known = store.units()
        floor = floor_of(store)  # hours before it were removed by `polydomo pipeline maintain`
        self.there = {unit: there for unit, there in found.units().items() if unit >= floor}
        self.partial = options.since is not None or options.until is not None
        self.format = Format(options.format)
        self.notes: list[dict[str, Any]] = []
        self.states: dict[int, str] = {}  # run -> directory of its saved state

    def run(self) -> None:
        began = time.monotonic()
        fresh = self._fresh()
        if not fresh:
            hint = f"; no segments were found in {', '.join(self.roots)}" if not self.there and not self.known else ""
            self.tell(f"nothing new{hint}")
            return
        self.format.check(self.executor)
        self.summary.segments = sum(len(found) for found in fresh.values())
        units = self._dirty(fresh)
        span = str(units[0]) if len(units) == 1 else f"{units[0]} to {units[-1]}"
        self.tell(f"{counted(self.summary.segments, 'new segment')}; {counted(len(units), 'hour')} to compute: {span}")
        self._saved_runs()
        plan = self._plan(units, fresh)
        self._execute(plan)
        units = self._again(plan, units)
        self.summary.units = units
        self._commit(units)
        self.summary.seconds = time.monotonic() - began
        where = f"{self.summary.tasks} tasks on {self.executor.where}"
        self.tell(
            f"{where}, {self.summary.seconds:.1f} s; rows: "
            + ", ".join(f"{t} {n:,}" for t, n in sorted(self.summary.rows.items()))
        )

    # --- new segments -----------------------------------------------------------------------------------------------------

    def _fresh(self) -> dict[str, list[Segment]]:
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

    def _dirty(self, fresh: Mapping[str, Sequence[Segment]]) -> list[str]:
        """The hours to rebuild."""
        dirty = set(fresh)
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

    # --- the plan -----------------------------------------------------------------------------------------------------------

    def _saved_runs(self) -> None:
        """Lists the runs that have a saved audit state."""
        folder = f"{self.store.own}/runs"
        self.states = {decode(name): f"{folder}/{name}" for name in self.store.storage.names(folder)}

    def _plan(self, units: Sequence[str], fresh: Mapping[str, Sequence[Segment]]) -> Plan:
        plan = Plan(self.roots, self.store.root, self.store.staging, since=self.options.since, until=self.options.until)
        plan.units = list(units)
        plan.objectives = dict(self.options.objectives)
        plan.payloads = list(self.options.payloads)
        plan.partial = self.partial
        self._once(plan, units)
        plan.hours = self._hours(units)
        plan.spills = self._spills(units)
        new: dict[int, list[Segment]] = {}
        for found in fresh.values():
            for segment in found:
                new.setdefault(segment.run, []).append(segment)
        lives = self._lives()
        for run, (first, last) in lives.items():
            mine = tuple(unit for unit in units if first <= unit <= last)
            if mine or run in new:
                plan.runs[run] = self._run_item(run, mine, new.get(run, []))
        for run in self.states:
            if run not in plan.runs:
                plan.known_runs[run] = self._known_run(run, ())
        return plan

    def _once(self, plan: Plan, units: Sequence[str]) -> None:
        """Saved files of events that must happen only once: staged by this batch, or published before."""
        plan.floor = floor_of(self.store)
        found: dict[str, str] = {}
        for folder in (f"{self.store.own}/once", f"{self.store.staging}/_once"):
            for name in self.store.storage.names(folder):
                found[name] = f"{folder}/{name}"
        plan.once_breaches = found.pop("breaches.parquet", "")
        plan.once_facts = found.pop("facts.json", "")
        for name, path in found.items():
            unit = f"{name[:10]}/{name[11:13]}"
            if unit not in units and unit >= plan.floor:
                plan.once[unit] = path

    def _hours(self, units: Sequence[str]) -> list[HourItem]:
        made = []
        for unit in units:
            made += self._items(unit)
        around = {shifted(unit, by) for unit in units for by in (-1, 1)} - set(units)
        for unit in sorted(around & set(self.there)):
            made += self._items(unit, peek=True)
        return made

    def _items(self, unit: str, peek: bool = False) -> list[HourItem]:
        runs: dict[int, dict[str, list[Segment]]] = {}
        for segment in self.there.get(unit, ()):
            runs.setdefault(segment.run, {kind: [] for kind in schema.KINDS})[segment.kind].append(segment)
        made = []
        for run, kinds in runs.items():
            messages, requests = (tuple(segment.path for segment in kinds[kind]) for kind in schema.KINDS)
            others = tuple(
                segment.path for other, more in runs.items() if other != run for segment in more[schema.MESSAGES]
            )
            rows = max(sum(segment.rows for segment in kinds[kind]) for kind in schema.KINDS)
            parts = 1 if peek else max(1, -(-rows // limits.PIPELINE_TASK_ROWS))
            made += [HourItem(unit, run, messages, requests, others, part, parts, peek) for part in range(parts)]
        return made

    def _spills(self, units: Iterable[str], staged: Iterable[str] = ()) -> dict[str, list[str]]:
        """Files in which hours that are not recomputed saved work that belongs to these hours."""
        wanted = set(units)
        made: dict[str, list[str]] = {}
        for source, known in self.known.items():
            if source not in wanted and source not in staged:
                for target in known.get("spill", {}):
                    if target in wanted:
                        made.setdefault(target, []).append(f"{self.store.own}/spill/{source.replace('/', '-')}.parquet")
        return made

    def _run_item(self, run: int, units: tuple[str, ...], new: Sequence[Segment]) -> RunItem:
        every = [segment for there in self.there.values() for segment in there if segment.run == run]
        if self.partial:
            paths = _paths(every)
            return RunItem(run, units, *paths, all_messages=paths[0], all_requests=paths[1])
        known = self._known_run(run, units)
        if not new:
            return (
                known
                if known.facts
                else RunItem(run, units, *_paths(every), all_messages=_paths(every)[0], all_requests=_paths(every)[1])
            )
        base, state = self._base(run, known, new, every)
        later = _paths(segment for segment in every if segment.last > base)
        whole = _paths(every)
        return RunItem(
            run, units, *later, base=base, state=state, workers=known.workers, facts=known.facts, breaches=known.breaches,
            all_messages=whole[0], all_requests=whole[1],
        )  # fmt: skip

    def _known_run(self, run: int, units: tuple[str, ...]) -> RunItem:
        """The item of a run without new rows, from its saved state."""
        folder = self.states.get(run)
        if folder is None:
            return RunItem(run, units, new=False)
        facts = load_facts(f"{folder}/facts.json", run)
        state = tuple(f"{folder}/{name}" for seq, _, name in facts.states if seq == facts.last)
        whole = _paths(segment for there in self.there.values() for segment in there if segment.run == run)
        return RunItem(
            run, units, base=facts.last, state=state, workers=f"{folder}/workers.parquet", facts=f"{folder}/facts.json",
            breaches=f"{folder}/breaches.parquet", all_messages=whole[0], all_requests=whole[1], new=False,
        )  # fmt: skip

    def _base(
        self, run: int, known: RunItem, new: Sequence[Segment], every: Sequence[Segment]
    ) -> tuple[int, tuple[str, ...]]:
        """The newest saved state before all new rows: its sequence number and its path. The audit starts after it."""
        if not known.facts:
            return 0, ()
        facts = load_facts(known.facts, run)
        first = min(segment.first for segment in new)
        folder = self.states[run]
        for seq, _, name in sorted(facts.states, reverse=True):
            if seq < first:
                if not self._covered(facts, seq, every):
                    break
                return seq, (f"{folder}/{name}",)
        else:
            if self._covered(facts, max(0, facts.first - 1), every):
                return 0, ()
        self.summary.problems.append(
            f"run {run_name(run)}: late rows are not audited: rows after them are no longer in the journal, "
            "so the audit cannot be repeated from there"
        )
        return facts.last, known.state

    def _covered(self, facts: Facts, base: int, every: Sequence[Segment]) -> bool:
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

    def _execute(self, plan: Plan) -> None:
        self.summary.tasks += len(plan.hours) + len(plan.addresses(2)) + len(plan.addresses(3))
        self.notes += self.executor.run(plan)

    def _noted(self, what: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note.get("what") == what]

    def _spill_notes(self) -> dict[str, dict[str, str]]:
        """By hour: the earlier hours for which it found work, with a digest of it."""
        made: dict[str, dict[str, str]] = {}
        for note in self._noted("spill"):
            target = unit_of(datetime.fromtimestamp(note["hour"] * 3600, UTC))
            made.setdefault(note["unit"], {})[target] = note["digest"]
        return made

    def _again(self, plan: Plan, units: list[str]) -> list[str]:
        """Rebuilds earlier hours for which this batch found results that differ from the tables."""
        changed: set[str] = set()
        spilled = self._spill_notes()
        for unit in units:
            before, now = self.known.get(unit, {}).get("spill", {}), spilled.get(unit, {})
            changed |= {target for target in {*before, *now} if before.get(target) != now.get(target)}
        more = sorted(unit for unit in changed - set(units) if unit in self.there)
        if not more:
            return units
        self.tell(f"{len(more)} earlier hours have work that ended later: {more[0]} to {more[-1]}")
        second = Plan(self.roots, self.store.root, self.store.staging, units=more, hours=self._hours(more))
        second.objectives, second.payloads = plan.objectives, plan.payloads
        second.since, second.until, second.partial = plan.since, plan.until, plan.partial
        self._once(second, more)
        second.spills = self._spills(more, units)
        for source, targets in spilled.items():
            for target in targets:
                if target in more:
                    path = f"{self.store.staging}/_spill/{source.replace('/', '-')}.parquet"
                    second.spills.setdefault(target, []).append(path)
        for run, (first, last) in self._lives().items():
            mine = tuple(unit for unit in more if first <= unit <= last)
            if mine:
                second.runs[run] = self._staged_run(plan, run, mine)
        self._execute(second)
        return sorted({*units, *more})

    def _staged_run(self, plan: Plan, run: int, units: tuple[str, ...]) -> RunItem:
        """The item of a run whose presence is needed again. Its state may be staged already."""
        folder = f"{self.store.staging}/_runs/{run_name(run)}"
        if self.store.storage.exists(f"{folder}/facts.json"):
            return RunItem(run, units, workers=f"{folder}/workers.parquet", facts=f"{folder}/facts.json", new=False)
        if run in plan.runs and self.partial:
            return RunItem(**{**plan.runs[run].__dict__, "units": units})
        return self._known_run(run, units)

    # --- the commit -----------------------------------------------------------------------------------------------------------

    def _commit(self, units: Sequence[str]) -> None:
        for note in self._noted("rows"):
            if note["table"] is not None:
                self.summary.rows[note["table"]] = self.summary.rows.get(note["table"], 0) + note["count"]
        for note in self._noted("problem"):
            if note["line"] not in self.summary.problems:
                self.summary.problems.append(note["line"])
        read = {note["path"] for note in self._noted("read")}
        spilled = self._spill_notes()
        notes: dict[str, dict[str, Any]] = {}
        for unit in units:
            good = [segment for segment in self.there.get(unit, ()) if segment.path in read]
            notes[unit] = {"segments": sorted(segment.id for segment in good), "bounds": self._bounds(unit)}
            notes[unit]["open"] = sum(note["count"] for note in self._noted("open") if note["unit"] == unit)
            notes[unit]["back"] = {
                run_name(note["run"]): note["to"] for note in self._noted("back") if note["unit"] == unit
            }
            notes[unit]["spill"] = spilled.get(unit, {})
        taken = {one for known in self.known.values() for one in known.get("segments", ())}
        self.summary.segments = len({one for known in notes.values() for one in known["segments"]} - taken)
        self.format.publish(self.executor, self.store, notes, self._outdated())

    def _outdated(self) -> list[str]:
        """Published files that nothing replaces: of runs without breaches left in an hour, and outdated states."""
        gone = []
        for note in self._noted("gone"):
            date, hour = note["unit"].split("/")
            gone.append(f"{self.store.path(note['table'])}/date={date}/hour={hour}/{run_name(note['run'])}.parquet")
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


def _paths(found: Iterable[Segment]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths of messages and of requests, ordered by sequence number."""
    ordered = sorted(found, key=lambda segment: (segment.unit, segment.first))
    messages, requests = (tuple(segment.path for segment in ordered if segment.kind == kind) for kind in schema.KINDS)
    return messages, requests


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "hour"), counted(3, "hour")
    ('1 hour', '3 hours')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
