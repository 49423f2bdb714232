"""``polydomo logs`` as a shell runs it."""

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.client.publisher import Publisher
from tests.cli import shell
from tests.server.harness import wait_for


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shell.Broker]:
    with shell.Broker(tmp_path_factory.mktemp("data")) as broker:
        with Publisher(broker.url) as publisher:
            for service, level, message in (
                ("a", "debug", "one"),
                ("b", "error", "two\x1b[31m"),
                ("a", "info", "three"),
            ):
                content = {"level": level, "message": message, "fields": {"n": 1}, "service": service, "request": 7}
                publisher.publish(f"log.{service}", json.dumps(content))
            assert publisher.flush(shell.PATIENCE)
        wait(broker, 3)
        yield broker


def wait(broker: shell.Broker, count: int) -> None:
    """Waits until the broker has this many records."""
    wait_for(lambda: len(shown(broker)) >= count, f"{count} records")


def shown(broker: shell.Broker, *words: str) -> list[dict[str, object]]:
    result = shell.run("logs", "--to", broker.url, "--json", *words)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.decode().splitlines()]


def test_filters_of_the_command(broker: shell.Broker) -> None:
    assert [row["message"] for row in shown(broker)] == ["one", "two\x1b[31m", "three"]
    assert [row["message"] for row in shown(broker, "--service", "a")] == ["one", "three"]
    assert [row["message"] for row in shown(broker, "--level", "error")] == ["two\x1b[31m"]
    assert [row["message"] for row in shown(broker, "--request", "3")] == []
    assert [row["message"] for row in shown(broker, "-n", "1")] == ["three"]


def test_for_people_nothing_steers_the_terminal(broker: shell.Broker) -> None:
    lines = shell.run("logs", "--to", broker.url).stdout.decode().splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("error    b  two\\x1b[31m  n=1")


def test_follow(broker: shell.Broker) -> None:
    words = [*shell.POLYDOMO, "logs", "--to", broker.url, "--follow", "--json", "--service", "new", "-n", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=shell.environment()) as process:
        try:
            with Publisher(broker.url) as publisher:
                publisher.publish("log.new", '{"message": "first", "service": "new"}')
                publisher.publish("log.other", '{"message": "not wanted"}')
                publisher.publish("log.new", '{"message": "second", "service": "new"}')
                assert publisher.flush(shell.PATIENCE)
            assert process.stdout is not None
            assert [json.loads(process.stdout.readline())["message"] for _ in range(2)] == ["first", "second"]
        finally:
            process.terminate()


def test_following_continues_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/broker.sock"
    with contextlib.ExitStack() as stack:
        with shell.Broker(tmp_path / "one", listen=url):
            logs = stack.enter_context(shell.Running("logs", "--follow", "--json", "--to", url))
            with Publisher(url) as publisher:
                publisher.publish("log.a", '{"message": "before"}')
                assert publisher.flush(shell.PATIENCE)
            assert json.loads(logs.line())["message"] == "before"
        logs.wait_until(lambda: len(logs.said) == 1, "word of it")
        with shell.Broker(tmp_path / "two", listen=url):
            with Publisher(url) as publisher:
                publisher.publish("log.a", '{"message": "after"}')
                assert publisher.flush(shell.PATIENCE)
            assert json.loads(logs.line())["message"] == "after"
            logs.send(signal.SIGINT)
            assert logs.status() == 130
    assert len(logs.said) == 1 and logs.said[0].endswith("; waiting for the broker")


def test_a_level_that_is_none(broker: shell.Broker) -> None:
    result = shell.run("logs", "--to", broker.url, "--level", "loud")
    assert result.returncode == 2
    assert "debug, info, warning, error, critical" in shell.complaint(result)


def test_no_broker() -> None:
    result = shell.run("logs", "--to", "tcp://127.0.0.1:1")
    assert result.returncode == 5
    assert "no broker answers" in shell.complaint(result)


def test_an_empty_result_is_reported_on_a_terminal(tmp_path: Path) -> None:
    with shell.Broker(tmp_path) as broker:
        assert shell.run("logs", "--to", broker.url).stderr == b""  # a program is not
        ours, theirs = pty.openpty()
        words = [*shell.POLYDOMO, "logs", "--to", broker.url]
        result = subprocess.run(
            words, stdout=theirs, stderr=subprocess.PIPE, env=shell.environment(), timeout=shell.PATIENCE
        )
        os.close(theirs)
        os.close(ours)
    assert result.returncode == 0
    assert b"no matching log records" in result.stderr
