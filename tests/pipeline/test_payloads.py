"""Payloads as typed tables."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from polydomo.errors import SettingError
from polydomo.journal import schema
from polydomo.pipeline import batch
from polydomo.pipeline.batch import Options
from polydomo.pipeline.payloads.tables import parsed
from polydomo.wire.frames import join
from tests.pipeline import journals
from tests.pipeline.comparing import table_rows
from tests.pipeline.journals import Row, message
from tests.pipeline.shared import load


def published(seq: int, topic: str, content: bytes, when: float = 0.0, **more: Any) -> Row:
    body = join([content])
    return message(seq, schema.PUBLISHED, when or float(seq), topic=topic, size=len(body), body=body, **more)


def stream(**columns: list[Any]) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def run(directory: Path, rows: list[Row], *payloads: str) -> batch.Summary:
    journals.write(directory / "journal", rows)
    options = Options(payloads=[parsed(one) for one in payloads])
    return load([str(directory / "journal")], str(directory / "tables"), options)


def rows_of(directory: Path, name: str, order: str = "seq, row") -> list[Row]:
    """Reads a table like Spark with ``mergeSchema`` and DuckDB with ``union_by_name``."""
    import duckdb

    files = str(directory / "tables" / name / "**" / "*.parquet")
    found: Any = duckdb.sql(
        f"SELECT * FROM read_parquet('{files}', hive_partitioning = true, union_by_name = true) ORDER BY {order}"
    )
    names = found.columns
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.long
def test_json_columns_are_inferred_and_added(tmp_path: Path) -> None:
    first = [
        published(1, "sensors.a", json.dumps({"temperature": 20, "name": "roof", "ok": True}).encode()),
        published(2, "sensors.b", json.dumps({"temperature": 21.5, "place": {"x": 1}, "time": "noon"}).encode()),
        published(3, "other", b"{}"),
    ]
    summary = run(tmp_path, first, "sensors.*=json", "*rs.?=json(place STRING)", "*.a=json(name STRING)")
    assert summary.rows["payloads_sensors"] == 2 and not summary.problems
    assert summary.rows["payloads_rs"] == 2 and summary.rows["payloads_a"] == 1  # a pattern as in access rules
    found = rows_of(tmp_path, "payloads_sensors")
    assert [(row["source"], row["temperature"], row["name"], row["ok"]) for row in found] == [
        ("sensors.a", 20.0, "roof", True),
        ("sensors.b", 21.5, None, None),
    ]
    assert json.loads(found[1]["place"]) == {"x": 1} and found[1]["payload_time"] == "noon"
    later = [published(4, "sensors.a", b'{"temperature": 19, "battery": 80}', 4000.0)]
    run(tmp_path, later, "sensors.*=json")
    found = rows_of(tmp_path, "payloads_sensors")
    assert [row["battery"] for row in found] == [None, None, 80] and [row["temperature"] for row in found] == [
        20.0,
        21.5,
        19.0,
    ]


SENSORS = [
    published(1, "sensors", b'{"n": 1}'),
    published(2, "sensors", b"\xff\xfe"),
    published(3, "sensors", b"{"),
    published(4, "sensors", b"[1]"),
    published(5, "sensors", b'{"n": "many"}'),
    published(6, "sensors", b'{"n": 2}', body_cut=1),
    message(7, schema.PUBLISHED, 7.0, topic="sensors", body=join([b"a", b"b"])),
    published(8, "sensors", b'{"n": null}'),
]
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = join([stream(width=[640, 800], taken=[MOMENT, None])])
REPLY = join([stream(width=[64], label=["small"])])
ARROWS = [
    message(11, schema.ACCEPTED, 1.0, number=1, service="resize", client=1, body=ASKED, size=len(ASKED)),
    message(12, schema.FINAL, 2.0, number=1, service="resize", client=1, body=REPLY, size=len(REPLY)),
    message(13, schema.ACCEPTED, 3.0, number=2, service="resize", client=1, body=join([b"no arrow"])),
    message(14, schema.ACCEPTED, 3.0, number=3, service="echo", client=1, body=ASKED),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of the pipeline with payloads of a topic and of a service."""
    directory: Path = tmp_path_factory.mktemp("payloads")
    run(directory, SENSORS + ARROWS, "sensors=json(n BIGINT)", "resize=arrow")
    return directory


def test_invalid_rows_are_in_a_separate_table_with_the_reason(both: Path) -> None:
    assert [(row["seq"], row["n"]) for row in rows_of(both, "payloads_sensors")] == [(1, 1), (8, None)]
    assert [(row["seq"], row["reason"]) for row in rows_of(both, "payloads_sensors_bad", "seq")] == [
        (2, "it is not UTF-8"),
        (3, "it is not JSON"),
        (4, "it is JSON, but not an object"),
        (5, "n is not BIGINT"),
        (6, "only its beginning was recorded"),
        (7, "it has several frames"),
    ]
    assert bytes(rows_of(both, "payloads_sensors_bad", "seq")[1]["body"]) == join([b"{"])


@pytest.mark.long
def test_a_column_keeps_its_first_type(tmp_path: Path) -> None:
    run(tmp_path, [published(1, "sensors", b'{"n": 1}')], "sensors=json")
    run(tmp_path, [published(2, "sensors", b'{"n": 1.5}', 4000.0)], "sensors=json")
    assert [(row["seq"], row["reason"]) for row in rows_of(tmp_path, "payloads_sensors_bad", "seq")] == [
        (2, "n is not BIGINT")
    ]


def test_requests_and_replies_of_a_service_as_arrow(both: Path) -> None:
    found = rows_of(both, "payloads_resize")
    assert [(row["event"], row["number"], row["row"], row["width"], row["label"]) for row in found] == [
        ("accepted", 1, 0, 640, None),
        ("accepted", 1, 1, 800, None),
        ("final", 1, 0, 64, "small"),
    ]
    assert {row["taken"] for row in found} == {MOMENT, None}
    assert [row["seq"] for row in rows_of(both, "payloads_resize_bad", "seq")] == [13]


@pytest.mark.long
def test_rows_of_a_message_are_numbered(tmp_path: Path) -> None:
    content = stream(n=list(range(300)), row=["field"] * 300)
    run(tmp_path, [published(1, "sensors", content), published(2, "sensors", content)], "sensors=arrow")
    found = rows_of(tmp_path, "payloads_sensors")
    assert [(row["seq"], row["row"]) for row in found] == [(seq, n) for seq in (1, 2) for n in range(300)]
    assert all(row["n"] == row["row"] and row["payload_row"] == "field" for row in found)


@pytest.mark.long
def test_a_table_from_before_rows_were_numbered_keeps_its_column(tmp_path: Path) -> None:
    run(tmp_path, [published(1, "sensors", b'{"n": 1}')], "sensors=json")
    known = tmp_path / "tables" / "_polydomo" / "payloads" / "sensors.json"
    assert json.loads(known.read_text())["row"] == "row"
    known.write_text(json.dumps({"columns": {"n": "BIGINT", "row": "STRING"}}))  # as an earlier version wrote it
    run(tmp_path, [published(2, "sensors", b'{"n": 2, "row": "field"}', 4000.0)], "sensors=json")
    place = tmp_path / "tables" / "payloads_sensors"
    (later,) = pq.read_table(next(place.rglob("hour=13/*.parquet")), partitioning=None).to_pylist()
    assert (later["row"], later["row_"]) == ("field", 0)
    assert json.loads(known.read_text())["row"] == "row_"


@pytest.mark.long
def test_an_hour_that_is_made_again_has_its_payloads_once(tmp_path: Path) -> None:
    run(tmp_path, [published(1, "sensors", b'{"n": 1}')], "sensors=json")
    run(tmp_path, [published(2, "sensors", b'{"n": 2}', 2.0)], "sensors=json")
    assert [row["n"] for row in rows_of(tmp_path, "payloads_sensors")] == [1, 2]
    assert len(table_rows(tmp_path / "tables", "values")) == 2


@pytest.mark.parametrize("text", ["sensors", "sensors=xml", "sensors=json(n)", "sensors=json(n MONEY)"])
def test_an_invalid_setting_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="--payload"):
        parsed(text)
