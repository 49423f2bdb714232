"""Parses a request to the service ``spark.sql``: SQL as text, a JSON object, or the parameters of a GET."""

import json
from dataclasses import dataclass
from typing import Any

from polydomo.errors import CallFailed
from polydomo.limits import SQL_MAX_BYTES, SQL_MAX_ROWS, SQL_MAX_TIME

ARROW, JSONL, CSV, HTML = "arrow", "jsonl", "csv", "html"
FORMATS = (ARROW, JSONL, CSV, HTML)
MEDIA = {  # of a GET; the first one if the client accepts any
    "application/x-ndjson": JSONL,
    "text/csv; charset=utf-8": CSV,
    "text/html; charset=utf-8": HTML,
    "application/vnd.apache.arrow.stream": ARROW,
}
_BY_MEDIA = {media.partition(";")[0]: format for media, format in MEDIA.items()}


@dataclass(frozen=True)
class QueryLimits:
    rows: int = SQL_MAX_ROWS
    bytes: int = SQL_MAX_BYTES
    seconds: float = SQL_MAX_TIME


@dataclass(frozen=True)
class Query:
    sql: str
    args: dict[str, Any]
    format: str
    max_rows: int
    by_get: bool = False  # it came with GET: without SQL, the reply is a page with a form
    summary: bool = True  # the final reply is a summary; otherwise the reply contains only the result

    @staticmethod
    def of(text: str, limits: QueryLimits) -> "Query":
        """Raises CallFailed."""
        given: dict[str, Any] = {"sql": text.strip()}
        if text.lstrip().startswith("{"):
            try:
                given = json.loads(text)
            except ValueError as error:
                raise CallFailed("bad-query", f"the request looks like JSON but cannot be parsed: {error}") from None
        if "accept" in given:
            return Query._of_get(given, limits)
        sql = given.get("sql")
        if not isinstance(sql, str) or not sql.strip():
            raise CallFailed("bad-query", "the request has no SQL: send it as text, or as JSON with the key sql")
        args = given.get("args", {})
        if not isinstance(args, dict):
            raise CallFailed("bad-query", "args: must be an object of names and values")
        summary = given.get("summary", True)
        if not isinstance(summary, bool):
            raise CallFailed("bad-query", "summary: must be true or false")
        return Query(
            _clean(sql), args, _format(given.get("format", ARROW)), _rows(given.get("max_rows"), limits), False, summary,
        )  # fmt: skip

    @staticmethod
    def _of_get(given: "dict[str, Any]", limits: QueryLimits) -> "Query":
        """Parameters other than q, format and max_rows are arguments of the query."""
        rest = {name: value for name, value in given.items() if name not in ("accept", "q", "format", "max_rows")}
        format = given.get("format") or _BY_MEDIA.get(str(given["accept"]), JSONL)
        most = given.get("max_rows")
        return Query(
            _clean(str(given.get("q", ""))), rest, _format(format),
            _rows(int(most) if isinstance(most, str) and most.isdecimal() else most, limits), True, False,
        )  # fmt: skip


def _clean(sql: str) -> str:
    return sql.strip().rstrip(";")


def _format(name: Any) -> str:
    found = JSONL if name == "json" else name
    if found not in FORMATS:
        raise CallFailed("bad-query", f"format: unknown format {name!r}; use one of {', '.join(FORMATS)}")
    return str(found)


def _rows(most: Any, limits: QueryLimits) -> int:
    if most is None:
        return limits.rows
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise CallFailed("bad-query", "max_rows: must be a whole number of at least 1")
    return min(most, limits.rows)
