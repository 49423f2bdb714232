"""Encodes rows of a result as partial replies: Arrow IPC, JSON lines, CSV, HTML. Executors encode; the driver cuts and joins."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

import pyarrow as pa

from polydomo.limits import SQL_BATCH_ROWS
from polydomo.spark.row_bodies import arrow_body, to_json
from polydomo.spark.sql_query import ARROW, CSV, HTML, JSONL

STYLE = """
:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif }
body { margin: 1.5rem } textarea { width: 100%; box-sizing: border-box; font: 13px/1.4 ui-monospace, monospace }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid #8884; vertical-align: top; white-space: pre-wrap }
th { position: sticky; top: 0; background: Canvas } td.n { text-align: right } td.null { opacity: .5 }
"""


def encoded(batches: "Iterable[Any]", format: str, names: "Sequence[str]") -> "Iterator[Any]":
    """On an executor: record batches, whose columns get these names, as rows of (number of rows, body)."""
    for batch in batches:
        if format in (ARROW, JSONL):
            batch = batch.rename_columns(list(names))
        for start in range(0, batch.num_rows, SQL_BATCH_ROWS):
            piece = batch.slice(start, SQL_BATCH_ROWS)
            yield pa.RecordBatch.from_arrays(
                [pa.array([piece.num_rows], pa.int64()), pa.array([encode(piece, format)], pa.binary())],
                ["rows", "body"],
            )


def encode(piece: Any, format: str) -> bytes:
    if format == ARROW:
        return arrow_body(piece)
    rows = piece.to_pylist()
    if format == JSONL:
        return b"".join(to_json(row) + b"\n" for row in rows)
    if format == CSV:
        return csv_lines([[text(value) for value in row.values()] for row in rows])
    return "".join(f"<tr>{''.join(map(html_cell, row.values()))}</tr>\n" for row in rows).encode()


def text(value: Any) -> str:
    """The text of a cell: null is empty, nested values are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    found = to_json(value).decode()
    return str(json.loads(found)) if found.startswith('"') else found


def csv_lines(rows: "Sequence[Sequence[str]]") -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def html_cell(value: Any) -> str:
    if value is None:
        return '<td class="null">null</td>'
    kind = ' class="n"' if isinstance(value, int | float) and not isinstance(value, bool) else ""
    return f"<td{kind}>{escape(text(value)).replace(chr(13), '').replace(chr(10), '&#10;')}</td>"


def head(format: str, columns: "Sequence[str]", sql: str) -> bytes:
    """The bytes before the rows."""
    if format == CSV:
        return csv_lines([columns])
    if format == HTML:
        titles = "".join(f"<th>{escape(name)}</th>" for name in columns)
        return f"{page(sql)}<table><thead><tr>{titles}</tr></thead><tbody>\n".encode()
    return b""


def page(sql: str) -> str:
    """The beginning of a page, with a form for the next query."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>spark.sql</title><style>{STYLE}</style><body><form><textarea name=q rows=4 aria-label=SQL>{escape(sql)}"
        f"</textarea><button>Run</button></form>\n"
    )


def tail(format: str, rows: int, cut: bool, seconds: float) -> bytes:
    """The bytes after the rows."""
    if format != HTML:
        return b""
    more = "; more were left out" if cut else ""
    return f"</tbody></table><p>{rows:,} rows in {seconds:.2f} s{more}</p></body></html>\n".encode()


def first_rows(body: bytes, rows: int, format: str) -> bytes:
    """The first rows of a body."""
    if format == CSV:
        found = list(csv.reader(io.StringIO(body.decode(), newline="")))
        return csv_lines(found[:rows])
    if format != ARROW:
        return b"".join(body.splitlines(keepends=True)[:rows])
    table = pa.ipc.open_stream(body).read_all().slice(0, rows)
    return arrow_body(table.combine_chunks().to_batches()[0]) if table.num_rows else b""


def joined(bodies: "Sequence[bytes]", format: str) -> bytes:
    """Joins small bodies."""
    found = [body for body in bodies if body]
    if len(found) < 2 or format != ARROW:
        return b"".join(found)
    table = pa.concat_tables([pa.ipc.open_stream(body).read_all() for body in found]).combine_chunks()
    return arrow_body(table.to_batches()[0])
