"""All JSON of the command line has one form (docs/cli.md, "JSON"): this runs every command that has ``--json`` and checks every value."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import typer

import polydomo
from polydomo.broker.requests.request_ids import is_id
from polydomo.cli.main import app
from polydomo.client.publisher import Publisher
from tests.cli.shell import PATIENCE, POLYDOMO, Broker, environment, run
from tests.server.harness import wait_for

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
TIMES = {
    "time", "started", "accepted", "registered", "state_since", "dispatched", "first_dispatched", "first_partial",
    "created", "due", "ended", "expires", "next",
}  # fmt: skip
PEERS = {"client": "c", "connection": "c", "worker": "w"}
RATES = {"rate", "failed_rate", "requests_per_second", "factor", "jitter"}  # the only numbers that are not whole
FREE = {"fields", "frames", "value", "default"}  # what programs publish, replies, and settings


def check(value: Any, name: str = "") -> None:
    """Raises AssertionError where a value does not have the form that its name promises."""
    if isinstance(value, list):
        for each in value:
            check(each, name)
    elif isinstance(value, dict):
        for key, each in value.items():
            assert re.fullmatch(r"[a-z0-9_.\-+]+", key) or name in ("failed", "datagrams"), key
            if key not in FREE:
                assert name != "memory" or key.endswith("_bytes"), f"{key} of memory is a size"
                check(each, "rate" if name == "callers" else key)  # requests a second, by protocol
    elif value is None:
        assert name not in ("time", "name", "state"), name
    elif name in TIMES:
        assert isinstance(value, str) and TIME.fullmatch(value), (name, value)
    elif name in ("request", "parent"):
        assert is_id(value) or (name == "parent" and value == ""), (name, value)
    elif name in PEERS:
        assert re.fullmatch(rf"{PEERS[name]}[1-9]\d*", value), (name, value)
    elif name.endswith(("_us", "_bytes")):
        assert type(value) is int, (name, value)
    elif isinstance(value, float):
        assert name in RATES, f"{name} is {value}: whole microseconds under a name in _us, or a rate"
    elif isinstance(value, str) and name != "next_local":  # in the time zone of the schedule
        assert not re.fullmatch(r"\d{4}-\d\d-\d\dT.*", value), f"{name} is a time, and does not end in Z: {value}"


def commands() -> set[str]:
    """The names of all commands that have ``--json``."""
    found: set[str] = set()

    def walk(command: Any, path: str) -> None:
        if hasattr(command, "commands"):
            for name in command.list_commands(None):
                walk(command.commands[name], f"{path} {name}".strip())
        elif any("--json" in param.opts for param in command.params):
            found.add(path)

    walk(typer.main.get_command(app), "")
    return found


RECORD = {"message": "half way", "level": "info", "fields": {"seconds": 0.5}}

# Commands whose output is a list or an object that this module's broker can fill. ``{request}`` and ``{journal}`` are put in.
ASKED = {
    "services": ["services", "--json"],
    "services gone": ["services", "--gone", "--json"],
    "workers": ["workers", "--json"],
    "workers gone": ["workers", "--gone", "--json"],
    "clients": ["clients", "--json"],
    "clients gone": ["clients", "--gone", "--json"],
    "requests": ["requests", "--json"],
    "requests since": ["requests", "--since", "1h", "--json"],
    "status": ["status", "--json"],
    "watch": ["watch", "--once", "--json"],
    "logs": ["logs", "--json"],
    "trace": ["trace", "{request}", "--json"],
    "call": ["call", "echo", "hello", "--json"],
    "catalog": ["catalog", "--json"],
    "submit": ["submit", "echo", "hello", "--json"],
    "jobs": ["jobs", "--json"],
    "job": ["job", "{job}", "--json"],
    "schedule add": ["schedule", "add", "nightly", "0 3 * * *", "echo", "x", "--json"],
    "schedule ls": ["schedule", "ls", "--json"],
    "memo stats": ["memo", "stats", "--json"],
    "pause": ["pause", "nobody", "--json"],
    "resume": ["resume", "nobody", "--json"],
    "drain": ["drain", "nobody", "--json"],
    "limit": ["limit", "unused", "--running", "5", "--json"],
}
ELSEWHERE = {
    "tap",  # below: it follows
    "bench",  # below: it takes its time
    "discover", "config", "doctor", "context list", "subscribe",  # addresses, topics, settings and names: nothing that has a form here
    "replay",  # below: it needs a journal with payloads
    "query",  # rows as the query names them
    "memo ls",  # empty here; tests/cli/calls/test_typed_calls.py
    "memo heads",  # empty here; tests/cli/inspect/test_memo_nodes.py
    "flow start", "flow ls", "flow show", "flow watch", "flow cancel", "flow retry",  # tests/cli/flows
    "cancel", "dead retry", "dead drop",  # one id and a word; tests/cli/jobs/test_jobs.py
}  # fmt: skip


@dataclass
class Stage:
    url: str
    request: str  # the id of one that has ended
    job: str  # the id of a durable job


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A broker with everything there is to report: calls that ended, failed, run and wait, workers that left, log records."""
    with contextlib.ExitStack() as stack:
        data = tmp_path_factory.mktemp("json")
        settings = data / "settings.toml"
        settings.write_text('queue_expiry = "1h"')  # a request without a worker waits until the last test
        recorded = ["--journal=messages", "--service=echo.bodies"]
        broker = stack.enter_context(Broker(data, "--config", str(settings), *recorded))
        with broker.worker("gone", "--echo"):
            pass
        for name, *words in (["echo", "--echo"], ["broken", "--", "false"], ["slow", "--", "sleep", "600"]):
            stack.enter_context(broker.worker(name, *words))
        assert run("call", "echo", "hello", "--to", broker.url).returncode == 0
        assert run("call", "broken", "--to", broker.url).returncode == 1
        client = stack.enter_context(polydomo.Client(broker.url, timeout=600))
        for name in ("slow", "nobody"):
            client.submit(name, "x")
        finished = json.loads(run("requests", "--since", "1h", "--json", "--to", broker.url).stdout)
        request = next(row["request"] for row in finished if row["service"] == "echo")
        with Publisher(broker.url) as publisher:
            publisher.publish("log.echo", json.dumps({**RECORD, "request": request}))
            assert publisher.flush(PATIENCE)
        wait_for(lambda: len(client.call("polydomo.requests").json()) == 2, "two open requests")
        wait_for(lambda: bool(client.call("polydomo.logs").json()), "the log record")
        job = run("submit", "echo", "hello", "--to", broker.url).stdout.decode().strip()
        assert run("result", job, "--wait", "60", "--to", broker.url).returncode == 0
        assert run("schedule", "add", "hourly", "0 * * * *", "echo", "x", "--to", broker.url).returncode == 0
        yield Stage(broker.url, request, job)


def test_every_command_that_has_json_is_checked() -> None:
    named = {name.removesuffix(" gone").removesuffix(" since") for name in ASKED}
    assert commands() - ELSEWHERE == named


@pytest.mark.parametrize("name", ASKED)
def test_the_form_of(stage: Stage, name: str) -> None:
    words = [word.replace("{request}", stage.request).replace("{job}", stage.job) for word in ASKED[name]]
    result = run(*words, "--to", stage.url)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.decode().splitlines()]
    assert rows and rows[0], "there is something to check"
    check(rows)


def printed(*words: str) -> Any:
    """What a command that succeeds prints."""
    result = run(*words)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_ids_of_live_and_finished_requests_logs_and_traces_match_up(stage: Stage) -> None:
    request = stage.request
    (record,) = json.loads(f"[{run('logs', '--request', request, '--json', '--to', stage.url).stdout.decode()}]")
    assert record["request"] == request and record["message"] == "half way"
    story = printed("trace", request, "--json", "--to", stage.url)
    assert story["request"] == request
    live = printed("requests", "--json", "--to", stage.url)
    assert {row["service"] for row in live} == {"slow", "nobody"}
    assert run("logs", "--request", live[0]["request"], "--json", "--to", stage.url).stdout == b""
    assert run("trace", live[0]["request"], "--to", stage.url).returncode == 0, (
        "the journal knows the open ones by the same id"
    )


def test_the_form_of_tap(stage: Stage) -> None:
    with subprocess.Popen(
        [*POLYDOMO, "tap", "--json", "--service", "echo", "--count", "3", "--to", stage.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as tap:
        try:
            while tap.poll() is None:
                assert run("call", "echo", "hello", "--to", stage.url).returncode == 0
            assert tap.stdout is not None
            rows = [json.loads(line) for line in tap.stdout]
        finally:
            tap.kill()
    check(rows)
    assert {"request", "client", "size_bytes"} <= set().union(*rows)


def test_the_form_of_bench_and_replay(stage: Stage) -> None:
    bench = json.loads(
        run("bench", "--duration", "100ms", "--clients", "1", "--workers", "1", "--json", "--to", stage.url).stdout
    )
    check(bench)
    status = json.loads(run("call", "polydomo.journal", "flush", "--raw", "--to", stage.url).stdout)
    replayed = run("replay", status["directory"], "--speed", "max", "--json", "--to", stage.url, "--service", "echo")
    assert replayed.returncode == 0, replayed.stderr
    check(json.loads(replayed.stdout))


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": 1794724735.0}, {"time": "2026-01-01T00:00:00+00:00"}, {"request": 42}, {"request": "42"}, {"client": 43},
        {"worker": "7"}, {"wait_us": 1.5}, {"age": 1.5}, {"held_bytes": "1 MiB"}, {"rows": [{"worker": 7}]},
    ],
)  # fmt: skip
def test_the_check_finds_other_forms(wrong: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, TypeError)):
        check(wrong)
