"""Checks what concerns all runs and brokers: events that must happen only once (the outcome of a durable job, a run of a schedule), and
the order and the reuse of the nodes of flows.

``_polydomo/once`` holds the saved events, a file per hour, ``breaches.parquet`` with all breaches, and ``facts.json`` with the hours in
which they are published. No event is earlier than the submission of its job or the time at which its schedule was due, so a new row
is compared only with the hours since then. A row about a flow is compared with the hours since a day before the time in the id of the
flow, which a client makes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.journal import schema
from polydomo.journal.ids import is_id, parse, run_name
from polydomo.journal.reading.audit import MAX_PROOF
from polydomo.journal.reading.rules import OF_ALL_RUNS, ONCE, RULES, looked_at
from polydomo.pipeline.audit.facts import Facts
from polydomo.pipeline.audit.nodes import of_nodes
from polydomo.pipeline.commit import TableStore
from polydomo.pipeline.segments import name_of, shifted, unit_named, unit_of
from polydomo.pipeline.sql import sql
from polydomo.pipeline.storage import conform, dump, load
from polydomo.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from polydomo.pipeline.audit.auditor import Auditor

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALL_RUNS = 0  # the run in ``audit_rules`` of rules about all runs
_RULES = [rule for rule in RULES if rule.shape in OF_ALL_RUNS]
_BY_ID = {rule.id: rule for rule in _RULES}
_WHICH = " ".join(
    f"WHEN {looked_at(rule)} AND once != '' AND {rule.broken} THEN '{rule.id}'" for rule in _RULES if rule.shape == ONCE
)
_OF_FLOW = "flow != '' AND (event IN ('job', 'node') AND position > 0 OR event = 'memo' OR code = 'reused')"
ROWS = f"""
SELECT * FROM (SELECT once, CASE {_WHICH} END AS rule, broker, run, seq, time, created, IF({_OF_FLOW}, flow, '') AS flow, event, outcome,
    code, node, needs, position, since, nodes
    FROM (SELECT *, '{schema.MESSAGES}' AS kind FROM {{messages}} WHERE once != '' OR {_OF_FLOW})) WHERE rule IS NOT NULL OR flow != ''
"""
SHAPE = pa.schema(
    [
        ("once", pa.string()), ("rule", pa.string()), ("broker", pa.string()), ("run", pa.int64()), ("seq", pa.int64()),
        ("time", pa.timestamp("us", "UTC")), ("created", pa.timestamp("us", "UTC")), ("flow", pa.string()), ("event", pa.string()),
        ("outcome", pa.string()), ("code", pa.string()), ("node", pa.int64()), ("needs", pa.string()),
        ("position", pa.int64()), ("since", pa.int64()), ("nodes", pa.int64()),
    ]
)  # fmt: skip


class Once:
    """``units``: the hours that are computed now; ``floor``: the first hour that is kept."""

    def __init__(self, store: TableStore, units: Sequence[str], floor: str, partial: bool) -> None:
        self.storage = store.storage
        self.own = f"{store.own}/once"
        self.folder = f"{store.staging}/_once"
        self.units = units
        self.floor = floor
        self.partial = partial
        self.shape = pa.schema([("once", pa.string()), *((one.name, one.type) for one in TABLES["audit"].arrow)])

    def check(self, messages: "DataFrame", auditor: "Auditor") -> None:
        """Stages the breaches of all hours, if there is any event in the hours of the batch."""
        fresh = conform(sql(ROWS, messages=messages).toArrow(), SHAPE)
        if not fresh.num_rows:
            return
        touched = pa.array({*fresh["once"].to_pylist(), *fresh["flow"].to_pylist()} - {"", None}, pa.string())
        every = pa.concat_tables([fresh, *self._others(fresh, touched)])
        new = pa.Table.from_pylist(_breaches(every, set(touched.to_pylist())), self.shape)
        breaches = pa.concat_tables([self._kept(touched), new])
        known = f"{self.own}/facts.json"
        facts = Facts(ALL_RUNS, units=load(self.storage, known) if self.storage.exists(known) else {})
        hours = [unit_of(time) for time in fresh["time"].to_pylist()]
        latest = max([*hours, *facts.units.get("audit_rules", [])])
        auditor.stage_audit(facts, breaches.drop_columns(["once"]).to_pylist())
        auditor.stage_rules(facts, latest, _rule_rows(Counter(breaches["rule"].to_pylist())))
        if not self.partial:
            for unit in set(hours):
                mine = fresh.filter(pa.array([hour == unit for hour in hours], pa.bool_()))
                self.storage.write_table(f"{self.folder}/{name_of(unit)}.parquet", mine.sort_by("once"))
            self.storage.write_table(f"{self.folder}/breaches.parquet", breaches)
            dump(self.storage, f"{self.folder}/facts.json", facts.units)

    def _others(self, fresh: pa.Table, touched: pa.Array) -> Iterator[pa.Table]:
        """Events of other hours that have the same names as new ones."""
        earliest = pc.min(fresh["created"]).as_py()
        first = shifted(unit_of(earliest), -1) if earliest is not None else ""  # the clocks of brokers differ
        for flow in set(fresh["flow"].to_pylist()) - {"", None}:
            first = min(first, _begun(flow))
        for name in self.storage.names(self.own):
            unit = unit_named(name)
            if name[0].isdigit() and unit >= max(first, self.floor) and unit not in self.units:
                table = conform(self.storage.table(f"{self.own}/{name}"), SHAPE)
                yield table.filter(pc.or_kleene(pc.is_in(table["once"], touched), pc.is_in(table["flow"], touched)))

    def _kept(self, touched: pa.Array) -> pa.Table:
        """Known breaches without new rows."""
        path = f"{self.own}/breaches.parquet"
        if self.partial or not self.storage.exists(path):
            return self.shape.empty_table()
        table = conform(self.storage.table(path), self.shape)
        kept = table.filter(pc.invert(pc.is_in(table["once"], touched)))
        return kept.filter(pa.array([unit_of(time) >= self.floor for time in kept["time"].to_pylist()], pa.bool_()))


def _breaches(every: pa.Table, touched: set[str]) -> list[dict[str, Any]]:
    """The breaches of these names and flows: the same as ``journal.audit.repeated`` and ``of_nodes``."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    flows: dict[str, list[dict[str, Any]]] = {}
    for row in every.to_pylist():
        if row["rule"] and row["once"] in touched:
            found.setdefault((row["rule"], row["once"]), []).append(row)
        if row["flow"] in touched:
            flows.setdefault(row["flow"], []).append(row)
    made = [
        _breach(rule, flow, rows, detail) for flow, mine in flows.items() for rule, rows, detail in of_nodes(flow, mine)
    ]
    for (rule, name), rows in found.items():
        if len(rows) < 2:
            continue
        rows.sort(key=lambda row: (row["time"], row["run"], row["seq"]))
        made.append(_breach(rule, name, rows[-MAX_PROOF:], name))
    return made


def _breach(rule: str, name: str, rows: list[dict[str, Any]], what: str) -> dict[str, Any]:
    last = rows[-1]
    places = ", ".join(f"{run_name(row['run'])} {row['seq']}" for row in rows)
    return {
        "once": name, "rule": rule, "says": _BY_ID[rule].says, "broker": last["broker"], "run": last["run"], "number": 0, "worker": 0,
        "connection": 0, "service": "", "seq": last["seq"], "time": last["time"], "proof": [row["seq"] for row in rows],
        "detail": f"{what} in rows {places}",
    }  # fmt: skip


def _begun(flow: str) -> str:
    """The hour from which there may be rows about a flow."""
    if not is_id(flow):
        return ""
    return unit_of(EPOCH + timedelta(milliseconds=parse(flow).accepted_ms) - timedelta(days=1))


def _rule_rows(counts: Counter[str]) -> list[dict[str, Any]]:
    return [
        {"run": ALL_RUNS, "broker": "", "level": schema.REQUESTS, "rule": rule.id, "says": rule.says, "checkable": True,
         "breaches": counts[rule.id]}
        for rule in _RULES
    ]  # fmt: skip
