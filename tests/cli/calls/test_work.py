import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from polydomo import Client
from polydomo.broker.requests.request_ids import is_id
from polydomo.cli.calls.work import FILES, FILES_PER_CALL, STOPPING
from tests.cli.shell import Broker, Gate, Running, complaint, run, script
from tests.server.harness import wait_for


def call(broker: Broker, service: str, *words: str, stdin: bytes = b"") -> bytes:
    result = run("call", service, *words, "--to", broker.url, "--raw", stdin=stdin)
    assert result.returncode == 0, result.stderr
    return result.stdout


def failure(broker: Broker, service: str) -> str:
    result = run("call", service, "--to", broker.url)
    assert result.returncode == 1
    return complaint(result)


def test_large_bodies_go_through_a_program_while_it_writes(served: Broker) -> None:
    body = b"abcdefgh" * 500_000  # past every pipe's buffer, in both directions at once
    assert call(served, "upper", "-", stdin=body) == body.upper()


def test_a_program_that_does_not_read_its_input(broker: Broker) -> None:
    with broker.worker("deaf", *script("echo heard nothing")):
        assert call(broker, "deaf", "-", stdin=b"x" * 1_000_000) == b"heard nothing\n"


def test_a_failure_is_logged_without_a_traceback(broker: Broker) -> None:
    with broker.worker("broken", *script("echo oops >&2; exit 1")) as worker:
        assert failure(broker, "broken") == "failed: oops"
        assert "exception" not in worker.logged("a call of broken failed: failed: oops")
        said = [line for line in worker.said if "no broker answers" not in line]  # where the machine paused
        assert said == ["oops"]  # what the program says on standard error is passed on


def test_failures_without_words(broker: Broker) -> None:
    with broker.worker("status", *script("exit 7")), broker.worker("killed", *script("kill -9 $$")):
        assert failure(broker, "status") == "failed: sh: exit status 7"
        assert failure(broker, "killed") == "failed: sh: killed by SIGKILL"


def test_a_program_that_is_not_there(broker: Broker) -> None:
    result = run("work", "missing", "--to", broker.url, "--", "/nonexistent/program")
    assert result.returncode == 2
    assert b"program not found: '/nonexistent/program'" in result.stderr


def test_a_program_that_disappears(broker: Broker, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\ncat\n")
    program.chmod(0o755)
    with broker.worker("missing", "--", str(program)):
        program.unlink()
        assert failure(broker, "missing") == f"failed: cannot run {program}: No such file or directory"


def test_a_last_line_without_an_end_is_a_partial_too(broker: Broker) -> None:
    with broker.worker("lines", "--lines", *script("printf 'a\\nb'")):
        assert run("call", "lines", "--to", broker.url).stdout == b"a\nb\n"


def test_concurrency(broker: Broker, tmp_path: Path) -> None:
    gates = [Gate(tmp_path / "1"), Gate(tmp_path / "2")]
    cases = f"read n; case $n in 1) {gates[0].script};; 2) {gates[1].script};; esac; echo $n"
    with broker.worker("both", "--concurrency", "2", *script(cases)):
        with (
            Running("call", "both", "1\n", "--to", broker.url) as first,
            Running("call", "both", "2\n", "--to", broker.url) as second,
        ):
            for gate in gates:
                gate.wait()  # both are inside at once
            for gate in gates:
                gate.open()
            assert (first.line(), second.line()) == (b"1\n", b"2\n")


def test_the_program_of_a_cancelled_call_is_killed(broker: Broker, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with broker.worker("long", *script(f"echo $$ > {note}.new; mv {note}.new {note}; sleep 600")):
        with Client(broker.url) as client:
            future = client.submit("long", timeout=300)
            wait_for(note.exists, "the program")
            pid = int(note.read_text())
            assert future.cancel()
            wait_for(lambda: not Path(f"/proc/{pid}").exists(), "its end")


def test_the_file_limit_is_raised_for_the_worker_but_not_its_programs(broker: Broker) -> None:
    class Limited(Running):
        inside = ("sh", "-c", 'ulimit -Sn 64 && exec "$0" "$@"')

    with Limited("work", "limit", "--to", broker.url, "-n", "30", "--log-json", *script("ulimit -Sn")):
        broker.logged("worker registered", services="limit")
        assert call(broker, "limit") == b"%d\n" % (FILES + 30 * FILES_PER_CALL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_finish(broker: Broker, tmp_path: Path, number: signal.Signals) -> None:
    gate = Gate(tmp_path)
    with broker.worker("slow", "--grace", "300", *script(f"{gate.script}; echo done")) as worker:
        with Running("call", "slow", "--to", broker.url) as running:
            gate.wait()
            worker.send(number)
            worker.logged(STOPPING % (1, 300))
            gate.open()
            assert running.line() == b"done\n"
            assert worker.status() == 0
    broker.logged("worker left", services="slow")


def test_a_second_signal_ends_its_programs_at_once(broker: Broker, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    alive = tmp_path / "alive"
    os.mkfifo(alive)  # reading it ends when the program, and all it started, has gone
    with broker.worker("slow", "--grace", "3600", *script(f"exec 9>'{alive}'; {gate.script}")) as worker:
        with Running("call", "slow", "--to", broker.url, "--timeout", "60"):
            with alive.open("rb") as pipe:
                gate.wait()
                worker.send(signal.SIGTERM)
                while worker.process.poll() is None:
                    worker.send(signal.SIGTERM)
                assert worker.status() == 128 + signal.SIGTERM
                assert pipe.read() == b""


@pytest.mark.parametrize("text", ["{gate}", "({gate}) & wait", "true; sh -c {quoted}"])
def test_killed_it_takes_its_programs_with_it(broker: Broker, tmp_path: Path, text: str) -> None:
    gate = Gate(tmp_path)
    alive = tmp_path / "alive"
    os.mkfifo(alive)  # reading it ends when the program, and all it started, has gone
    program = text.format(gate=gate.script, quoted=shlex.quote(gate.script))
    with broker.worker("slow", *script(f"exec 9>'{alive}'; {program}")) as worker:
        with Running("call", "slow", "--to", broker.url, "--timeout", "60"):
            with alive.open("rb") as pipe:
                gate.wait()
                worker.process.kill()
                assert worker.status() == -signal.SIGKILL
                assert pipe.read() == b""


def test_killed_after_its_calls_it_kills_nothing(broker: Broker, tmp_path: Path) -> None:
    with broker.worker("echo", "--", "cat") as worker:
        assert [call(broker, "echo", str(n)) for n in range(3)] == [b"0", b"1", b"2"]
        guards = children(worker.process.pid)
        assert len(guards) == 1
        worker.send(signal.SIGTERM)
        assert worker.status() == 0
        assert not Path(f"/proc/{guards[0]}").exists()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_it_waits_for_the_broker_and_reconnects(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/s"
    with Running("work", "echo", "--echo", "--to", url, "--concurrency", "3", "--log-json") as worker:
        worker.wait_until(lambda: len(worker.said) == 1, "hint")
        assert f"start one with `polydomo up --listen {url}`" in worker.said[0]
        for _ in range(2):
            with Broker(tmp_path / "data", listen=url) as broker:
                broker.logged("worker registered", services="echo")
                assert call(broker, "echo", "hello") == b"hello"
                broker.process.kill()
        worker.send(signal.SIGTERM)
        assert worker.status() == 0
        assert len(worker.said) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["echo"],
        ["echo", "--echo", "--", "cat"],
        ["echo", "--echo", "--lines"],
        ["echo", "--echo", "--log-level", "loud"],
        ["mmi.service", "--echo"],
        ["echo", "--echo", "--protocol", "smtp"],
        ["echo", "--echo", "--to", "nowhere"],
    ],
)
def test_invalid_flags(words: list[str]) -> None:
    result = run("work", *words)
    assert result.returncode == 2
    assert complaint(result)


def logged(broker: Broker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("logs", "--json", "--to", broker.url).stdout.splitlines()]


def test_lines_of_standard_error_become_log_records_of_the_request(recording: Broker) -> None:
    command = script("read word; echo \"begun $word\" >&2; printf 'no end of line' >&2; echo done")
    with recording.worker("build", "--publish-stderr", *command):
        assert run("call", "build", "this", "--to", recording.url).stdout == b"done\n"
        wait_for(lambda: len(logged(recording)) == 2, "both records")
        records = logged(recording)
        assert [record["message"] for record in records] == ["begun this", "no end of line"]
        assert {(record["service"], record["level"]) for record in records} == {("build", "info")}
        request = records[0]["request"]
        assert is_id(request) and records[1]["request"] == request
        (finished,) = json.loads(run("requests", "--since", "1h", "--json", "--to", recording.url).stdout)
        assert finished["request"] == request


def test_without_the_flag_standard_error_stays_here(broker: Broker) -> None:
    with broker.worker("build", *script("echo here >&2")) as worker:
        run("call", "build", "--to", broker.url)
        worker.wait_until(lambda: "here" in worker.said, "the line")
    assert logged(broker) == []
