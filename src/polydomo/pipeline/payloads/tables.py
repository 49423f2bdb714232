"""Typed tables of payloads: ``payloads_<name>``, and ``payloads_<name>_bad`` with the payloads that could not be read and the reason.

Columns are only ever added, and a column keeps its first type. A value that does not fit the type of its column makes its payload a bad
one. These are the only tables that need Python in tasks (``rows.py``).
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polydomo.errors import SettingError
from polydomo.journal import schema
from polydomo.model.name_patterns import regular_expression
from polydomo.pipeline.commit import TableStore
from polydomo.pipeline.payloads.rows import ARROW, BASE, FIELDS, JSON, decode, find_fields
from polydomo.pipeline.sql import describe, placed, sql
from polydomo.pipeline.storage import dump, load

if TYPE_CHECKING:
    from polydomo.pipeline.compute import Computation

FORMATS = (JSON, ARROW)
ROW = "row"  # the position of a row in its message, from 0: only Arrow payloads have several rows
_TYPES = ("STRING", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "DATE")
_EVENTS = ", ".join(repr(event) for event in (schema.PUBLISHED, schema.ACCEPTED, schema.PARTIAL, schema.FINAL))
RAW = f"""
SELECT time, broker, run, seq, event, source, number, peer, body, body_cut, {placed("time")} FROM (
    SELECT *, IF(event = '{schema.PUBLISHED}', topic, service) AS source FROM {{messages}} WHERE event IN ({_EVENTS}) AND length(body) > 0)
"""
_BASE_DDL = (
    "time TIMESTAMP, broker STRING, run BIGINT, seq BIGINT, event STRING, source STRING, number BIGINT, peer STRING, "
    "date DATE, hour INT"
)


@dataclass(frozen=True)
class Payload:
    """The payloads of a service, or of topics, that become a table."""

    pattern: str  # of services or topics (``model/name_patterns.py``)
    format: str  # json or arrow
    name: str  # the table is ``payloads_<name>``
    columns: tuple[tuple[str, str], ...] = ()  # declared names and types; empty: inferred


def parsed(text: str) -> Payload:
    """``NAME=FORMAT`` or ``NAME=FORMAT(column TYPE, ...)``; NAME is a service, a topic, or a pattern of them.

    >>> parsed("sensors.*=json").name
    'sensors'
    >>> parsed("resize=json(width BIGINT, name STRING)").columns
    (('width', 'BIGINT'), ('name', 'STRING'))
    """
    match = re.fullmatch(r"\s*(.+?)\s*=\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    if match is None or match[2] not in FORMATS:
        raise SettingError(
            f"--payload: {text!r} is not NAME=FORMAT with json or arrow, such as sensors.*=json or resize=json(width BIGINT)"
        )
    columns = []
    for one in (match[3] or "").split(","):
        words = one.split()
        if not words:
            continue
        if len(words) != 2 or words[1].upper() not in _TYPES:
            raise SettingError(f"--payload: {one.strip()!r} is not a column and one of {', '.join(_TYPES)}")
        columns.append((words[0], words[1].upper()))
    name = re.sub(r"\W+", "_", match[1].strip("*?.")).strip("_").lower() or "all"
    return Payload(match[1], match[2], name, tuple(columns))


class PayloadTables:
    """Writes the payload tables of a batch."""

    def __init__(self, store: TableStore, work: "Computation") -> None:
        self.store = store
        self.work = work

    def write(self, payload: Payload) -> None:
        if not self.work.counts["bodies"]:
            return
        describe(self.work.spark, f"payloads_{payload.name}")
        raw = sql(RAW, messages=self.work.messages)
        raw = raw.where(raw.source.rlike(rf"(?s)^(?:{regular_expression(payload.pattern)})\z"))
        row, columns = self._known(payload)
        columns = self._columns(raw, payload, columns)
        taken: set[str] = set()
        titles = {name: _title(name, row, taken) for name in columns}
        typed = [f"{_quoted(titles[name])} {kind}" for name, kind in columns.items()]
        ddl = ", ".join([_BASE_DDL, f"{row} INT", *typed, "polydomo_reason STRING", "polydomo_body BINARY"])
        place = f"{self.work.staging}/_raw/{payload.name}"
        raw.mapInArrow(decode(payload.format, columns, titles, row), ddl).write.mode("overwrite").parquet(place)
        rows = self.work.spark.read.schema(ddl).parquet(place)
        hour = "lpad(string(hour), 2, '0') AS hour"
        good = [*BASE, row, *map(_quoted, titles.values())]
        bad = [*BASE, "polydomo_reason AS reason", "polydomo_body AS body"]
        for name, reason, chosen in (("", "IS NULL", good), ("_bad", "IS NOT NULL", bad)):
            frame = rows.where(f"polydomo_reason {reason}").selectExpr(*chosen, "date", hour)
            table = f"{self.work.staging}/payloads_{payload.name}{name}"
            frame.write.mode("overwrite").partitionBy("date", "hour").parquet(table)
        saved = {"row": row, "columns": columns}
        dump(self.store.storage, f"{self.store.staging}/_payloads/{payload.name}.json", saved)

    def _known(self, payload: Payload) -> tuple[str, dict[str, str]]:
        """The name of the column that numbers the rows of a message; the columns that the table has or that are declared."""
        path = f"{self.store.own}/payloads/{payload.name}.json"
        saved = load(self.store.storage, path) if self.store.storage.exists(path) else {}
        before: dict[str, str] = saved.get("columns", {})
        row: str = saved.get("row", ROW)
        if "row" not in saved:  # written by a version without row numbers: the payloads may have a column of this name
            while row in (name.lower() for name in before):
                row += "_"
        return row, {**before, **{name: kind for name, kind in payload.columns if name not in before}}

    def _columns(self, raw: Any, payload: Payload, known: dict[str, str]) -> dict[str, str]:
        """The known columns and, if none are declared, those that occur."""
        if payload.columns:
            return known
        found = raw.mapInArrow(find_fields(payload.format), FIELDS).toArrow().to_pylist()
        kinds: dict[str, list[str]] = {}  # of each field, in the order of their first places
        for field in sorted(found, key=lambda field: (field["run"], field["seq"], field["place"], field["kind"])):
            kinds.setdefault(field["name"], []).append(field["kind"])
        if payload.format == ARROW:
            columns = {name: some[0] for name, some in kinds.items()}
        else:
            columns = {name: _common({*kinds[name]}) for name in sorted(kinds)}
        return known | {name: kind for name, kind in columns.items() if name not in known}


def _common(kinds: set[str]) -> str:
    """The type of a column with values of these types."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return "DOUBLE" if kinds == {"BIGINT", "DOUBLE"} else "STRING"


def _title(name: str, row: str, taken: set[str]) -> str:
    """The column of a payload's field: a name that differs from all other columns in more than upper and lower case."""
    made = f"payload_{name}" if name.lower() in (*BASE, row, "date", "hour", "unit") else name
    while made.lower() in taken:
        made += "_"
    taken.add(made.lower())
    return made


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
