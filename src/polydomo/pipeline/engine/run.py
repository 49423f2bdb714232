"""Stage 2: audits the new rows of one run from the last saved state, and computes when its workers were present, hour by hour.

``_polydomo/runs/RUN`` holds the saved state: ``facts.json``, ``workers.parquet``, ``breaches.parquet``, and a
``state-SEQ.parquet`` for the newest audited row and for the last one of each hour in which a batch ended.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.journal import audit as reference
from polydomo.journal import rules, schema
from polydomo.journal.ids import run_name
from polydomo.journal.rules import RULES
from polydomo.pipeline.engine.audit import ISLANDS, STATE, RunAudit, depends_on_missing
from polydomo.pipeline.engine.duck import HOUR_US, Duck, connected, micros
from polydomo.pipeline.engine.messages import OTHER_RUNS, Message, conform, joined, note, to_unit
from polydomo.pipeline.engine.plan import Plan, RunItem
from polydomo.pipeline.segments import begin_of, unit_of
from polydomo.pipeline.storage import dump, load, storage_for
from polydomo.pipeline.tables import audit

KEPT_STATES = (
    48  # at most, the newest ones; after a segment from before the oldest one, the run is audited from the beginning
)

WORKERS = pa.schema(
    [
        ("worker", pa.int64()), ("came", pa.int64()), ("came_seq", pa.int64()), ("went", pa.int64()), ("went_seq", pa.int64()),
        ("peer", pa.string()), ("protocol", pa.string()), ("principal", pa.string()), ("offers", pa.string()),
        ("offers_seq", pa.int64()),
    ]
)  # fmt: skip
# The level of the journal, as far as a row shows it.
_ONLY = ", ".join(repr(event) for event in schema.ONLY_MESSAGES)
_LEVEL = f"if(level = '{schema.MESSAGES}' OR event IN ({_ONLY}), 2, 1)"
PRESENCE = """
CREATE OR REPLACE TEMP TABLE present AS
WITH came AS (SELECT worker, min(epoch_us(time)) AS came, min(seq) AS came_seq, max(peer) AS peer, max(protocol) AS protocol,
    max(principal) AS principal, arg_max(service, seq) AS offers, max(seq) AS offers_seq
    FROM new_messages WHERE event = 'registered' AND worker > 0 GROUP BY worker),
went AS (SELECT worker, min(epoch_us(time)) AS went, min(seq) AS went_seq, max(peer) AS peer, max(protocol) AS protocol,
    max(principal) AS principal, max(service) AS offers
    FROM new_messages WHERE event IN ('left', 'lost') AND worker > 0 GROUP BY worker),
known AS (SELECT * REPLACE (if(went_seq <= getvariable('base'), went, NULL) AS went, if(went_seq <= getvariable('base'),
    went_seq, NULL) AS went_seq)
    FROM saved_workers WHERE came_seq <= getvariable('base') OR came_seq = 0)
SELECT coalesce(k.worker, c.worker, w.worker) AS worker, coalesce(k.came, c.came) AS came, coalesce(k.came_seq, c.came_seq, 0) AS came_seq,
    coalesce(k.went, w.went) AS went, coalesce(k.went_seq, w.went_seq) AS went_seq,
    coalesce(greatest(k.peer, c.peer, w.peer), '') AS peer, coalesce(greatest(k.protocol, c.protocol, w.protocol), '') AS protocol,
    coalesce(greatest(k.principal, c.principal, w.principal), '') AS principal,
    coalesce(c.offers, k.offers, w.offers, '') AS offers, coalesce(c.offers_seq, k.offers_seq, 0) AS offers_seq
FROM known k FULL JOIN came c ON k.worker = c.worker FULL JOIN went w ON w.worker = coalesce(k.worker, c.worker)
"""


@dataclass
class Facts:
    """Facts about a run, as of its newest audited row."""

    run: int
    broker: str = ""
    level: int = 1  # an index of schema.LEVELS
    first: int = 0
    last: int = 0
    time: int = 0  # of its last row, in microseconds
    begins: int = 0  # of its first row
    stopped: int = 0
    ranges: list[list[int]] = field(default_factory=list)  # ranges of present sequence numbers
    again: list[int] = field(default_factory=list)  # sequence numbers that occur more than once
    covers: list[list[int]] = field(
        default_factory=list
    )  # run and row that state it, first and last of the missing rows
    states: list[list[Any]] = field(default_factory=list)  # saved states: sequence number, unit, name of the file
    units: dict[str, list[str]] = field(default_factory=dict)  # table -> hours in which the run has rows

    @property
    def missing(self) -> int:
        return sum(last - first + 1 for _, _, first, last in self.covers)


def load_facts(path: str, run: int) -> Facts:
    return Facts(**load(storage_for(path), path)) if path else Facts(run)


def run(plan: Plan, address: str, inbox: Sequence[Message]) -> Iterator[Message]:
    """Runs the task."""
    if address == OTHER_RUNS:
        covers = joined(inbox, "covers")
        if covers is None:
            return
        for one in sorted(set(covers["covers_run"].to_pylist())):
            if one in plan.known_runs:  # otherwise the tables have no rows of it
                mine = covers.filter(pc.equal(covers["covers_run"], one))
                yield from _audited(plan, plan.known_runs[one], mine)
        return
    yield from _audited(plan, plan.runs[int(address.removeprefix("run:"))], joined(inbox, "covers"))


def _audited(plan: Plan, item: RunItem, covers: pa.Table | None) -> Iterator[Message]:
    before = load_facts(item.facts, item.run)
    new_covers = _covers(before, covers)
    with connected(plan) as duck:
        if not item.new and new_covers == before.covers:
            if item.workers:
                storage = storage_for(item.workers)
                duck.load("present", conform(storage.table(item.workers), WORKERS))
                yield from _presence(duck, item, before)
            return
        yield from _Run(duck, plan, item, before, new_covers).made()


def _covers(before: Facts, found: pa.Table | None) -> list[list[int]]:
    known = {(row[0], row[1]): row for row in before.covers}
    for row in found.to_pylist() if found is not None else []:
        known[row["run"], row["seq"]] = [row["run"], row["seq"], row["covers_first"], row["covers_last"]]
    return [known[key] for key in sorted(known)]


class _Run:
    """Audits a run and saves the state for the next batch."""

    def __init__(self, duck: Duck, plan: Plan, item: RunItem, before: Facts, covers: list[list[int]]) -> None:
        self.duck = duck
        self.plan = plan
        self.item = item
        self.before = before
        self.base = item.base if item.new else before.last
        self.facts = Facts(**{**before.__dict__, "covers": covers})
        self.problems: list[str] = []

    def made(self) -> Iterator[Message]:
        duck, item = self.duck, self.item
        where = f"seq > {self.base}"
        duck.set(base=self.base)
        self._open("new", item.messages if item.new else (), item.requests if item.new else (), where)
        self._load_state()
        self._record_ranges()
        if not self.facts.last:
            return  # there are no rows at all
        audit_ = RunAudit(duck, self.base, self.facts.stopped, self.facts.missing, self._open_all)
        audit_.run()
        self._holes()
        duck.load("saved_workers", self._saved_workers())
        duck.run(PRESENCE)
        yield from self._publish(audit_)
        if not self.plan.partial:
            self._save()
        yield from _presence(duck, item, self.facts)

    def _open(self, prefix: str, messages: Sequence[str], requests: Sequence[str], where: str) -> None:
        for name, kind, paths in (("messages", schema.MESSAGES, messages), ("records", schema.REQUESTS, requests)):
            self.duck.journal(f"{prefix}_{name}_plain", kind, self.duck.readable(paths, self.problems), where)
            self.duck.run(
                f"CREATE OR REPLACE TEMP VIEW {prefix}_{name} AS SELECT *, '{kind}' AS kind FROM {prefix}_{name}_plain"
            )

    def _open_all(self) -> None:
        self._open("all", self.item.all_messages, self.item.all_requests, "true")

    def _load_state(self) -> None:
        tables = [storage_for(path).table(path).cast(STATE) for path in self.item.state]
        self.duck.load("state", pa.concat_tables(tables) if tables else STATE.empty_table())

    def _saved_workers(self) -> pa.Table:
        path = self.item.workers
        return conform(storage_for(path).table(path), WORKERS) if path and self.base else WORKERS.empty_table()

    def _record_ranges(self) -> None:
        """Updates the ranges of sequence numbers and the other facts."""
        facts, duck = self.facts, self.duck
        facts.ranges = [[first, min(last, self.base)] for first, last in facts.ranges if first <= self.base]
        facts.again = [seq for seq in facts.again if seq <= self.base]
        if not self.base:
            facts.stopped = facts.first = facts.last = 0
            facts.level = 1
        duck.load(
            "old_ranges",
            pa.table(
                {
                    "first": pa.array([r[0] for r in facts.ranges], pa.int64()),
                    "last": pa.array([r[1] for r in facts.ranges], pa.int64()),
                }
            ),
        )
        duck.run(
            f"""
CREATE OR REPLACE TEMP TABLE numbers AS SELECT seq, count(*) AS n FROM (SELECT seq FROM new_messages
    UNION ALL SELECT seq FROM new_records) GROUP BY seq;
CREATE OR REPLACE TEMP TABLE ranges AS
WITH spans AS (SELECT first, last FROM old_ranges UNION ALL
    SELECT min(seq), max(seq) FROM (SELECT seq, seq - row_number() OVER (ORDER BY seq) AS island FROM numbers) GROUP BY island),
{ISLANDS}
SELECT min(first) AS first, max(last) AS last FROM grouped GROUP BY island"""
        )
        facts.ranges = [list(row) for row in duck.rows("SELECT first, last FROM ranges ORDER BY first")]
        for seq, n in duck.rows("SELECT seq, n FROM numbers WHERE n > 1"):
            facts.again += [seq] * (n - 1)
        facts.again.sort()
        told = duck.rows(
            f"""SELECT max(broker), max(level), min(epoch_us(time)), max(epoch_us(time)), max(seq), sum(stopped) FROM (
    SELECT broker, {_LEVEL} AS level, time, seq, if(event = 'stopped', 1, 0) AS stopped FROM new_messages UNION ALL
    SELECT broker, 1, time, seq, 0 FROM new_records)"""
        )[0]
        if told[0] is not None:
            facts.broker = told[0]
            facts.level = max(facts.level, told[1])
            facts.begins = told[2] if not self.base else min(facts.begins or told[2], told[2])
            facts.time = max(facts.time if self.base else 0, told[3])
            facts.last = max(self.base, told[4])
            facts.stopped += int(told[5])
        facts.first = facts.ranges[0][0] if facts.ranges else 0

    def _holes(self) -> None:
        """Finds missing and repeated sequence numbers: ``journal.audit.holes`` in SQL."""
        duck, facts = self.duck, self.facts
        pairs = [(first, last) for _, _, first, last in facts.covers if last >= first]
        duck.load(
            "covered",
            pa.table(
                {
                    "first": pa.array([p[0] for p in pairs], pa.int64()),
                    "last": pa.array([p[1] for p in pairs], pa.int64()),
                }
            ),
        )
        duck.load("again", pa.table({"seq": pa.array(facts.again, pa.int64())}))
        duck.run(
            f"""
INSERT INTO breaches
WITH touched AS (SELECT DISTINCT r.first, r.last FROM ranges r JOIN covered c ON r.first <= c.last AND c.first <= r.last),
spans AS (
    SELECT first, last, true AS there FROM ranges WHERE (first, last) NOT IN (SELECT (first, last) FROM touched) UNION ALL
    SELECT n, n, true FROM (SELECT unnest(generate_series(first, last)) AS n FROM touched) UNION ALL
    SELECT seq, seq, true FROM again UNION ALL SELECT first, last, false FROM covered
),
ordered AS (SELECT *, coalesce(max(last) OVER (ORDER BY first, last, there ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
    getvariable('first') - 1) AS before FROM spans WHERE last >= getvariable('first')),
wrong AS (SELECT first > before + 1 AS gap, if(first > before + 1, before + 1, first) AS a, if(first > before + 1, first - 1, first) AS z
    FROM ordered WHERE first > before + 1 OR (there AND first <= before))
SELECT 'no-hole', 0, 0, 0, '', z + 1, to_timestamp(getvariable('ended') / 1e6), [a - 1, z + 1],
    a || ' to ' || z || ' are ' || if(gap, '{reference.GAP}', '{reference.REPEATED}') FROM wrong""",
            first=facts.first,
            ended=facts.time,
        )

    # --- what is written ----------------------------------------------------------------------------------------------------

    def _publish(self, made: RunAudit) -> Iterator[Message]:
        """Stages the run's rows of ``audit`` and ``audit_rules``."""
        duck, facts = self.duck, self.facts
        duck.load("says", pa.Table.from_pylist([{"rule": rule.id, "says": rule.says} for rule in RULES]))
        duck.run("CREATE OR REPLACE TEMP TABLE whole AS SELECT b.*, says FROM breaches b JOIN says USING (rule)")
        kept = self._kept(made)
        if kept.num_rows:
            duck.load("kept", kept)
            duck.run("INSERT INTO whole BY NAME SELECT * EXCLUDE (broker, run) FROM kept")
        duck.set(broker=facts.broker, run=facts.run)
        duck.run(
            f"""CREATE OR REPLACE TEMP TABLE placed AS
SELECT *, getvariable('broker') AS broker, getvariable('run') AS run, epoch_us(time) // {HOUR_US} AS hour FROM whole"""
        )
        units = {}
        for (hour,) in duck.rows("SELECT DISTINCT hour FROM placed ORDER BY hour"):
            unit = _unit(hour)
            units[unit] = duck.stage(
                audit.TABLE, unit, run_name(facts.run), f"SELECT * FROM placed WHERE hour = {hour} ORDER BY seq, rule"
            )
        yield from self._report_units("audit", units)
        counts = dict(duck.rows("SELECT rule, count(*) FROM whole GROUP BY rule"))
        level = schema.LEVELS[facts.level]
        shown = rules.checkable(level)
        rows = [
            {"run": facts.run, "broker": facts.broker, "level": level, "rule": rule.id, "says": rule.says, "checkable": rule in shown,
             "breaches": counts.get(rule.id, 0)}
            for rule in RULES if rule.shape != rules.ONCE
        ]  # fmt: skip
        duck.load("checks", pa.Table.from_pylist(rows))
        unit = _unit(facts.time // HOUR_US)
        yield from self._report_units(
            "audit_rules", {unit: duck.stage(audit.CHECKS, unit, run_name(facts.run), "FROM checks")}
        )
        for line in self.problems:
            yield note(what="problem", line=line)

    def _report_units(self, table: str, units: dict[str, int]) -> Iterator[Message]:
        """Reports the hours in which the run has rows now, and those in which it has none any more."""
        gone = sorted(set(self.facts.units.get(table, [])) - set(units))
        self.facts.units = {**self.facts.units, table: sorted(units)}
        for unit, count in units.items():
            yield note(what="rows", table=table, count=count, unit=unit, run=self.facts.run)
        for unit in gone:
            yield note(what="gone", table=table, unit=unit, run=self.facts.run)

    def _kept(self, made: RunAudit) -> pa.Table:
        """Known breaches that still hold: of rules that are checked row by row, at rows that were not audited again."""
        path = self.item.breaches
        if not path or self.plan.partial:
            return audit.TABLE.arrow.empty_table()
        ids = {}
        for rule in RULES:
            if rule.shape in (rules.SEQUENCE, rules.TOTAL, rules.ONCE) or (
                self.facts.missing and depends_on_missing(rule)
            ):
                continue
            # rows that retention removed since were audited before
            ids[rule.id] = self.facts.first - 1 if rule.scope in made.redone else self.base
            if rule.shape == rules.EACH or not self.base:
                ids[rule.id] = self.base or self.facts.first - 1
        whole = storage_for(path).table(path)
        keep = [row["seq"] <= ids.get(row["rule"], -1) for row in whole.select(["rule", "seq"]).to_pylist()]
        return whole.filter(pa.array(keep, pa.bool_()))

    def _save(self) -> None:
        """Stages the state after the newest row, for the next batch."""
        facts, folder = self.facts, f"{self.plan.staging}/_runs/{run_name(self.facts.run)}"
        here = _unit(facts.time // HOUR_US)
        name = f"state-{facts.last:012d}.parquet"
        old = [state for state in facts.states if state[0] <= self.base and state[1] != here and state[0] < facts.last]
        facts.states = [*old, [facts.last, here, name]][-KEPT_STATES:]
        storage = storage_for(folder)
        storage.write_table(f"{folder}/{name}", self.duck.table("FROM new_state").cast(STATE))
        storage.write_table(f"{folder}/workers.parquet", self.duck.table("FROM present").cast(WORKERS))
        storage.write_table(
            f"{folder}/breaches.parquet", self.duck.table(audit.TABLE.select("placed")).cast(audit.TABLE.arrow)
        )
        dump(storage, f"{folder}/facts.json", facts.__dict__)


def _unit(hour: int) -> str:
    return unit_of(datetime.fromtimestamp(hour * 3600, UTC))


def _presence(duck: Duck, item: RunItem, facts: Facts) -> Iterator[Message]:
    """Sends when each worker was present in the hours to recompute. A worker that has not left is present until the run's last row. One
    whose registration is not in the journal is present from the beginning of the hour in which it left."""
    for unit in item.units:
        start = micros(begin_of(unit))
        duck.set(
            start=start, stop=start + HOUR_US, ended=facts.time, begun=facts.begins, broker=facts.broker, run=facts.run
        )
        found = duck.table(
            f"""SELECT getvariable('broker') AS broker, getvariable('run') AS run, worker,
    greatest(began, getvariable('start')) AS since,
    greatest(least(coalesce(went, getvariable('ended')), getvariable('stop')), since) AS until, peer, protocol, principal,
    offers
FROM (SELECT *, coalesce(came, greatest(getvariable('begun'), {HOUR_US} * (went // {HOUR_US}))) AS began FROM present)
WHERE began < getvariable('stop') AND coalesce(went, getvariable('ended')) >= getvariable('start')"""
        )
        if found.num_rows:
            yield Message(3, to_unit(unit), "presence", found)
