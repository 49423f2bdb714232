"""Checks events that must happen only once over all runs and brokers: the outcome of a durable job, a run of a schedule.

``_polydomo/once`` holds the saved events, a file per hour, ``breaches.parquet`` with all breaches, and ``facts.json`` with the hours in
which they are published. No event is earlier than the submission of its job or the time at which its schedule was due, so a new row
is compared only with the hours since then.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.journal import schema
from polydomo.journal.ids import run_name
from polydomo.journal.reading.audit import MAX_PROOF
from polydomo.journal.reading.rules import ONCE, RULES, looked_at
from polydomo.pipeline.segments import shifted, unit_of
from polydomo.pipeline.sql import sql
from polydomo.pipeline.storage import Storage, conform, dump, load
from polydomo.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ALL_RUNS = 0  # the run in ``audit_rules`` of rules about all runs
_RULES = [rule for rule in RULES if rule.shape == ONCE]
_BY_ID = {rule.id: rule for rule in _RULES}
_WHICH = " ".join(f"WHEN {looked_at(rule)} AND {rule.broken} THEN '{rule.id}'" for rule in _RULES)
ROWS = f"""
SELECT * FROM (SELECT once, CASE {_WHICH} END AS rule, broker, run, seq, time, created FROM
    (SELECT *, '{schema.MESSAGES}' AS kind FROM {{messages}} WHERE once != '')) WHERE rule IS NOT NULL
"""
SHAPE = pa.schema(
    [
        ("once", pa.string()), ("rule", pa.string()), ("broker", pa.string()), ("run", pa.int64()), ("seq", pa.int64()),
        ("time", pa.timestamp("us", "UTC")), ("created", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip


class Once:
    """``saved``: hour -> file of its events, of hours that are not recomputed; ``own`` and ``staging``: where files are."""

    def __init__(
        self, storage: Storage, own: str, staging: str, saved: dict[str, str], floor: str, partial: bool
    ) -> None:
        self.storage = storage
        self.own = f"{own}/once"
        self.folder = f"{staging}/_once"
        self.saved = saved
        self.floor = floor
        self.partial = partial
        self.shape = pa.schema([("once", pa.string()), *((one.name, one.type) for one in TABLES["audit"].arrow)])

    def check(self, messages: "DataFrame") -> "tuple[pa.Table, dict[str, int], str] | None":
        """The breaches of all hours, their number by rule, and the hour of the newest event; None if there is no event."""
        fresh = conform(sql(ROWS, messages=messages).toArrow(), SHAPE)
        if not fresh.num_rows:
            return None
        hours = [unit_of(time) for time in fresh["time"].to_pylist()]
        units = sorted(set(hours))
        if not self.partial:
            for unit in units:
                mine = fresh.filter(pa.array([hour == unit for hour in hours], pa.bool_()))
                self.storage.write_table(
                    f"{self.folder}/{unit.replace('/', '-')}.parquet", mine.sort_by([("once", "ascending")])
                )
        touched = pc.unique(fresh["once"])
        every = pa.concat_tables([fresh, *self._others(units, fresh, touched)])
        breaches = pa.concat_tables([self._kept(touched), pa.Table.from_pylist(_breaches(every), self.shape)])
        counts = dict.fromkeys(_BY_ID, 0)
        for rule in breaches["rule"].to_pylist():
            counts[rule] += 1
        return breaches, counts, max(units)

    def _others(self, units: list[str], fresh: pa.Table, touched: pa.Array) -> list[pa.Table]:
        """Events of other hours that have the same names as new ones."""
        earliest = pc.min(fresh["created"]).as_py()
        first = shifted(unit_of(earliest), -1) if earliest is not None else ""  # the clocks of brokers differ
        found = []
        for unit, path in sorted(self.saved.items()):
            if unit >= first and unit not in units:
                table = conform(self.storage.table(path), SHAPE)
                found.append(table.filter(pc.is_in(table["once"], touched)))
        return found

    def _kept(self, touched: pa.Array) -> pa.Table:
        """Known breaches without new rows."""
        path = f"{self.own}/breaches.parquet"
        if self.partial or not self.storage.exists(path):
            return self.shape.empty_table()
        table = conform(self.storage.table(path), self.shape)
        kept = table.filter(pc.invert(pc.is_in(table["once"], touched)))
        return kept.filter(pa.array([unit_of(time) >= self.floor for time in kept["time"].to_pylist()], pa.bool_()))

    def published(self) -> dict[str, list[str]]:
        """The hours in which the tables have rows of these rules."""
        path = f"{self.own}/facts.json"
        found: dict[str, list[str]] = load(self.storage, path) if self.storage.exists(path) else {}
        return found

    def save(self, breaches: pa.Table, units: dict[str, list[str]]) -> None:
        if not self.partial:
            self.storage.write_table(f"{self.folder}/breaches.parquet", breaches)
            dump(self.storage, f"{self.folder}/facts.json", units)


def _breaches(every: pa.Table) -> list[dict[str, Any]]:
    """The same as ``journal.audit.repeated``."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in every.to_pylist():
        found.setdefault((row["rule"], row["once"]), []).append(row)
    made = []
    for (rule, name), rows in found.items():
        if len(rows) < 2:
            continue
        rows.sort(key=lambda row: (row["time"], row["run"], row["seq"]))
        last = rows[-1]
        proof = [(row["run"], row["seq"]) for row in rows[-MAX_PROOF:]]
        places = ", ".join(f"{run_name(run)} {seq}" for run, seq in proof)
        made.append(
            {"once": name, "rule": rule, "says": _BY_ID[rule].says, "broker": last["broker"], "run": last["run"], "number": 0, "worker": 0,
             "connection": 0, "service": "", "seq": last["seq"], "time": last["time"], "proof": [seq for _, seq in proof],
             "detail": f"{name} in rows {places}"}
        )  # fmt: skip
    return made


def rule_rows(counts: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {"run": ALL_RUNS, "broker": "", "level": schema.REQUESTS, "rule": rule.id, "says": rule.says, "checkable": True,
         "breaches": counts[rule.id]}
        for rule in _RULES
    ]  # fmt: skip
