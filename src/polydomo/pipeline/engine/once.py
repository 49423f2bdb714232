"""Stage 2: checks events that must happen only once over all runs and brokers: the outcome of a durable job, a run of a schedule.

``_polydomo/once`` holds the saved events, a file per hour, ``breaches.parquet`` with all breaches, and ``facts.json`` with the hours in
which they are published. No event is earlier than the submission of its job or the time at which its schedule was due, so a new row
is compared only with the hours since then.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.journal import schema
from polydomo.journal.audit import MAX_PROOF
from polydomo.journal.ids import run_name
from polydomo.journal.rules import ONCE, RULES, looked_at
from polydomo.pipeline.engine.duck import Duck, connected
from polydomo.pipeline.engine.messages import Message, conform, joined, note
from polydomo.pipeline.engine.plan import Plan
from polydomo.pipeline.segments import shifted, unit_of
from polydomo.pipeline.storage import dump, load, storage_for
from polydomo.pipeline.tables import audit

ALL_RUNS = 0  # the run in ``audit_rules`` of rules about all runs
_RULES = [rule for rule in RULES if rule.shape == ONCE]
_BY_ID = {rule.id: rule for rule in _RULES}
_WHICH = " ".join(f"WHEN {looked_at(rule)} AND {rule.broken} THEN '{rule.id}'" for rule in _RULES)
ROWS = f"""
SELECT * FROM (SELECT once, CASE {_WHICH} END AS rule, broker, run, seq, time, created FROM
    (SELECT *, '{schema.MESSAGES}' AS kind FROM messages WHERE once != '')) WHERE rule IS NOT NULL
"""
SHAPE = pa.schema(
    [
        ("once", pa.string()), ("rule", pa.string()), ("broker", pa.string()), ("run", pa.int64()), ("seq", pa.int64()),
        ("time", pa.timestamp("us", "UTC")), ("created", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
BREACHES = pa.schema([("once", pa.string()), *((field.name, field.type) for field in audit.TABLE.arrow)])


def once(plan: Plan, inbox: Sequence[Message]) -> Iterator[Message]:
    """Runs the task."""
    rows = joined(inbox, "once")
    if rows is None:
        return
    fresh = conform(rows, SHAPE)
    with connected(plan) as duck:
        duck.load("fresh", fresh)
        units = _save(duck, plan)
        touched = pc.unique(fresh["once"])
        others = _others(plan, units, fresh, touched)
        duck.load("every", pa.concat_tables([fresh, *others]))
        kept = _kept(plan, touched)
        breaches = pa.concat_tables([kept, pa.Table.from_pylist(_breaches(duck), BREACHES)])
        yield from _publish(duck, plan, max(units), breaches)


def _save(duck: Duck, plan: Plan) -> list[str]:
    """Stages the events of each hour. Returns the hours."""
    units = sorted({unit_of(time) for (time,) in duck.rows("SELECT DISTINCT date_trunc('hour', time) FROM fresh")})
    if not plan.partial:
        for unit in units:
            date, hour = unit.split("/")
            inside = f"strftime(time, '%Y-%m-%d/%H') = '{date}/{hour}'"
            duck.write(
                f"{plan.staging}/_once/{date}-{hour}.parquet",
                f"SELECT * FROM fresh WHERE {inside} ORDER BY once, time, run, seq",
            )
    return units


def _others(plan: Plan, units: list[str], fresh: pa.Table, touched: pa.Array) -> list[pa.Table]:
    """Events of other hours that have the same names as new ones."""
    earliest = pc.min(fresh["created"]).as_py()
    first = shifted(unit_of(earliest), -1) if earliest is not None else ""  # the clocks of brokers differ
    found = []
    for unit, path in sorted(plan.once.items()):
        if unit >= first and unit not in units:
            table = conform(storage_for(path).table(path), SHAPE)
            found.append(table.filter(pc.is_in(table["once"], touched)))
    return found


def _kept(plan: Plan, touched: pa.Array) -> pa.Table:
    """Known breaches without new rows."""
    if not plan.once_breaches or plan.partial:
        return BREACHES.empty_table()
    table = conform(storage_for(plan.once_breaches).table(plan.once_breaches), BREACHES)
    kept = table.filter(pc.invert(pc.is_in(table["once"], touched)))
    recent = [unit_of(time) >= plan.floor for time in kept["time"].to_pylist()]
    return kept.filter(pa.array(recent, pa.bool_()))


def _breaches(duck: Duck) -> list[dict[str, Any]]:
    """The same as ``journal.audit.repeated``."""
    several = "SELECT rule, once FROM every GROUP BY ALL HAVING count(*) > 1"
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for row in duck.rows(
        f"SELECT rule, once, broker, run, seq, time FROM every WHERE (rule, once) IN ({several}) ORDER BY time, run, seq"
    ):
        found.setdefault((row[0], row[1]), []).append(row)
    made = []
    for (rule, name), rows in found.items():
        _, _, broker, run, seq, time = rows[-1]
        proof = [(row[3], row[4]) for row in rows[-MAX_PROOF:]]
        places = ", ".join(f"{run_name(one)} {number}" for one, number in proof)
        made.append(
            {"once": name, "rule": rule, "says": _BY_ID[rule].says, "broker": broker, "run": run, "number": 0, "worker": 0,
             "connection": 0, "service": "", "seq": seq, "time": time, "proof": [number for _, number in proof],
             "detail": f"{name} in rows {places}"}
        )  # fmt: skip
    return made


def _publish(duck: Duck, plan: Plan, newest: str, breaches: pa.Table) -> Iterator[Message]:
    """Stages the breaches in their hours, and the number of breaches of each rule in the newest hour."""
    before: dict[str, list[str]] = load(storage_for(plan.once_facts), plan.once_facts) if plan.once_facts else {}
    name = run_name(ALL_RUNS)
    times = breaches["time"].to_pylist()
    hours = sorted({unit_of(time) for time in times})
    counts = dict.fromkeys(_BY_ID, 0)
    for rule in breaches["rule"].to_pylist():
        counts[rule] += 1
    for unit in hours:
        inside = breaches.filter(pa.array([unit_of(time) == unit for time in times], pa.bool_()))
        duck.load("published", inside)
        count = duck.stage(audit.TABLE, unit, name, "SELECT * EXCLUDE (once) FROM published ORDER BY time, seq")
        yield note(what="rows", table="audit", count=count, unit=unit, run=ALL_RUNS)
    latest = max([newest, *before.get("audit_rules", [])])
    rows = [
        {"run": ALL_RUNS, "broker": "", "level": schema.REQUESTS, "rule": rule.id, "says": rule.says, "checkable": True,
         "breaches": counts[rule.id]}
        for rule in _RULES
    ]  # fmt: skip
    duck.load("checks", pa.Table.from_pylist(rows))
    count = duck.stage(audit.CHECKS, latest, name, "FROM checks")
    yield note(what="rows", table="audit_rules", count=count, unit=latest, run=ALL_RUNS)
    now = {"audit": hours, "audit_rules": [latest]}
    for table, units in before.items():
        for unit in sorted(set(units) - set(now[table])):
            yield note(what="gone", table=table, unit=unit, run=ALL_RUNS)
    if not plan.partial:
        folder = f"{plan.staging}/_once"
        storage = storage_for(folder)
        storage.write_table(f"{folder}/breaches.parquet", breaches)
        dump(storage, f"{folder}/facts.json", now)
