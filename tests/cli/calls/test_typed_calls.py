"""Typed arguments, ``memo`` and ``open`` from the shell, with a real broker whose memo store survives kill -9."""

import json
import logging
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import polydomo.logs
import polydomo.testing
from polydomo import Worker
from polydomo.cli.common.arguments import encode
from polydomo.cli.inspect import memo
from polydomo.errors import SettingError
from tests.cli.shell import PATIENCE, Broker, complaint, run


def typed_worker(url: str) -> Worker:
    worker = Worker(url)

    @worker.service("add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    return worker


def test_arguments_by_name(broker: Broker) -> None:
    with typed_worker(broker.url):
        deadline = time.monotonic() + PATIENCE
        while not httpx.get(broker.url.replace("tcp", "http") + "/v1/schema", timeout=PATIENCE).json():
            assert time.monotonic() < deadline
        result = run("call", "add", "a=2", "b=3", "--to", broker.url)
        assert (result.returncode, result.stdout) == (0, b"5\n")
        result = run("call", "add", "a=two", "--to", broker.url)
        assert (result.returncode, complaint(result)) == (2, "a: must be integer, written as JSON, not 'two'")
        result = run("call", "add", "c=2", "--to", broker.url)
        assert result.returncode == 2 and "the arguments are a, b" in complaint(result)


def test_arguments_of_a_service_without_a_schema_are_frames(served: Broker) -> None:
    assert run("call", "upper", "a=b", "--to", served.url).stdout == b"A=B\n"


@pytest.mark.parametrize(
    ("texts", "schema", "expected"),
    [
        ({"x": "1.5"}, {"type": "number"}, 1.5),
        ({"x": "true"}, {"type": "boolean"}, True),
        ({"x": "[1]"}, {"type": "array"}, [1]),
        ({"x": "null"}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ({"x": "12"}, {"type": "string"}, "12"),
        ({"x": "red"}, {"enum": ["red", "blue"]}, "red"),
        ({"x": "word"}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "word"),
        ({"x": "word"}, {}, "word"),
    ],
)
def test_texts_become_what_the_schema_wants(texts: dict[str, str], schema: dict[str, object], expected: object) -> None:
    assert json.loads(encode(texts, {"properties": {"x": schema}})) == {"x": expected}


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(SettingError, match="a: missing"):
        encode({}, {"properties": {"a": {}}, "required": ["a"]})


def test_memoised_replies_survive_kill_9_and_can_be_removed(tmp_path: Path) -> None:
    words = ["--service", "upper.memo"]
    with Broker(tmp_path / "data", *words) as broker, broker.worker("upper", "--", "tr", "a-z", "A-Z"):
        assert run("call", "upper", "hello", "--to", broker.url).stdout == b"HELLO\n"
        broker.process.kill()
        broker.process.wait()
    with Broker(tmp_path / "data", *words) as broker:
        assert run("call", "upper", "hello", "--to", broker.url).stdout == b"HELLO\n"  # without a worker
        (row,) = json.loads(run("memo", "ls", "--json", "--to", broker.url).stdout)
        assert (row["service"], row["replies"], row["hits"]) == ("upper", 1, 1)
        assert b"upper" in run("memo", "ls", "--to", broker.url).stdout
        stats = json.loads(run("memo", "stats", "--json", "--to", broker.url).stdout)
        assert (stats["hits"], stats["misses"], stats["services"]) == (1, 0, ["upper"])
        assert run("memo", "rm", "upper", "--to", broker.url).stdout == b"removed 1 replies of upper\n"
        assert run("call", "upper", "hello", "--to", broker.url).returncode == 4
        assert (tmp_path / "data" / "memo.db").stat().st_mode & 0o777 == 0o600


def test_memo_of_a_broker_that_memoises_nothing(broker: Broker) -> None:
    assert b"memo = true" in run("memo", "stats", "--to", broker.url).stdout


def test_open(broker: Broker) -> None:
    result = run("open", "--print", "--to", broker.url)
    assert (result.returncode, result.stdout.decode().strip()) == (0, broker.url.replace("tcp", "http") + "/")
    assert run("open", "--print", "--to", "tcp://127.0.0.1:1").returncode == 5
    assert run("open", "--print", "--to", "ipc:///tmp/x").returncode == 2


def test_the_story_of_a_request(recording: Broker) -> None:
    url = recording.url.replace("tcp", "http")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with recording.worker("upper", "--", "tr", "a-z", "A-Z"):
        response = httpx.post(f"{url}/v1/call/upper", content="x", headers={"traceparent": trace}, timeout=PATIENCE)
    request = response.headers["polydomo-request"]
    assert (response.text, len(request)) == ("X", 26)
    story = httpx.get(f"{url}/v1/requests/{request}", timeout=PATIENCE).json()
    assert (story["request"], story["service"], story["outcome"], story["protocol"]) == (request, "upper", "ok", "http")
    assert [span["kind"] for span in story["spans"]] == ["queued", "running"]
    assert story["total_us"] >= story["wait_us"] >= 0 and story["accepted"].endswith("Z") and story["events"]
    assert story["trace"] == trace
    assert httpx.get(f"{url}/v1/requests/nonsense", timeout=PATIENCE).status_code == 404
    assert httpx.get(f"{url}/v1/requests/{'0' * 26}", timeout=PATIENCE).status_code == 404


def test_the_story_of_a_request_that_timed_out_while_it_ran(recording: Broker) -> None:
    """Its worker logged a record, which the journal has as a row about the request."""
    url = recording.url.replace("tcp", "http")
    worker = polydomo.Worker(recording.url)
    log = logging.getLogger("test.slow")
    handler = polydomo.logs.Handler(recording.url, service="slow")
    log.addHandler(handler)

    @worker.service("slow")
    def slow(call: polydomo.Call) -> None:
        log.warning("began")
        while not call.cancelled:
            time.sleep(0.01)

    with worker:
        response = httpx.post(f"{url}/v1/call/slow", headers={"polydomo-timeout": "3"}, timeout=PATIENCE)
    log.removeHandler(handler)
    handler.close()
    assert response.status_code == 504
    request = response.headers["polydomo-request"]
    deadline = time.monotonic() + PATIENCE
    while not logged(story := httpx.get(f"{url}/v1/requests/{request}", timeout=PATIENCE).json()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    queued, running = story["spans"]
    assert (queued["kind"], running["kind"]) == ("queued", "running")
    assert running["end_us"] == story["total_us"] and running["start_us"] == story["wait_us"]
    told = run("trace", request, "--to", recording.url).stdout.decode()
    assert all(step["text"] in told for step in story["events"])


def logged(story: Any) -> bool:
    return any(step["event"] == "log" for step in story["events"])


def test_memo_ls_without_memoised_services(capsys: pytest.CaptureFixture[str]) -> None:
    with polydomo.testing.broker() as broker:
        memo.ls(broker.url)
        memo.ls(broker.url, json=True)
    assert capsys.readouterr().out == f"{memo.NOT_MEMOISED}\n[]\n"
