"""``publish`` and ``subscribe`` against a real broker."""

import doctest
import json
import signal
import subprocess
from pathlib import Path

import pytest

from polydomo.cli.calls import publish
from tests.cli.shell import POLYDOMO, Broker, Running, complaint, environment, run


def test_the_examples_in_the_module() -> None:
    assert doctest.testmod(publish).failed == 0


def test_a_subscriber_gets_the_last_value_and_then_new_messages(broker: Broker) -> None:
    assert run("publish", "weather.oslo", "snow", "--to", broker.url).returncode == 0
    assert run("publish", "other", "x", "--to", broker.url).returncode == 0
    with Running("subscribe", "weather.", "--to", broker.url) as subscriber:
        assert subscriber.line() == b"weather.oslo  snow\n"
        assert run("publish", "weather.bergen", "rain", "rain\nagain", "--to", broker.url).returncode == 0
        assert subscriber.line() == b"weather.bergen  rain  rain\\nagain\n"
        subscriber.send(signal.SIGINT)
        assert subscriber.status() == 130


def test_forms_of_output(broker: Broker) -> None:
    assert run("publish", "bytes", "-", "text", "--to", broker.url, stdin=b"\xff\x00\n").returncode == 0
    raw = run("subscribe", "bytes", "--raw", "-n", "1", "--to", broker.url)
    assert (raw.returncode, raw.stdout) == (0, b"\xff\x00\ntext")
    found = json.loads(run("subscribe", "--json", "-n", "1", "--to", broker.url).stdout)
    assert found == {"topic": "bytes", "frames": [{"base64": "/wAK"}, "text"]}


def test_a_message_without_a_body_removes_the_last_value(broker: Broker) -> None:
    for words in (["a", "1"], ["b", "2"], ["a"]):
        assert run("publish", *words, "--to", broker.url).returncode == 0
    assert run("subscribe", "-n", "1", "--to", broker.url).stdout == b"b  2\n"


def test_each_input_line_is_published_as_it_arrives(broker: Broker) -> None:
    words = [*POLYDOMO, "publish", "lines", "--lines", "--to", broker.url]
    with (
        Running("subscribe", "lines", "--to", broker.url) as subscriber,
        subprocess.Popen(words, stdin=subprocess.PIPE, env=environment()) as publisher,
    ):
        assert publisher.stdin is not None
        publisher.stdin.write(b"one\n")
        publisher.stdin.flush()
        assert subscriber.line() == b"lines  one\n"
        publisher.stdin.write(b"two\r\nthree")
        publisher.stdin.close()
        assert publisher.wait(120) == 0
        assert [subscriber.line(), subscriber.line()] == [b"lines  two\n", b"lines  three\n"]


def test_it_subscribes_again_when_the_broker_restarts(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/broker.sock"
    with Broker(tmp_path / "one", listen=url):
        subscriber = Running("subscribe", "topic", "--to", url)
        run("publish", "topic", "1", "--to", url)
        assert subscriber.line() == b"topic  1\n"
    with subscriber, Broker(tmp_path / "two", listen=url):
        while run("publish", "topic", "2", "--to", url).returncode:
            pass
        assert subscriber.line() == b"topic  2\n"


@pytest.mark.parametrize("words", [["publish", "topic", "x"], ["subscribe", "topic"], ["publish", "topic", "--lines"]])
def test_no_broker(tmp_path: Path, words: list[str]) -> None:
    result = run(*words, "--to", f"ipc://{tmp_path}/none")
    assert result.returncode == 5 and "no broker answers" in complaint(result)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["publish", "topic", "x", "--lines"], "--lines: reads messages from standard input; remove BODY"),
        (["publish", "monitor.figures", "x"], "TOPIC: only the broker publishes under 'monitor.'"),
        (["subscribe", "--raw", "--json"], "--raw and --json: choose one"),
    ],
)
def test_mistakes(words: list[str], said: str) -> None:
    result = run(*words)
    assert result.returncode == 2 and complaint(result) == said
