"""``watch``: one look, one after the other, and a screen that survives its broker."""

import contextlib
import io
import json
import os
import pty
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from rich.console import Console

import polydomo
from polydomo.cli.common.render import latency
from polydomo.cli.inspect.watch_view import RateHistory, headline, lines, screen, sparkline
from polydomo.model.json_form import iso_time
from tests.cli.shell import PATIENCE, WITH_LIMITS, Broker, Running, environment, run

LONG = (f"CONNECT_TIME={PATIENCE}", f"cli.inspect.watch.WATCH_TIME={PATIENCE}")


def figures(**changes: Any) -> dict[str, Any]:
    service = {
        "name": "echo",
        "protocols": ["mdx"],
        "state": "busy",
        "cause": "every worker holds a request",
        "workers": 2,
        "busy": 2,
        "queued": 7,
        "oldest_wait_us": 250_000,
        "requests": 1000,
        "answered": 990,
        "failed": 3,
        "requeued": 1,
        "rate": 1234.5,
        "failed_rate": 0.0,
        "p50_us": 150,
        "p99_us": 4_200,
        "max_us": 20_000,
    }
    worker = {
        "worker": "w1",
        "state": "late",
        "protocol": "mdx",
        "services": ["echo"],
        "held": 1,
        "done": 12,
        "failed": 0,
        "mean_us": 4_200,
        "state_us": 3_000_000,
        "cause": "silent for 4.0 s",
        "peer": "tcp://127.0.0.1:40000",
    }
    event = {
        "time": "2026-11-15T04:38:55.000000Z",
        "kind": "worker",
        "name": "w1",
        "state": "late",
        "cause": "silent for 4.0 s",
    }
    return {
        "time": "2026-11-15T04:38:55.000000Z",
        "address": "tcp://127.0.0.1:5246",
        "uptime_us": 75_000_000,
        "draining": False,
        "connections": 3,
        "workers": {"ready": 0, "busy": 1, "late": 1},
        "open_requests": 9,
        "queued": 7,
        "held_bytes": 2048,
        "span_us": 1_000_000,
        "rate": 1234.5,
        "failed_rate": 0.0,
        "p50_us": 150,
        "p99_us": 4_200,
        "max_us": 20_000,
        "more_services": 0,
        "services": [service, {**service, "name": "idle", "state": "ready", "queued": 0, "rate": 0.0}],
        "events": [event],
        "workers_list": [{**worker, "worker": "w2", "state": "ready", "cause": "registered"}, worker],
        **changes,
    }


def shown(found: dict[str, Any], width: int = 160, height: int = 40, trouble: str = "") -> str:
    history = RateHistory()
    history.add(found)
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(screen(found, history, width, height, trouble))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_screen_shows_services_workers_and_events() -> None:
    text = shown(figures())
    for word in (
        "tcp://127.0.0.1:5246",
        "echo",
        "1234/s",
        "150 us",
        "4.2 ms",
        "250 ms",
        "late",
        "silent for 4.0 s",
        "█",
    ):
        assert word in text, word
    rows = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert rows.index("echo") < rows.index("idle"), "what waits comes first"
    assert rows.index("w1") < rows.index("w2"), "who is late comes first"


def test_the_screen_shows_that_the_broker_is_gone_or_stopping() -> None:
    assert "no answer; waiting for the broker" in shown(figures(), trouble="no answer")
    assert "stopping" in shown(figures(draining=True))


@pytest.mark.parametrize(("width", "height"), [(40, 12), (60, 16), (80, 24), (120, 30), (250, 80)])
def test_it_fits_any_terminal(width: int, height: int) -> None:
    many = [{**figures()["services"][0], "name": f"service-{number}"} for number in range(200)]
    workers = [{**figures()["workers_list"][0], "worker": f"w{number}"} for number in range(200)]
    text = shown(figures(services=many, workers_list=workers, more_services=50), width, height)
    assert len(text.splitlines()) <= height
    assert "more)" in text
    assert all(f"{name} {value}" in text for name, value in headline(figures()))
    assert "service-0" in text


@pytest.mark.parametrize("width", range(60, 261, 10))
def test_only_reasons_are_truncated_at_any_width(width: int) -> None:
    """Columns that do not fit are left out completely, the least important first."""
    row = {**figures()["services"][0], "name": "a-service-with-a-long-name", "answered": 123_456_789, "failed": 1_000}
    found = figures(services=[row])
    history = RateHistory()
    for second in range(40):
        history.add({**found, "time": iso_time(second)})
    console = Console(file=io.StringIO(), width=width, height=50, force_terminal=True, color_system=None)
    console.print(screen(found, history, width, 50, ""))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    cut = [line for line in text.splitlines() if "\N{HORIZONTAL ELLIPSIS}" in line]
    assert not [line for line in cut if "silent for" not in line], cut
    assert "a-service-with-a-long-name" in text and "queued" in text
    if width >= 180:
        assert "last half minute" in text and "answered" in text


@pytest.mark.parametrize("width", [100, 140, 200])
def test_a_very_long_name_leaves_room_for_the_other_columns(width: int) -> None:
    name = "s" * 113
    service = {**figures()["services"][0], "name": name}
    worker = {**figures()["workers_list"][1], "name": "n" * 200, "services": [name, "other"]}
    event = {**figures()["events"][0], "name": name}
    text = shown(figures(services=[service], workers_list=[worker], events=[event]), width)
    rows = [line.rstrip() for line in text.splitlines() if "ssss" in line]
    assert len(rows) == 3 and all(len(row) <= width for row in rows)
    assert all("\N{HORIZONTAL ELLIPSIS}" in row for row in rows[:2])
    assert all(word in rows[0] for word in ("sssss", "busy", "7", "1234", "4.2 ms")), rows[0]
    assert all(word in rows[1] for word in ("w1 (nnn", "late", "ssss", "silent for")), rows[1]
    assert all(word in rows[2] for word in ("worker", "ssss", "late", "silent for")), rows[2]


def test_workers_and_services_are_sorted_as_people_count() -> None:
    worker = {**figures()["workers_list"][0], "state": "ready"}
    names = ["w10", "w2", "w100", "w1"]
    found = figures(
        workers_list=[{**worker, "worker": name, "state_us": int(name[1:])} for name in names],
        services=[{**figures()["services"][0], "name": name} for name in names],
    )
    for text in (shown(found), "\n".join(lines(found))):
        first = [line.split()[0] for line in text.splitlines() if line.strip()]
        assert [word for word in first if word in names] == ["w1", "w2", "w10", "w100"] * 2


def test_peers_cannot_steer_the_terminal() -> None:
    row = {**figures()["services"][0], "name": "\x1b[31mevil[red]\n"}
    found = figures(services=[row])
    for text in (shown(found), "\n".join(lines(found))):
        assert "\x1b[31m" not in text and "\\x1b[31mevil[red]\\n" in text


def test_history_keeps_half_a_minute_and_pauses_while_the_broker_is_gone() -> None:
    history = RateHistory()
    for second in range(50):
        history.add(figures(time=iso_time(second), rate=float(second)))
        history.add(figures(time=iso_time(second), rate=float(second)))
    assert list(history.all) == [float(second) for second in range(20, 50)]
    assert list(history.services) == ["echo", "idle"]
    assert sparkline(deque([0.0, 0.0])) == "  "
    assert [name for name, _ in headline(figures())][:2] == ["up", "connections"]
    assert latency(90_000_000) == "1 m 30 s"


# --- with real processes --------------------------------------------------------------------------------------------------------


def test_watch_once_prints_one_snapshot(served: Broker) -> None:
    result = run("watch", "--once", "--to", served.url)
    assert result.returncode == 0, result.stderr
    text = result.stdout.decode()
    assert text.startswith(f"{served.url} serving: up ")
    for word in ("SERVICE", "echo", "WORKER", "w1", "registered"):
        assert word in text
    found = json.loads(run("watch", "--once", "--json", "--to", served.url).stdout)
    assert {row["name"] for row in found["services"]} >= {"echo", "upper"}
    assert found["workers"]["ready"] == len(found["workers_list"]) == 4


def test_snapshots_follow_one_another_in_a_pipe(served: Broker) -> None:
    with Running("watch", "--json", "--interval", "0.1", "--to", served.url) as watch:
        times = [json.loads(watch.line())["time"] for _ in range(3)]
        assert times == sorted(set(times))
        watch.send(signal.SIGINT)
        assert watch.status() == 130


def test_output_to_a_pipe_continues_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path}/broker.sock"
    with contextlib.ExitStack() as stack:
        with Broker(tmp_path / "one", listen=url):
            watch = stack.enter_context(Running("watch", "--json", "--interval", "0.1", "--to", url))
            began = json.loads(watch.line())
        watch.wait_until(lambda: bool(watch.said), "word of it")
        with Broker(tmp_path / "two", listen=url):
            look = began
            # Until one of the broker that was started since.
            while started(look) <= datetime.fromisoformat(began["time"]):
                look = json.loads(watch.line())
            watch.send(signal.SIGINT)
            assert watch.status() == 130
    assert all(line.endswith("; waiting for the broker") for line in watch.said)


def started(look: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(look["time"]) - timedelta(microseconds=look["uptime_us"])


def test_no_broker_is_one_clear_line(tmp_path: Path) -> None:
    result = run("watch", "--to", f"ipc://{tmp_path}/nobody.sock")
    assert result.returncode == 5
    assert b"no broker answers" in result.stderr


def test_output_on_a_terminal_continues_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path / 'broker.sock'}"
    with contextlib.ExitStack() as first:
        first.enter_context(Broker(tmp_path / "one", listen=url))
        with Terminal(url, COLUMNS="160", LINES="40") as terminal:
            terminal.until(b"connections")
            first.close()
            terminal.until(b"waiting for the broker")
            with Broker(tmp_path / "two", listen=url):
                terminal.until(b"Ctrl-C to quit", after=b"waiting for the broker")
                assert terminal.interrupt() == 130


def test_a_terminal_without_unicode_is_supported(served: Broker) -> None:
    with Terminal(served.url, COLUMNS="80", LINES="24", PYTHONIOENCODING="ascii") as terminal:
        terminal.until(b"connections")
        with polydomo.Client(served.url, timeout=PATIENCE) as client:

            def call() -> None:
                """Its rate is shown for a second, in which `watch` may not look."""
                client.call("echo", "hello")

            terminal.until(b"@", meanwhile=call)
        assert terminal.interrupt() == 130


class Terminal:
    """``watch`` on a terminal of its own."""

    def __init__(self, url: str, **variables: str) -> None:
        self.ours, theirs = pty.openpty()
        self.seen = b""
        self.watch = subprocess.Popen(
            [*WITH_LIMITS, *LONG, "watch", "--interval", "0.1", "--to", url],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            env=environment(TERM="xterm", **variables),
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.watch.kill()
        self.watch.wait()
        os.close(self.ours)

    def until(self, word: bytes, after: bytes = b"", meanwhile: Callable[[], None] = lambda: None) -> None:
        """Reads on until ``word`` has come; with ``after``, until it comes on a screen without that."""
        end = time.monotonic() + PATIENCE
        while True:
            last = self.seen.rpartition(b"\x1b[H")[2]
            if word in last and not (after and after in last):
                return
            meanwhile()
            left = max(0.0, end - time.monotonic())
            assert select.select([self.ours], [], [], left)[0], f"{word!r} has not come: {last!r}"
            self.seen = self.seen[-20_000:] + os.read(self.ours, 65536)

    def interrupt(self) -> int:
        """Ctrl-C; returns the status."""
        self.watch.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while os.read(self.ours, 65536):  # to the end, so that it need not wait for room to write
                pass
        return self.watch.wait(PATIENCE)
