"""Typed tables of payloads: ``payloads_<name>``, and ``payloads_<name>_bad`` with the payloads that could not be read and the reason.

Stage 1 collects the payloads of its hour. In stage 2, one task per table chooses the columns over all hours of the
batch and writes the rows. Columns are only ever added, and a column keeps its first type. A value that does not fit
the type of its column makes its payload a bad one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from polydomo.journal import schema
from polydomo.pipeline.engine.duck import Duck, connected
from polydomo.pipeline.engine.messages import Message, joined, note, to_payload
from polydomo.pipeline.engine.plan import HourItem, Payload, Plan
from polydomo.pipeline.storage import dump, load, storage_for

BASE = ("time", "broker", "run", "seq", "event", "source", "number", "peer")
ROW = "row"  # the position of a row in its message, from 0: only Arrow payloads have several rows
# The column types of the tables (Spark's names) as DuckDB types, and the column type for each type of JSON value.
DUCKDB = {
    "STRING": "VARCHAR",
    "BIGINT": "BIGINT",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "TIMESTAMP": "TIMESTAMPTZ",
    "DATE": "DATE",
}
OF_JSON = {"VARCHAR": "STRING", "BIGINT": "BIGINT", "UBIGINT": "BIGINT", "DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN"}
_EVENTS = (schema.ACCEPTED, schema.PARTIAL, schema.FINAL)


def gather(duck: Duck, item: HourItem, payload: Payload) -> Iterator[Message]:
    """Stage 1: collects the recorded payloads of the hour."""
    duck.set(pattern=payload.pattern.rstrip("*"), exact=not payload.pattern.endswith("*"))
    events = ", ".join(f"'{event}'" for event in _EVENTS)
    path = f"{duck.plan.staging}/_raw/{payload.name}/{item.unit.replace('/', '-')}-{item.run:x}-{item.part}.parquet"
    count = duck.write(
        path,
        f"""SELECT time, broker, run, seq, event, source, number, peer, body, body_cut FROM (
    SELECT *, if(event = '{schema.PUBLISHED}', topic, service) AS source FROM messages
    WHERE event IN ('{schema.PUBLISHED}', {events}) AND octet_length(body) > 0)
WHERE if(getvariable('exact'), source = getvariable('pattern'), starts_with(source, getvariable('pattern')))""",
    )
    if count:
        yield Message(2, to_payload(payload.name), "raw", pa.table({"unit": [item.unit], "path": [path]}))


def typed(plan: Plan, name: str, inbox: Sequence[Message]) -> Iterator[Message]:
    """Stage 2: writes the rows of all hours with their columns."""
    files = joined(inbox, "raw")
    if files is None:
        return
    payload = next(one for one in plan.payloads if one.name == name)
    parts = []
    for row in files.to_pylist():
        table = storage_for(row["path"]).table(row["path"])
        parts.append(table.append_column("unit", pa.array([row["unit"]] * table.num_rows, pa.string())))
    with connected(plan) as duck:
        duck.load("framed", pa.concat_tables(parts))
        duck.run(UNFRAMED)
        row, columns = _known(plan, payload)
        if payload.format == "json":
            columns = _from_json(duck, payload, row, columns)
        else:
            columns = _from_arrow(duck, payload, row, columns)
        dump(storage_for(plan.staging), f"{plan.staging}/_payloads/{name}.json", {"row": row, "columns": columns})
        for (unit,) in duck.rows("SELECT DISTINCT unit FROM raw ORDER BY unit"):
            date, hour = unit.split("/")
            for table in ("good", "bad"):
                title = f"payloads_{name}" + ("_bad" if table == "bad" else "")
                duck.set(unit=unit)
                path = f"{plan.staging}/{title}/date={date}/hour={hour}/0.parquet"
                order = "run, seq" + (f", {row}" if table == "good" else "")
                count = duck.write(
                    path, f"SELECT * EXCLUDE (unit) FROM {table} WHERE unit = getvariable('unit') ORDER BY {order}"
                )
                yield note(what="rows", table=title, count=count)


def _known(plan: Plan, payload: Payload) -> tuple[str, dict[str, str]]:
    """The name of the column that numbers the rows of a message; the columns that the table has or that are declared."""
    path = f"{plan.tables}/_polydomo/payloads/{payload.name}.json"
    storage = storage_for(path)
    saved = load(storage, path) if storage.exists(path) else {}
    before: dict[str, str] = saved.get("columns", {})
    row: str = saved.get("row", ROW)
    if "row" not in saved:  # written by a version without row numbers: the payloads may have a column of this name
        while row in (name.lower() for name in before):
            row += "_"
    return row, {**before, **{name: kind for name, kind in payload.columns if name not in before}}


# The content of each body: its only frame, without the frame's header of two or nine bytes. ``why`` is the reason if there is none.
UNFRAMED = """
CREATE TEMP TABLE raw AS
WITH heads AS (SELECT *, hex(body) AS digits FROM framed),
cut AS (SELECT *, CASE substr(digits, 1, 2) WHEN '00' THEN unhex(substr(digits, 5)) WHEN '02' THEN unhex(substr(digits,
    19)) END AS content FROM heads)
SELECT * EXCLUDE (digits),
    CASE WHEN body_cut = 1 THEN 'only its beginning was recorded' WHEN content IS NULL THEN 'it has several frames' END AS why FROM cut
"""


_BAD = f"SELECT unit, {', '.join(BASE)}, CAST({{reason}} AS VARCHAR) AS reason, body FROM {{source}}"


def _column(name: str, row: str, taken: set[str]) -> str:
    """The column of a payload's field: a name that differs from all other columns in more than upper and lower case."""
    made = f"payload_{name}" if name.lower() in (*BASE, row, "date", "hour", "unit") else name
    while made.lower() in taken:
        made += "_"
    taken.add(made.lower())
    return made


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _from_json(duck: Duck, payload: Payload, row: str, known: dict[str, str]) -> dict[str, str]:
    """Fills ``good`` and ``bad`` from JSON objects: one column per top-level name. Nested arrays and objects stay JSON text."""
    duck.run(
        """
CREATE TEMP TABLE texts AS SELECT *, coalesce(why,
    CASE WHEN text IS NULL THEN 'it is not UTF-8' WHEN NOT json_valid(text) THEN 'it is not JSON'
    WHEN json_type(text) != 'OBJECT' THEN 'it is JSON, but not an object' END) AS wrong FROM (SELECT *,
        TRY(decode(content)) AS text FROM raw);
CREATE TEMP TABLE fields AS SELECT DISTINCT e.key, e.type FROM (SELECT text FROM texts WHERE wrong IS NULL) t, json_each(t.text) e;
"""
    )
    found: dict[str, set[str]] = {}
    for key, kind in duck.rows("SELECT key, type FROM fields ORDER BY ALL"):
        if kind != "NULL":
            found.setdefault(key, set()).add(OF_JSON.get(kind, "STRING"))
    columns = dict(known)
    if not payload.columns:  # else only what is declared
        for key, kinds in found.items():
            one = "DOUBLE" if kinds == {"BIGINT", "DOUBLE"} else next(iter(kinds)) if len(kinds) == 1 else "STRING"
            columns.setdefault(key, one)
    taken: set[str] = set()
    casts, faults = [], ["wrong"]
    for key, kind in columns.items():
        path = "'$.\"" + key.replace("'", "''").replace('"', '\\"') + "\"'"
        value = f"json_extract_string(text, {path})"
        cast = f"TRY_CAST({value} AS {DUCKDB[kind]})"
        if kind == "BIGINT":  # a cast would round
            cast = f"if(regexp_full_match({value}, '-?[0-9]+'), {cast}, NULL)"
        casts.append(f"{cast} AS {_quoted(_column(key, row, taken))}")
        if kind != "STRING":
            name = key.replace("'", "''")
            wrong = f"wrong IS NULL AND {value} IS NOT NULL AND {cast} IS NULL"
            faults.append(f"CASE WHEN {wrong} THEN '{name} is not {kind}' END")
    duck.run(
        f"""
CREATE TEMP TABLE judged AS SELECT *, coalesce({", ".join([*faults, "NULL"])}) AS fault FROM texts;
CREATE TEMP TABLE good AS SELECT {", ".join(["unit", *BASE, f"CAST(0 AS INTEGER) AS {row}", *casts])} FROM judged WHERE fault IS NULL;
CREATE TEMP TABLE bad AS {_BAD.format(reason="fault", source="judged WHERE fault IS NOT NULL")};
"""
    )
    return columns


def _from_arrow(duck: Duck, payload: Payload, row_name: str, known: dict[str, str]) -> dict[str, str]:
    """Fills ``good`` and ``bad`` from Arrow streams. A message may have many rows; ``row_name`` numbers them."""
    columns = dict(known)
    rows: list[pa.Table] = []
    bad: list[dict[str, Any]] = []
    names = ["unit", *BASE]
    raw = duck.table("FROM raw")
    for one in raw.to_batches():
        for i, row in enumerate(one.to_pylist()):
            base = pa.Table.from_batches([one.slice(i, 1)]).select(names)
            try:
                if row["why"]:
                    raise ValueError(row["why"])
                with pa.ipc.open_stream(row["content"]) as reader:
                    table = reader.read_all()
                rows.append(_fitted(base, table, row_name, columns, bool(payload.columns)))
            except (ValueError, pa.ArrowException) as error:
                bad.append(
                    {**{name: row[name] for name in names}, "reason": str(error).splitlines()[0], "body": row["body"]}
                )
    empty = raw.select(names).slice(0, 0).append_column(row_name, pa.array([], pa.int32()))
    duck.load("good", pa.concat_tables([empty, *rows], promote_options="default"))
    shape = pa.schema([*(raw.schema.field(name) for name in names), ("reason", pa.string()), ("body", pa.binary())])
    duck.load("bad", pa.Table.from_pylist(bad, shape))
    return columns


_ARROW = {
    "STRING": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "DATE": pa.date32(),
}  # fmt: skip


def _fitted(base: pa.Table, table: pa.Table, row: str, columns: dict[str, str], declared: bool) -> pa.Table:
    """The rows of one message with the table's columns. Adds new fields to ``columns``; raises if a value does not fit its column."""
    made = pa.concat_tables([base] * table.num_rows) if table.num_rows else base.slice(0, 0)
    made = made.append_column(row, pa.array(range(table.num_rows), pa.int32()))
    taken: set[str] = set()
    for name in table.schema.names:
        if name not in columns:
            if declared:
                continue
            columns[name] = _kind_of(table.schema.field(name).type)
    for name, kind in columns.items():
        title = _column(name, row, taken)
        if name in table.schema.names:
            value = table[name]
            if kind == "STRING" and not pa.types.is_string(value.type):
                value = pa.array([None if one is None else str(one) for one in value.to_pylist()], pa.string())
            made = made.append_column(title, value.cast(_ARROW[kind]))
    return made


def _kind_of(kind: Any) -> str:
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_integer(kind):
        return "BIGINT"
    if pa.types.is_floating(kind):
        return "DOUBLE"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    return "DATE" if pa.types.is_date(kind) else "STRING"
