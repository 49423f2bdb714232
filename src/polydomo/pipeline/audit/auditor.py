"""Audits the new rows of all runs of a batch, and saves the state for the next batch.

Spark finds the keys that must be checked (``prefilter``) and checks them (``judge``). The driver keeps the books of each run: which rows
there are, which requests are complete, when workers were present (``facts``).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from polydomo.journal import schema
from polydomo.journal.ids import run_name
from polydomo.journal.reading import rules
from polydomo.journal.reading.rules import CONNECTION, REQUEST, RULES, SERVICE
from polydomo.pipeline.audit import prefilter
from polydomo.pipeline.audit.facts import (
    KEPT_STATES,
    STATE,
    WORKERS,
    Facts,
    Range,
    load_facts,
    merged,
    overlap,
    present,
    ranges_of,
)
from polydomo.pipeline.audit.judge import BLOCKS, Scope, judged
from polydomo.pipeline.audit.judge import STATE as STATE_DDL
from polydomo.pipeline.bronze import BASE, BLOCK, based, empty, local
from polydomo.pipeline.commit import TableStore
from polydomo.pipeline.segments import folder_of, unit_of, unit_of_hour
from polydomo.pipeline.sql import HOUR_US, describe, sql
from polydomo.pipeline.storage import Storage, conform, dump
from polydomo.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
FEW_ROWS = 5_000  # new rows that are all checked one by one: a prefilter would take longer than it saves
_TOTALS = frozenset(rule.id for rule in RULES if rule.shape == rules.TOTAL)
_SAYS = {rule.id: rule.says for rule in RULES}
REPEATED = """
SELECT run, seq, count(*) AS n FROM (SELECT run, seq FROM {messages} UNION ALL SELECT run, seq FROM {records}) GROUP BY run, seq HAVING
    count(*) > 1
"""


@dataclass
class RunItem:
    """One run to audit, from the state at ``base``. ``folder`` has what is saved of it."""

    run: int
    base: int = 0
    state: str = ""  # path
    folder: str = ""
    new: bool = True  # whether there are rows to audit

    def saved(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else ""


class _Run:
    """The books of one run."""

    def __init__(self, item: RunItem, storage: Storage) -> None:
        self.item = item
        self.storage = storage
        self.before = load_facts(item.saved("facts.json"), item.run)
        self.facts = Facts(**self.before.__dict__)
        self.base = item.base if item.new else self.before.last
        self.facts.begin_after(self.base)
        self.counts: list[Row] = []
        self.retired: dict[str, list[Range]] = {}
        if item.state:
            for row in conform(storage.table(item.state), STATE).to_pylist():
                if row["what"] == "counts":
                    self.counts.append(row)
                else:
                    self.retired.setdefault(row["scope"], []).append([row["key"], row["stop"]])
        self.seen: dict[str, dict[int, int]] = {}  # scope -> blocks of keys in the new rows
        self.suspects: dict[str, dict[int, int]] = {}
        self.done: dict[str, dict[int, int]] = {}
        self.judged: list[Row] = []
        self.events: list[Row] = []

    def reappeared(self) -> bool:
        """Whether new rows are about complete keys."""
        for scope, ranges in self.retired.items():
            seen = ranges_of(self.seen.get(scope, {}))
            for row in self.judged:  # a key without ``seq`` has only rows that no counter counts
                if row["scope"] == scope and (row["seq"] is None or row["seq"] > self.base):
                    seen.append([row["key"], row["key"]])
            if seen and overlap(merged(ranges), merged(seen)):
                return True
        return False

    def workers(self) -> list[Row]:
        path = self.item.saved("workers.parquet")
        saved = conform(self.storage.table(path), WORKERS).to_pylist() if path and self.base else []
        return present(saved, self.events, self.base)


class Auditor:
    """``messages`` and ``records``: the rows to audit. ``blocks``: what is known about all rows of the batch."""

    def __init__(
        self, store: TableStore, messages: "DataFrame", records: "DataFrame", blocks: list[Row], partial: bool
    ) -> None:
        self.spark = messages.sparkSession
        self.storage = store.storage
        self.staging = store.staging
        self.messages = messages
        self.records = records
        self.blocks = blocks
        self.partial = partial
        self.runs: dict[int, _Run] = {}
        self.rows: dict[str, int] = {}  # staged, by table
        self.gone: list[str] = []  # published files that nothing replaces, by their places below the tables
        self._few = False  # whether all new rows are checked one by one
        self._requeued = True  # whether the new rows have requeued requests

    def open(self, items: Iterable[RunItem], lives: Iterable[Row]) -> None:
        """Opens the books of the runs. A run without new rows is audited if another one states that it lost rows."""
        fresh: dict[int, list[Row]] = {}
        for row in self.blocks:
            if row["fresh"]:
                fresh.setdefault(row["run"], []).append(row)
        every = [row for rows in fresh.values() for row in rows]
        self._few = sum(row["n"] for row in every) <= FEW_ROWS
        self._requeued = any(row["steps"] for row in every)
        covers: dict[int, list[Row]] = {}
        events: dict[int, list[Row]] = {}
        for row in lives:
            if row["covers_run"]:
                covers.setdefault(row["covers_run"], []).append(row)
            if row["worker"] > 0 and row["event"] in (schema.REGISTERED, schema.LEFT, schema.LOST):
                events.setdefault(row["run"], []).append(row)
        for item in items:
            number = item.run
            if not item.new and number not in covers:
                continue
            run = _Run(item, self.storage)
            stated = {(row[0], row[1]): row for row in run.facts.covers}
            for row in covers.get(number, ()):
                stated[row["run"], row["seq"]] = [row["run"], row["seq"], row["covers_first"], row["covers_last"]]
            run.facts.covers = [stated[key] for key in sorted(stated)]
            if not item.new and run.facts.covers == run.before.covers:
                continue
            run.facts.add(fresh.get(number, ()) if item.new else (), run.base)
            run.events = events.get(number, []) if item.new else []
            if run.facts.last:
                self.runs[number] = run

    def check(self) -> list[int]:
        """Checks the rules on the new rows. Returns the runs that must be audited from the beginning, because new rows are about complete
        keys."""
        if not self.runs:
            return []
        describe(self.spark, "audit")
        messages, records = self.messages, self.records
        # With the first row of access control, a rule begins to hold for all rows of the run.
        again = [
            number for number, run in self.runs.items() if run.base and run.facts.checked and not run.before.checked
        ]
        if again:
            return again
        bases = {number: run.base for number, run in self.runs.items() if run.base}
        if bases:
            fresh = based(f"seq > {BASE}", bases)
            messages, records = messages.where(fresh), records.where(fresh)
        self._repeated(messages, records)
        for row in [] if self._few else prefilter.keys(messages, records):
            if row["run"] in self.runs:
                run = self.runs[row["run"]]
                run.seen.setdefault(row["scope"], {})[row["block"]] = row["seen"]
                run.suspects.setdefault(row["scope"], {})[row["block"]] = row["suspects"]
                run.done.setdefault(row["scope"], {})[row["block"]] = row["done"]
        again = [number for number, run in self.runs.items() if run.base and run.reappeared()]
        if again:
            return again
        for row in self._judge(messages, records).toArrow().to_pylist():
            if row["run"] in self.runs:
                self.runs[row["run"]].judged.append(row)
        return [number for number, run in self.runs.items() if run.base and run.reappeared()]

    def _repeated(self, messages: "DataFrame", records: "DataFrame") -> None:
        """Finds sequence numbers that occur more than once: only if a block has more rows than numbers."""
        masks: dict[tuple[int, int], int] = {}
        doubtful = False
        for row in self.blocks:
            if row["fresh"]:
                key = row["run"], row["block"]
                doubtful |= row["n"] > row["mask"].bit_count() or bool(masks.get(key, 0) & row["mask"])
                masks[key] = masks.get(key, 0) | row["mask"]
        if doubtful:
            for row in sql(REPEATED, messages=messages, records=records).toArrow().to_pylist():
                if row["run"] in self.runs:
                    facts = self.runs[row["run"]].facts
                    facts.again = sorted([*facts.again, *[row["seq"]] * (row["n"] - 1)])

    def _judge(self, messages: "DataFrame", records: "DataFrame") -> "DataFrame":
        spark = self.spark
        names = [part.split(" ")[0] for part in STATE_DDL.split(", ")][1:]
        saved = [(number, *(row[name] for name in names)) for number, run in self.runs.items() for row in run.counts]
        state = local(spark, STATE_DDL, saved)
        runs = {number: run.facts.of_run() for number, run in self.runs.items()}
        # by scope: the keys that are checked row by row; None: all of them
        chosen: dict[Scope, DataFrame | None] = {}
        if self._few:
            chosen = {REQUEST: None, CONNECTION: None, SERVICE: None}
        else:
            for scope in (REQUEST, CONNECTION):
                if (blocks := self._blocks(scope[-1])) is not None:
                    chosen[scope] = blocks
            chosen[SERVICE] = self._services(messages, state)
        return judged(messages, records, state, runs, chosen)

    def _services(self, messages: "DataFrame", state: "DataFrame") -> "DataFrame | None":
        waiting = any(row["scope"] == "service" and row["returned"] > row["taken_again"] + row["given_up_waiting"]
                      for run in self.runs.values() for row in run.counts)  # fmt: skip
        if not prefilter.usable(SERVICE):
            return None
        if not waiting and not self._requeued:
            return empty(self.spark, "run BIGINT, name STRING")
        stretches = prefilter.services(
            {number: run.base for number, run in self.runs.items()},
            {number: run.facts.last for number, run in self.runs.items()},
        )
        return sql(stretches, messages=messages, state=state)

    def _blocks(self, scope: str) -> "DataFrame | None":
        """The keys that must be checked row by row: suspects, and those of the state."""
        rows = []
        for number, run in self.runs.items():
            masks = dict(run.suspects.get(scope, {}))
            for row in run.counts:
                if row["scope"] == scope:
                    block = row["key"] // BLOCK
                    masks[block] = masks.get(block, 0) | 1 << row["key"] % BLOCK
            rows += [(number, block, mask) for block, mask in masks.items() if mask]
        return local(self.spark, BLOCKS, rows) if rows else None

    # --- what is written ---------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Stages the rows of ``audit`` and ``audit_rules``, and the states."""
        for run in self.runs.values():
            rows = [*self._found(run), *self._holes(run), *self._kept(run)]
            rows.sort(key=lambda row: (row["seq"], row["rule"]))
            self.stage_audit(run.facts, rows)
            self._rules(run, rows)
            if not self.partial:
                self._save(run, rows)

    def _found(self, run: _Run) -> list[Row]:
        made = []
        for row in run.judged:
            about: Row = {"number": row["number"], "worker": row["worker"], "connection": 0, "service": ""}
            if row["scope"] in ("service", "right"):
                about["service"] = row["name"].rpartition("\n")[2]
            elif row["scope"] in about:
                about[row["scope"]] = row["key"]
            made += [_breach(run.facts, {**about, **breach, "detail": ""}) for breach in row["found"]]
        return made

    def _holes(self, run: _Run) -> list[Row]:
        about = {"rule": "no-hole", "number": 0, "worker": 0, "connection": 0, "service": "",
                 "time": pa.scalar(run.facts.time, pa.timestamp("us", "UTC")).as_py()}  # fmt: skip
        return [
            _breach(run.facts, {**about, "seq": last + 1, "proof": [first - 1, last + 1], "detail": f"{first} to {last} are {what}"})
            for first, last, what in run.facts.holes()
        ]  # fmt: skip

    def _kept(self, run: _Run) -> list[Row]:
        """Known breaches that still hold: of rules that are checked row by row, at rows that were not audited again."""
        path = run.item.saved("breaches.parquet")
        if not path or self.partial or not self.storage.exists(path):
            return []
        hold = {
            rule.id
            for rule in RULES
            if rule.shape not in (rules.SEQUENCE, rules.TOTAL, *rules.OF_ALL_RUNS)
            and not (run.facts.missing and "run_missing == 0" in rule.broken)
        }
        last = run.base or run.facts.first - 1  # rows that retention removed since were audited before
        found: list[Row] = self.storage.table(path).to_pylist()
        return [row for row in found if row["rule"] in hold and row["seq"] <= last]

    def stage_audit(self, facts: Facts, rows: list[Row]) -> None:
        """Stages breaches, hour by hour. ``facts.units`` is updated; hours without rows are ``gone``."""
        units: dict[str, list[Row]] = {}
        for row in rows:
            units.setdefault(unit_of(row["time"]), []).append(row)
        self._stage("audit", facts, units)

    def _stage(self, name: str, facts: Facts, units: dict[str, list[Row]]) -> None:
        def file(unit: str) -> str:
            return f"{name}/{folder_of(unit)}/{run_name(facts.run)}.parquet"

        for unit, rows in units.items():
            made = pa.Table.from_pylist(rows, TABLES[name].arrow)
            self.storage.write_table(f"{self.staging}/{file(unit)}", made)
            self.rows[name] = self.rows.get(name, 0) + len(rows)
        self.gone += [file(unit) for unit in sorted(set(facts.units.get(name, [])) - set(units))]
        facts.units = {**facts.units, name: sorted(units)}

    def _rules(self, run: _Run, rows: list[Row]) -> None:
        facts = run.facts
        level = schema.LEVELS[facts.level]
        shown = rules.checkable(level)
        counts = Counter(row["rule"] for row in rows)
        self.stage_rules(facts, unit_of_hour(facts.time // HOUR_US), [
            {"run": facts.run, "broker": facts.broker, "level": level, "rule": rule.id, "says": rule.says, "checkable": rule in shown,
             "breaches": counts[rule.id]}
            for rule in RULES if rule.shape not in rules.OF_ALL_RUNS
        ])  # fmt: skip

    def stage_rules(self, facts: Facts, unit: str, rows: list[Row]) -> None:
        self._stage("audit_rules", facts, {unit: rows})

    def _save(self, run: _Run, rows: list[Row]) -> None:
        """Stages the state after the newest row, for the next batch."""
        facts, folder = run.facts, f"{self.staging}/_runs/{run_name(run.facts.run)}"
        here = unit_of_hour(facts.time // HOUR_US)
        name = f"state-{facts.last:012d}.parquet"
        old = [state for state in facts.states if state[0] <= run.base and state[1] != here and state[0] < facts.last]
        facts.states = [*old, [facts.last, here, name]][-KEPT_STATES:]
        self.storage.write_table(f"{folder}/{name}", pa.Table.from_pylist(self._state(run), STATE))
        self.storage.write_table(f"{folder}/workers.parquet", pa.Table.from_pylist(run.workers(), WORKERS))
        self.storage.write_table(f"{folder}/breaches.parquet", pa.Table.from_pylist(rows, TABLES["audit"].arrow))
        dump(self.storage, f"{folder}/facts.json", facts.__dict__)

    def _state(self, run: _Run) -> list[Row]:
        made: list[Row] = []
        retired = {scope: [*ranges] for scope, ranges in run.retired.items()}
        for scope, blocks in run.done.items():
            retired.setdefault(scope, []).extend(ranges_of(blocks))
        for row in run.judged:
            if row["scope"] == "row":
                continue
            if _complete(row):
                retired.setdefault(row["scope"], []).append([row["key"], row["key"]])
            elif row["seq"] is not None:
                made.append({name: row.get(name) for name in STATE.names} | {"what": "counts"})
        for scope, ranges in retired.items():
            made += [
                {"scope": scope, "what": "retired", "key": first, "stop": last, "name": "", "seq": 0}
                for first, last in merged(ranges)
            ]
        return made


def _complete(row: Row) -> bool:
    """Whether a key is complete. A request that has only a record was journalled at level ``requests``."""
    if any(breach["rule"] in _TOTALS for breach in row["found"]):
        return False
    if row["scope"] == "number":
        return bool(row["finished"] == 1 and (row["outcomes"] == 1 or row["outcomes"] == row["acceptances"] == 0))
    return bool(row["goings"] > 0 if row["scope"] == "worker" else row["scope"] == "connection" and row["closings"] > 0)


def _breach(facts: Facts, row: Row) -> Row:
    return {**row, "says": _SAYS[row["rule"]], "broker": facts.broker, "run": facts.run}
