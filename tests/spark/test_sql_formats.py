"""Requests to ``spark.sql``, and results as Arrow, JSON lines, CSV and HTML. Without a JVM."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from polydomo.errors import CallFailed
from polydomo.spark import sql_formats
from polydomo.spark.sql_query import ARROW, CSV, FORMATS, HTML, JSONL, MEDIA, Query, QueryLimits

LIMITS = QueryLimits(rows=1000)
TABLE = pa.RecordBatch.from_pylist(
    [
        {"id": 1, "name": 'two\nlines, "quoted"', "list": [1, 2], "when": datetime(2026, 1, 31, tzinfo=UTC), "price": Decimal("1.50")},
        {"id": 2, "name": "<script>alert(1)</script>", "list": [], "when": None, "price": None},
        {"id": 3, "name": None, "list": None, "when": None, "price": Decimal("2.00")},
    ]
)  # fmt: skip


def test_a_query_is_text_json_or_the_parameters_of_a_get() -> None:
    assert Query.of("  SELECT 1; ", LIMITS) == Query("SELECT 1", {}, ARROW, 1000)
    given = {"sql": "SELECT :a", "args": {"a": 1}, "format": "json", "max_rows": 5}
    assert Query.of(json.dumps(given), LIMITS) == Query("SELECT :a", {"a": 1}, JSONL, 5)
    parameters = {"q": "SELECT :a", "a": "x", "max_rows": "7", "accept": "text/html"}
    assert Query.of(json.dumps(parameters), LIMITS) == Query("SELECT :a", {"a": "x"}, HTML, 7, True, False)
    assert not Query.of('{"sql": "SELECT 1", "summary": false}', LIMITS).summary
    assert Query.of(json.dumps({**parameters, "format": "csv"}), LIMITS).format == CSV
    assert {
        Query.of(json.dumps({"q": "", "accept": media.partition(";")[0]}), LIMITS).format for media in MEDIA
    } == set(FORMATS)


@pytest.mark.parametrize(
    "text", ["", "{}", "{x", '{"sql": "SELECT 1", "max_rows": 0}', '{"sql": "SELECT 1", "args": [1]}']
)
def test_invalid_requests(text: str) -> None:
    with pytest.raises(CallFailed) as caught:
        Query.of(text, LIMITS)
    assert caught.value.code == "bad-query"


def test_json_lines_and_csv_keep_every_value() -> None:
    lines = sql_formats.encode(TABLE, JSONL).splitlines()
    assert [json.loads(line)["name"] for line in lines] == TABLE.column("name").to_pylist()
    whole = sql_formats.head(CSV, TABLE.schema.names, "") + sql_formats.encode(TABLE, CSV)
    rows = list(csv.reader(io.StringIO(whole.decode(), newline="")))
    assert rows[0] == ["id", "name", "list", "when", "price"]
    assert rows[1] == ["1", 'two\nlines, "quoted"', "[1, 2]", "2026-01-31T00:00:00+00:00", "1.50"]
    assert rows[3] == ["3", "", "", "", "2.00"]


def test_html_is_escaped_and_whole() -> None:
    page = (
        sql_formats.head(HTML, ["id", "<b>"], "SELECT '</textarea>'")
        + sql_formats.encode(TABLE, HTML)
        + sql_formats.tail(HTML, 3, True, 0.5)
    ).decode()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>" not in page and page.count("</textarea>") == 1
    assert page.count("<tr>") == 4 and "3 rows in 0.50 s; more were left out" in page


@pytest.mark.parametrize("format", FORMATS)
def test_the_first_rows_of_a_body(format: str) -> None:
    cut = sql_formats.first_rows(sql_formats.encode(TABLE, format), 2, format)
    expected = sql_formats.encode(TABLE.slice(0, 2), format)
    if format == ARROW:
        assert pa.ipc.open_stream(cut).read_all().to_pylist() == TABLE.slice(0, 2).to_pylist()
    else:
        assert cut == expected


def test_small_bodies_are_joined() -> None:
    parts = [sql_formats.encode(TABLE.slice(n, 1), ARROW) for n in range(3)]
    assert pa.ipc.open_stream(sql_formats.joined(parts, ARROW)).read_all().num_rows == 3
    assert sql_formats.joined([b"a\n", b"", b"b\n"], JSONL) == b"a\nb\n"
