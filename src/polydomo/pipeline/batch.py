"""``polydomo pipeline run``: from segments that are not in the tables yet to tables that have them."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from polydomo.journal import schema
from polydomo.journal.segments import Ranges
from polydomo.pipeline import segments
from polydomo.pipeline.commit import PARQUET, Store
from polydomo.pipeline.segments import Found, Segment
from polydomo.pipeline.session import SMALL, interpreted
from polydomo.pipeline.tables import (
    TABLES,
    audit,
    capacity,
    hops,
    local,
    logs,
    requests,
    services,
    topology,
    values,
    workers,
)
from polydomo.pipeline.tables.capacity import Objective
from polydomo.pipeline.tables.marks import marked
from polydomo.pipeline.tables.rare import rare
from polydomo.pipeline.tables.table import FEW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = (PARQUET, "delta", "iceberg")
AT_ONCE = 3  # jobs whose plans are made at the same time; how many tasks run is the cluster's affair
MOST_BROADCAST = 1_000_000  # rows of about 100 bytes


@dataclass
class Summary:
    """What a run did, for people and for scripts."""

    segments: int = 0  # taken in by this run
    units: list[str] = field(default_factory=list)  # hours that were made anew
    rows: dict[str, int] = field(default_factory=dict)  # of the tables, in these hours
    breaches: dict[str, int] = field(default_factory=dict)  # by rule, in all of the tables
    unchecked: list[str] = field(default_factory=list)  # rules that the level of some run did not let check
    runs: int = 0  # in all of the tables
    problems: list[str] = field(default_factory=list)
    recovered: str = ""
    seconds: dict[str, float] = field(default_factory=dict)  # by table

    def verdict(self) -> str:
        """The audit in plain words."""
        if not self.runs:
            return "Audit: there is nothing to check yet."
        some = f"{self.runs} run{'s' if self.runs != 1 else ''} of brokers"
        left = (
            f" The journal's level did not show enough to check: {', '.join(self.unchecked)}." if self.unchecked else ""
        )
        if not self.breaches:
            return f"Audit: no rule was broken in {some}.{left}"
        count = sum(self.breaches.values())
        each = ", ".join(f"{rule} {n}" for rule, n in sorted(self.breaches.items()))
        return f"Audit: {count} breach{'es' if count != 1 else ''} of the rules in {some}: {each}.{left}"


Tell = Callable[[str], None]


def run(
    spark: "SparkSession",
    journals: Sequence[str],
    tables: str,
    since: datetime | None = None,
    until: datetime | None = None,
    format: str = PARQUET,
    objectives: Mapping[str, Objective] | None = None,
    tell: Tell = lambda line: None,
    step: Callable[[str], None] = lambda name: None,
) -> Summary:
    """Takes in what is new. ``tell`` hears what is being done."""
    summary = Summary()
    with Store(spark, tables, format, step) as store:
        found = segments.find(spark, journals, since, until)
        summary.problems += found.problems
        Batch(spark, store, found, since, until, objectives or {}, tell, summary).run()
        conclude(store, summary)
    return summary


def conclude(store: Store, summary: Summary) -> None:
    """The verdict over all that the tables hold."""
    checks = store.read(audit.CHECKS.name)
    if checks is None:
        return
    for row in checks.groupBy("rule").agg({"breaches": "sum", "checkable": "min", "run": "count"}).collect():
        summary.runs = max(summary.runs, row["count(run)"])
        if row["sum(breaches)"]:
            summary.breaches[row.rule] = row["sum(breaches)"]
        if not row["min(checkable)"]:
            summary.unchecked.append(row.rule)
    summary.unchecked.sort()


class Batch:
    """One run over what is new."""

    def __init__(
        self, spark: "SparkSession", store: Store, found: Found, since: datetime | None, until: datetime | None,
        objectives: Mapping[str, Objective], tell: Tell, summary: Summary,
    ) -> None:  # fmt: skip
        self.spark = spark
        self.store = store
        self.since = since
        self.until = until
        self.objectives = objectives
        self.tell = tell
        self.summary = summary
        self.known = store.units()
        self.there = found.units()
        self.bounds = [str(since or ""), str(until or "")]
        self.early = False  # publish the tables that are asked for first before the others are made
        self.kept: dict[frozenset[str], DataFrame] = {}  # rare messages, by the segments they are of
        self.keeping = threading.Lock()

    def run(self) -> None:
        fresh = self._fresh()
        if not fresh:
            self.tell("nothing new")
            return
        dirty = set(fresh)
        self.summary.segments = sum(len(found) for found in fresh.values())
        for unit in sorted(dirty):  # what lies over the edge of an hour
            if after(unit) in self.known and after(unit) in self.there:
                dirty.add(after(unit))
            if self.known.get(before(unit), {}).get("open") and before(unit) in self.there:
                dirty.add(before(unit))
        if self.store.format != PARQUET:  # which replace whole dates
            dates = {unit.split("/")[0] for unit in dirty}
            dirty |= {unit for unit in self.there if unit.split("/")[0] in dates}
        units = sorted(dirty)
        self.summary.units = units
        self.tell(
            f"{counted(self.summary.segments, 'new segment')}, in {counted(len(units), 'hour')}: {units[0]} to {units[-1]}"
        )
        runs = {segment.run for unit in units for segment in self.there[unit]}
        rows = sum(segment.rows for there in self.there.values() for segment in there if segment.run in runs)
        try:
            with interpreted(self.spark, rows < SMALL):
                if self.early and self.store.format == PARQUET:
                    opened = self._tables(units, lambda: self._audit(runs))
                else:
                    opened, _ = self._together([lambda: self._tables(units), lambda: self._audit(runs)])
        finally:
            for frame in self.kept.values():
                frame.unpersist()
        self.store.commit(
            {
                unit: {
                    "segments": [s.id for s in self.there[unit]],
                    "bounds": self._bounds(unit),
                    "open": opened.get(unit, 0),
                }
                for unit in units
            }
        )

    def _fresh(self) -> dict[str, list[Segment]]:
        """The segments that are not in the tables, by unit. Those that cannot be read are left out of all that follows."""
        fresh = {}
        for unit, there in list(self.there.items()):
            taken = segments.ranges(self.known.get(unit, {}).get("segments", ()))
            new = [segment for segment in there if not segments.covered(segment, taken)]
            good = segments.whole(self.spark, new, self.summary.problems)
            merged = [segment for segment in good if _only_merged(segment, taken)]  # nothing in them is new
            good = [segment for segment in good if segment not in merged]
            old = [segment for segment in there if segments.covered(segment, taken)] + merged
            self.there[unit] = old + good
            present = segments.ranges(segment.id for segment in self.there[unit])
            gone = [
                (key, one)
                for key, known in taken.items()
                for one in known
                if key not in present or not present[key].covers(*one)
            ]
            if good and gone:
                self.summary.problems.append(
                    f"{unit}: {len(good)} late segments left out: {len(gone)} others of that hour are in the tables "
                    "and no longer in the journal"
                )
                self.there[unit] = old
            elif good or (taken and not gone and self.known[unit].get("bounds") != self._bounds(unit)):
                fresh[unit] = good
            if not self.there[unit]:
                del self.there[unit]
        return fresh

    def _bounds(self, unit: str) -> list[str]:
        """Where ``since`` or ``until`` cuts through the hour."""
        edges = [f"{moment:%Y-%m-%d/%H}" if moment else "" for moment in (self.since, self.until)]
        return [bound if edge == unit else "" for bound, edge in zip(self.bounds, edges, strict=True)]

    def _read(self, kind: str, units: Iterable[str]) -> "DataFrame":
        return segments.read(
            self.spark, kind, [s for unit in units for s in self.there.get(unit, ())], self.since, self.until
        )

    def _rare(self, mine: "Sequence[Segment]") -> "DataFrame":
        """The messages of which there are few. Many look for them: they are read once."""
        messages = [segment for segment in mine if segment.kind == schema.MESSAGES]
        with self.keeping:
            names = frozenset(segment.id for segment in messages)
            if names not in self.kept:
                self.kept[names] = rare(
                    segments.read(self.spark, schema.MESSAGES, messages, self.since, self.until)
                ).persist()
            return self.kept[names]

    # --- tables that are made hour by hour --------------------------------------------------------------------------------

    def _tables(self, units: list[str], later: Callable[[], None] | None = None) -> dict[str, int]:
        """Stages them all. Returns, by unit, how many requests continue one that is not known yet.

        If there is something to be done ``later``, ``requests`` and ``services`` are published before it. The units are not noted then: if
        the rest is never made, the next run makes all of them anew.
        """
        rows = self._read(schema.REQUESTS, units)
        told = requests.survey(rows).collect()[0]
        bridged = bool(told.bridge)
        # hours beside these have to be looked at too: for requests over bridges, and for long ones that had several workers
        near = {hour for unit in units for hour in (before(unit), after(unit))} if bridged else set()
        around = sorted({*units, *(near & set(self.there))})
        if around != units:
            rows = self._read(schema.REQUESTS, around)
            told = requests.survey(rows).collect()[0]
        earliest = f"{told.earliest:%Y-%m-%d/%H}" if told.earliest else ""
        early = sorted(unit for unit in self.there if earliest and earliest <= unit < units[0]) + units
        messages = self._read(schema.MESSAGES, units)
        few = self._rare([segment for unit in units for segment in self.there[unit]])
        parts = self._parts(rows, told.doubtful)
        links = self._links(parts) if bridged else None
        inside = self._inside(units)
        own = (
            parts
            if around == units
            else parts.where(inside.replace("date", "to_date(time)").replace("hour", "hour(time)"))
        )
        keep = inside if around != units else "true"

        def turns() -> None:
            made = hops.build(parts, links, self._read(schema.MESSAGES, early), lambda few: few.localCheckpoint())
            self._stage("hops", made.where(keep), units)
            self._stage(
                "workers",
                workers.build(self._staged("hops"), few, lambda done: done.localCheckpoint()).where(inside),
                units,
            )

        first: list[Callable[[], None]] = [
            lambda: self._stage("requests", requests.build(parts, links).where(keep), units),
            lambda: self._stage("services", services.build(own, few), units),
        ]
        then: list[Callable[[], None]] = [
            lambda: self._stage("logs", logs.build(few, own), units),
            lambda: self._stage("values", values.build(messages), units),
        ]
        if later is None:
            self._together([turns, *first, *then])
        else:
            self._together(first)
            self.store.commit({})
            self._together([turns, later, *then])
        made = {name: self._staged(name, inside) for name in ("requests", "hops", "services", "workers")}
        self._together(
            [
                lambda: self._stage("topology", topology.build(made["requests"], made["hops"]), units),
                lambda: self._stage(
                    "capacity", capacity.build(made["services"], made["workers"], self.objectives), units
                ),
            ]
        )
        return self._open([made["requests"].where("parent != ''")] if bridged else [])

    def _open(self, open: "list[DataFrame]") -> dict[str, int]:
        """By unit, how many rows have what they lack in the hour after, if anywhere; and log records of requests that had not ended."""
        logged = self.store.read_staged("logs")
        open += [logged.where("number != 0 AND request = ''")] if logged is not None else []
        if not open:
            return {}
        rows = [frame.select("date", "hour") for frame in open]
        waiting = (rows[0] if len(rows) == 1 else rows[0].unionAll(rows[1])).groupBy("date", "hour").count().collect()
        return {f"{row['date']}/{row['hour']:02d}": row["count"] for row in waiting}

    def _parts(self, rows: "DataFrame", doubtful: list[Any]) -> "DataFrame":
        """Each request once. Of those on record more than once there are few: they are settled, and read apart from the rest."""
        if not doubtful:
            return rows
        words = local.frame(self.spark, doubtful, (("run", "BIGINT"), ("word", "BIGINT"), ("bits", "BIGINT")))
        twice = requests.twice(marked(rows.select("run", "number", "seq"), words)).collect()
        if not twice:
            return rows
        if len(twice) <= FEW and all(row.seqs[0] < row.seqs[1] for row in twice):
            return requests.without(rows, [(row.run, row.number, seq) for row in twice for seq in row.seqs[1:]])
        keys = [(row.run, row.number) for row in twice]
        return requests.parts(rows, local.frame(self.spark, keys, (("run", "BIGINT"), ("number", "BIGINT"))))

    def _links(self, parts: "DataFrame") -> "DataFrame":
        """How requests continue over bridges. Small, and settled, so that no plan holds the way to it."""
        from pyspark.sql.functions import broadcast

        links = requests.links(parts).localCheckpoint()
        for _ in range(requests.BRIDGES_DOUBLED):
            if links.join(links.selectExpr("part AS root"), "root", "left_semi").isEmpty():
                break  # no root is itself the part of another
            links = requests.doubled(links).localCheckpoint()
        return broadcast(links) if links.count() <= MOST_BROADCAST else links

    def _together(self, work: "Sequence[Callable[[], Any]]") -> list[Any]:
        """Plans of some are made while others run. The first failure is raised when all have ended."""
        with ThreadPoolExecutor(AT_ONCE, "polydomo") as pool:
            return [done.result() for done in [pool.submit(do) for do in work]]

    def _inside(self, units: list[str]) -> str:
        dates: dict[str, list[str]] = {}
        for unit in units:
            dates.setdefault(unit.split("/")[0], []).append(str(int(unit.split("/")[1])))
        return " OR ".join(f"(date = DATE '{date}' AND hour IN ({', '.join(hours)}))" for date, hours in dates.items())

    def _staged(self, table: str, inside: str = "true") -> "DataFrame":
        """What this run has made of a table, staged or published already; of the latter, what is ``inside`` its units."""
        old = table not in self.store.staged
        made = self.store.read(table) if old else self.store.read_staged(table)
        if old and made is not None:
            made = made.where(inside)
        return made if made is not None else local.frame(self.spark, [], TABLES[table].pairs)

    def _stage(self, table: str, frame: "DataFrame", units: Iterable[str]) -> None:
        began = time.monotonic()
        self.store.stage(table, frame, units)
        self.summary.seconds[table] = time.monotonic() - began
        self.tell(f"{table}: {self.summary.seconds[table]:.1f} s")

    # --- the audit, which is made run by run ------------------------------------------------------------------------------

    def _audit(self, runs: set[int]) -> None:
        """Whole runs are audited: what was found in them before is replaced, but for what stands in segments that are no longer there."""
        mine = [segment for there in self.there.values() for segment in there if segment.run in runs]
        # a row of one run may account for what another lost
        others = [segment for there in self.there.values() for segment in there if segment.run not in runs]
        messages = segments.read(self.spark, schema.MESSAGES, mine, self.since, self.until)
        finished = segments.read(self.spark, schema.REQUESTS, mine, self.since, self.until)
        words = (
            segments.read(self.spark, schema.MESSAGES, others, self.since, self.until).where(
                f"covers_run IN ({', '.join(map(str, runs))})"
            )
            if others
            else None
        )
        began = time.monotonic()
        made = audit.Audit(messages, finished, words, self._together, self._rare(mine)).run()
        first: dict[int, int] = {}
        for segment in mine:
            first[segment.run] = min(segment.first, first.get(segment.run, segment.first))
        self._replace(audit.TABLE.name, made.breaches, first)
        self._replace(audit.CHECKS.name, made.checks, dict.fromkeys(runs, 1))
        self.summary.seconds["audit"] = time.monotonic() - began
        self.tell(f"audit: {self.summary.seconds['audit']:.1f} s")

    def _frame(self, table: str, rows: Iterable[Any]) -> "DataFrame":
        return local.frame(self.spark, rows, TABLES[table].pairs).coalesce(1)

    def _replace(self, table: str, rows: list[Any], first: dict[int, int]) -> None:
        """Rows of these runs, from the first sequence number of each that is still in the journal, are replaced."""
        old = self.store.read(table)
        kept: list[Any] = []
        units = {_unit(row) for row in rows}
        if old is not None:
            before = old.collect()
            gone = [
                row for row in before if row.run in first and (table != audit.TABLE.name or row.seq >= first[row.run])
            ]
            units |= {_unit(row) for row in gone}
            kept = [row for row in before if row not in gone and _unit(row) in units]
        self.store.stage(table, self._frame(table, rows + kept), units)


def _only_merged(segment: Segment, taken: Mapping[tuple[str, int], Ranges]) -> bool:
    """Whether it was merged from segments that are all in the tables."""
    known = taken.get((segment.kind, segment.run))
    parts = segments.merged_of(segment) if known is not None else []
    return known is not None and bool(parts) and all(known.covers(*part) for part in parts)


def _unit(row: Any) -> str:
    hour, date = row[-2:]  # every table ends with these
    return f"{date}/{hour:02d}"


def _shifted(unit: str, hours: int) -> str:
    moment = datetime.strptime(unit, "%Y-%m-%d/%H").replace(tzinfo=UTC) + timedelta(hours=hours)
    return f"{moment:%Y-%m-%d/%H}"


def before(unit: str) -> str:
    return _shifted(unit, -1)


def after(unit: str) -> str:
    return _shifted(unit, 1)


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "hour"), counted(3, "hour")
    ('1 hour', '3 hours')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
