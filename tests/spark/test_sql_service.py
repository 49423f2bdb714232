"""SQL as a service: batches before the end, limits, only queries, and no work for a disconnected client."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.testing
from polydomo.errors import CallError, CallFailed
from polydomo.spark.sql_query import QueryLimits
from polydomo.spark.sql_service import SqlService
from tests.plain_http import http_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 240.0


@pytest.fixture(scope="module")
def session(spark: "SparkSession") -> "Iterator[SparkSession]":
    """With its own views, settings and functions: the service removes some."""
    made = spark.newSession()
    made.range(100_000, numPartitions=4).createOrReplaceTempView("numbers")
    made.range(3).write.mode("overwrite").saveAsTable("stored")
    yield made
    made.sql("DROP TABLE stored")


@pytest.fixture(scope="module")
def served(session: "SparkSession", broker: polydomo.testing.Broker) -> Iterator[polydomo.testing.Broker]:
    service = SqlService(session, QueryLimits(rows=1_000_000, seconds=200.0), concurrency=2)
    worker = polydomo.Worker(broker.url, concurrency=2)
    worker.add("spark.sql", service.__call__, schema=service.schema)
    with worker:
        broker.wait_for("spark.sql", 2)
        yield broker


def test_warming_up_runs_a_query(spark: "SparkSession", caplog: pytest.LogCaptureFixture) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    SqlService(spark.newSession()).warm_up()
    end = time.monotonic() + PATIENCE
    while not set(tracker.getJobIdsForGroup(None)) - before:  # Spark tells it some time later
        assert time.monotonic() < end, "no job ran"
        time.sleep(0.1)
    assert not [record for record in caplog.records if record.name == "polydomo.spark"], "a failure is logged"


def ask(url: str, body: str, protocol: str = "mdx") -> tuple[list[bytes], dict[str, Any]]:
    with polydomo.Client(url, protocol, timeout=PATIENCE) as client:
        *parts, final = list(client.stream("spark.sql", body))
    return [part.body for part in parts], final.json()


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["mdx", "mdp2"])
def test_batches_of_arrow_then_a_summary(served: polydomo.testing.Broker, protocol: str) -> None:
    parts, summary = ask(served.url, "SELECT id, id * 2 AS twice FROM numbers", protocol)
    table = pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts])
    assert len(parts) >= 10 and table.num_rows == 100_000
    assert sorted(table["id"].to_pylist()) == list(range(100_000))
    assert summary["rows"] == 100_000 and summary["truncated"] is False
    assert [field["name"] for field in summary["schema"]["fields"]] == ["id", "twice"]


def test_parameters_formats_and_a_bound_on_rows(served: polydomo.testing.Broker) -> None:
    query = {
        "sql": "SELECT id FROM numbers WHERE id >= :low ORDER BY id",
        "args": {"low": 10},
        "format": "json",
        "max_rows": 3,
    }
    parts, summary = ask(served.url, json.dumps(query))
    assert [json.loads(line)["id"] for part in parts for line in part.splitlines()] == [10, 11, 12]
    assert summary["rows"] == 3 and summary["truncated"] is True
    parts, _ = ask(served.url, json.dumps({**query, "format": "csv"}))
    assert b"".join(parts).decode().split() == ["id", "10", "11", "12"]
    parts, _ = ask(served.url, json.dumps({**query, "format": "html"}))
    assert b"".join(parts).decode().count("<tr>") == 4 and b"".join(parts).endswith(b"</html>\n")


def test_from_a_browser_curl_and_the_shell(served: polydomo.testing.Broker) -> None:
    served.wait_until(lambda server: bool(server.broker.schemas.media_of(b"spark.sql")))
    sql = "SELECT id, CAST(id AS STRING) AS name FROM numbers WHERE id < :low ORDER BY id"
    with http_client(served.url, timeout=PATIENCE) as http:
        lines = http.get("/v1/call/spark.sql", params={"q": sql, "low": "3"})
        assert [json.loads(line)["id"] for line in lines.text.splitlines()] == [0, 1, 2]
        page = http.get("/v1/call/spark.sql", params={"q": sql, "low": "3"}, headers={"accept": "text/html,*/*;q=0.8"})
        assert page.headers["content-type"].startswith("text/html") and "3 rows in" in page.text
        assert "<textarea" in http.get("/v1/call/spark.sql", headers={"accept": "text/html"}).text
        table = http.get("/v1/call/spark.sql", params={"q": sql, "low": "3", "format": "csv"})
        assert table.text.split() == ["id,name", "0,0", "1,1", "2,2"]
        refused = http.get("/v1/call/spark.sql", params={"q": "DROP VIEW numbers"})
        assert refused.status_code == 502 and refused.json()["code"] == "read-only"
    shell = subprocess.run(
        [
            sys.executable,
            "-m",
            "polydomo",
            "call",
            "spark.sql",
            sql.replace(":low", "3"),
            "--to",
            served.url,
            "--timeout",
            "200s",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == "ID  NAME\n 0  0\n 1  1\n 2  2\n" and "3 rows in" in shell.stderr


MESSAGES = {
    "DROP VIEW numbers": ("read-only", "only queries"),
    "SELECT nonsense FROM numbers": ("bad-query", "nonsense"),
    "SELECT 1 +": ("bad-query", "Syntax error"),
    "": ("bad-query", "no SQL"),
    '{"sql": "SELECT 1", "format": "xml"}': ("bad-query", "format"),
    "SELECT CAST('a' AS INT) FROM numbers": ("bad-query", "The value 'a' of the type \"STRING\" cannot be cast"),
    "SELECT raise_error('no more') FROM numbers": ("bad-query", "no more"),
    "SELECT id / 0 AS x FROM numbers": ("bad-query", "Division by zero"),
}


@pytest.mark.parametrize("sql", MESSAGES)
def test_requests_that_fail_say_why_in_one_line(served: polydomo.testing.Broker, sql: str) -> None:
    code, words = MESSAGES[sql]
    with pytest.raises(CallFailed) as caught:
        ask(served.url, sql)
    assert caught.value.code == code and words in caught.value.text
    assert "calling o" not in caught.value.text and "\n" not in caught.value.text


JVM = "('java.lang.System', 'getProperty', 'user.dir')"
XSD = "map('rowValidationXSDPath', '/etc/hostname')"
REFUSED = [
    "CREATE TABLE x AS SELECT 1",
    "WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a",
    "WITH a AS (SELECT 1) INSERT INTO IDENTIFIER('b') SELECT * FROM a",
    "FROM numbers INSERT INTO a SELECT *",
    "EXECUTE IMMEDIATE 'CREATE TEMP VIEW made AS SELECT 1'",
    "EXPLAIN EXECUTE IMMEDIATE 'CREATE TEMP VIEW made AS SELECT 1'",
    "BEGIN SELECT 1; END",
    "BEGIN CREATE TEMP VIEW made AS SELECT 1; END",
    "CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x + 1",
    "CREATE FUNCTION f AS 'org.example.F' USING JAR '/tmp/f.jar'",
    "ADD JAR '/tmp/f.jar'",
    "SET spark.sql.runSQLOnFiles = true",
    "SET",
    "RESET",
    "DECLARE x = 5",
    "CACHE TABLE numbers",
    "CALL system.clear()",
    "LIST FILES",
    "USE default",
    # programs and the JVM
    "SELECT TRANSFORM(id) USING 'cat' AS (x) FROM numbers",
    "SELECT * FROM (FROM numbers MAP id USING 'cat' AS x)",
    "SELECT id FROM numbers WHERE id IN (SELECT TRANSFORM(id) USING 'cat' AS (x BIGINT) FROM numbers)",
    f"SELECT reflect{JVM}",
    f"SELECT `reflect`{JVM}",
    f"SELECT reflect /**/{JVM}",
    f"SELECT system.builtin.`java_method`{JVM}",
    f"SELECT builtin.java_method{JVM}",
    f"SELECT session.try_reflect{JVM}",
    f"SELECT id FROM numbers ORDER BY try_reflect{JVM}",
    # files
    "SELECT * FROM text.`/etc/hostname`",
    "SELECT * FROM csv.`/etc/hostname`",
    "SELECT * FROM IDENTIFIER('json.`/etc/hostname`')",
    "SELECT * FROM `file:/etc/hostname`",
    "SELECT input_file_name() FROM numbers",
    "SELECT _metadata.file_path FROM stored",
    "SELECT id FROM stored ORDER BY `_metadata`.file_name",
    f"SELECT from_xml('<a><b>1</b></a>', 'b INT', {XSD})",
    f"SELECT schema_of_xml('<a><b>1</b></a>', {XSD})",
    "SELECT from_protobuf(X'00', 'm', '/etc/hostname')",
    """SELECT from_avro(X'00', '"string"', map('avroSchemaUrl', '/etc/hostname'))""",
    """SELECT xpath_string('<!DOCTYPE a SYSTEM "http://127.0.0.1:9/"><a/>', 'a')""",
    "SELECT `xpath`('<a><b>1</b></a>', 'a/b/text()')",
    "SELECT ${env:HOME}",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_changes_something_or_reaches_outside_is_refused(
    session: "SparkSession", served: polydomo.testing.Broker, sql: str
) -> None:
    with pytest.raises(CallFailed) as caught:
        ask(served.url, sql)
    assert caught.value.code in ("read-only", "bad-query"), caught.value
    assert not session.catalog.tableExists("made"), "the statement was run"


def test_a_plan_is_explained_without_functions_that_reach_outside(served: polydomo.testing.Broker) -> None:
    """Spark may reply with its error in place of the plan."""
    try:
        parts = ask(served.url, json.dumps({"sql": f"EXPLAIN SELECT reflect{JVM}", "format": "csv"}))[0]
        found = b"".join(parts).decode()
    except CallFailed as error:
        found = error.text
    assert "annot resolve routine `reflect`" in found


ALLOWED = [
    "SELECT 1.5",
    "SELECT sum(id) / 1e6, sum(id) / 1e6 FROM numbers",
    "(SELECT 1)",
    "/* why */ SELECT 1",
    "-- why\nSELECT 1",
    "SELECT 'reflect(''a'')' AS `java_method (`",
    "SELECT max(id) AS `_metadata` FROM stored",
    "FROM numbers |> WHERE id < 3 |> AGGREGATE count(*) GROUP BY id % 2",
    "TABLE numbers",
    "VALUES (1), (2)",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT a.id, x FROM numbers a LEFT JOIN numbers b USING (id) LATERAL VIEW explode(array(1, 2)) AS x LIMIT 3",
    "SELECT id, sum(id) OVER (ORDER BY id) FROM numbers WHERE id IN (SELECT max(id) FROM numbers) UNION SELECT 1, 2",
    "SELECT id % 2, id % 3, count(*) FROM numbers GROUP BY CUBE (id % 2, id % 3) ORDER BY 1, 2",
    "SHOW TABLES",
    "SHOW FUNCTIONS LIKE 'abs'",
    "DESCRIBE numbers",
    "DESCRIBE QUERY SELECT 1",
    "EXPLAIN SELECT * FROM numbers",
]


@pytest.mark.parametrize("sql", ALLOWED)
def test_queries_are_allowed_however_they_are_written(served: polydomo.testing.Broker, sql: str) -> None:
    parts, summary = ask(served.url, json.dumps({"sql": sql, "format": "csv", "max_rows": 100}))
    assert summary["rows"] >= 1 and parts


def test_a_query_does_not_read_the_environment_or_settings(served: polydomo.testing.Broker) -> None:
    sql = "SELECT '${env:PATH}' AS a, '${system:user.dir}' AS b, '${spark.driver.host}' AS c, '${hiveconf:spark.master}' AS d"
    parts = ask(served.url, json.dumps({"sql": sql, "format": "jsonl"}))[0]
    assert all(value.startswith("${") for value in json.loads(b"".join(parts)).values())


def test_columns_of_any_name_reach_the_client(served: polydomo.testing.Broker) -> None:
    sql = "SELECT 1.5, 'a' AS `x.y`, 2 AS n, 3 AS n"
    (csv,) = {b"".join(ask(served.url, json.dumps({"sql": sql, "format": "csv"}))[0])}
    assert csv.decode().splitlines() == ["1.5,x.y,n,n", "1.5,a,2,3"]
    (part,) = ask(served.url, sql)[0]
    table = pa.ipc.open_stream(part).read_all()
    assert table.column_names == ["1.5", "x.y", "n", "n"] and table.column(3).to_pylist() == [3]


@pytest.mark.long
def test_the_query_of_a_client_that_has_gone_is_cancelled(
    spark: "SparkSession", served: polydomo.testing.Broker
) -> None:
    tracker = spark.sparkContext.statusTracker()
    # Spark can end a task only between two batches of its input. The rows of a join of one row may take hours, those of a range do not.
    endless = "SELECT count(*) FROM range(0, 1000000000000000, 1, 2) WHERE id % 7 = 9"
    with polydomo.Client(served.url, timeout=PATIENCE) as client:
        client.submit("spark.sql", endless)
        end = time.monotonic() + PATIENCE
        while not tracker.getActiveJobsIds():
            assert time.monotonic() < end
            time.sleep(0.1)
    while tracker.getActiveJobsIds():
        assert time.monotonic() < end, "the query still runs"
        time.sleep(0.1)
    assert ask(served.url, "SELECT 1 AS one")[1]["rows"] == 1


@pytest.mark.long
def test_the_service_returns_with_a_new_session_when_spark_runs_out_of_memory(tmp_path: Path) -> None:
    pq.write_table(pa.table({"word": ["a", "b", "a"]}), tmp_path / "words.parquet")
    command = [sys.executable, "-m", "polydomo", "spark", "serve", "--table", f"words={tmp_path}", "--to"]
    with polydomo.testing.broker(settings={"queue_expiry": PATIENCE}) as broker:
        serving = subprocess.Popen([*command, broker.url], stderr=subprocess.PIPE, text=True)
        try:
            broker.wait_for("spark.sql", 4, timeout=PATIENCE)
            with pytest.raises(CallFailed) as caught:
                ask(broker.url, "SELECT size(collect_list(id)) FROM range(300000000)")
            assert caught.value.code == "spark-ended", caught.value
            # queued until the worker is back, with the same views
            assert ask(broker.url, "SELECT count(*) AS n FROM words")[1]["rows"] == 1
            serving.terminate()
            logged = serving.communicate(timeout=PATIENCE)[1]
            assert serving.returncode == 0 and "Traceback" not in logged, logged
            assert logged.count("leaves the broker until a new session is open") == 1 and "WARNING:" not in logged, (
                logged
            )
        finally:
            serving.kill()
            serving.wait()


def is_answered(url: str, sql: str) -> bool:
    try:
        return bool(ask(url, sql)[1]["rows"] == 1)
    except CallError:
        return False


STUCK = """SELECT aggregate(sequence(1, 500000), 0L,
    (a, x) -> aggregate(sequence(1, 500000), a, (b, y) -> b + x * y % 7)) AS n FROM """


@pytest.mark.long
@pytest.mark.parametrize("rows", ["range(1)", "VALUES (1) AS one(n)"])
def test_the_service_returns_when_queries_cannot_be_cancelled(tmp_path: Path, rows: str) -> None:
    """One expression over one row, which takes hours: in a task, or in the driver, which computes such values as it plans."""
    pq.write_table(pa.table({"word": ["a", "b", "a"]}), tmp_path / "words.parquet")
    limited = [sys.executable, str(Path(__file__).parents[1] / "with_limits.py"), "SQL_STUCK=3", "spark", "serve"]
    given = ["--table", f"words={tmp_path}", "--max-time", "2s", "--concurrency", "2", "--to"]
    with polydomo.testing.broker(settings={"queue_expiry": PATIENCE}) as broker:
        serving = subprocess.Popen([*limited, *given, broker.url], stderr=subprocess.PIPE, text=True)
        try:
            broker.wait_for("spark.sql", 2, timeout=PATIENCE)
            with polydomo.Client(broker.url, timeout=PATIENCE) as client:
                for handle in [client.submit("spark.sql", STUCK + rows) for _ in range(2)]:
                    with pytest.raises(CallError, match=r"took longer than 2 s|JVM has ended"):
                        handle.result()
            end = time.monotonic() + PATIENCE
            while not is_answered(broker.url, "SELECT count(*) AS n FROM words"):  # by the new session
                assert time.monotonic() < end
            serving.terminate()
            logged = serving.communicate(timeout=PATIENCE)[1]
            assert serving.returncode == 0 and "ending Spark's JVM" in logged, logged
        finally:
            serving.kill()
            serving.wait()


@pytest.mark.long
def test_the_command_serves_a_table_and_stops_at_sigterm(tmp_path: Path) -> None:
    pq.write_table(pa.table({"word": ["a", "b", "a"]}), tmp_path / "words.parquet")
    command = [sys.executable, "-m", "polydomo", "spark", "serve", "--table", f"words={tmp_path}", "--to"]
    with polydomo.testing.broker() as broker:
        serving = subprocess.Popen([*command, broker.url], stderr=subprocess.PIPE, text=True)
        try:
            broker.wait_for("spark.sql", 4, timeout=PATIENCE)
            query = {"sql": "SELECT word, count(*) AS n FROM words GROUP BY word ORDER BY word", "format": "csv"}
            parts, summary = ask(broker.url, json.dumps(query))
            assert b"".join(parts).decode().split() == ["word,n", "a,2", "b,1"] and summary["rows"] == 2
            serving.terminate()
            said = serving.communicate(timeout=PATIENCE)[1]
            assert serving.returncode == 0, said
        finally:
            serving.kill()
            serving.wait()
