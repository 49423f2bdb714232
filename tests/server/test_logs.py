import io
import json
import logging
from collections.abc import Iterator

import pytest

from polydomo.limits import LOG_KEYS, LOG_LINES, LOG_VALUE
from polydomo.server import logs

LOG = logs.get("server")


@pytest.fixture(autouse=True)
def own_sweeps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of another test may still run in a thread of this process, and would sweep the lines of a test, whose clock is not its
    own. A broker sweeps at the current time; the tests name a time."""
    sweep = logs.sweep
    monkeypatch.setattr(logs, "sweep", lambda now=None: None if now is None else sweep(now))


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """Where the logs of a test go; ``setup`` is the test's."""
    stream = io.StringIO()
    yield stream
    logs.quiet()


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def at(created: float, text: str, level: int = logging.WARNING, **fields: object) -> None:
    """A line said at a given time."""
    LOG.handle(
        logging.makeLogRecord({"name": LOG.name, "levelno": level, "msg": text, "created": created, "fields": fields})
    )


# --- how a line looks -------------------------------------------------------------------------------------------------


def test_text(out: io.StringIO) -> None:
    logs.setup(stream=out)
    logs.say(LOG, logging.INFO, "listening", address="tcp://127.0.0.1:5246", count=3, ready=True, share=0.5, why=None)
    (line,) = lines(out)
    time, rest = line.split(" ", 1)
    assert len(time) == len("2026-01-31T12:00:00.000Z") and time.endswith("Z")
    assert rest == "INFO    listening address=tcp://127.0.0.1:5246 count=3 ready=true share=0.5 why=-"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("", '""'),
        ('say "x"', '"say \\"x\\""'),
        ("a=b", '"a=b"'),
        ("line\nbreak\x1b[31m", '"line\\nbreak\\x1b[31m"'),
        ("\u2028", '"\\u2028"'),
        ("größe", "größe"),
        (b"echo", "echo"),
        (b"\xff\x00", '"\\\\xff\\x00"'),
        (memoryview(b"echo"), "echo"),
    ],
)
def test_text_values(out: io.StringIO, value: object, shown: str) -> None:
    logs.setup(stream=out)
    logs.say(LOG, logging.INFO, "x", value=value)
    assert out.getvalue().endswith(f" x value={shown}\n")
    assert len(lines(out)) == 1


def test_json(out: io.StringIO) -> None:
    logs.setup(json=True, stream=out)
    logs.say(
        LOG,
        logging.WARNING,
        "closed\n",
        peer="[::1]:7",
        size=3,
        what=b"\xffx",
        level="mine",
        nan=float("nan"),
        ok=False,
    )
    (line,) = lines(out)
    said = json.loads(line)
    assert said.pop("time").endswith("Z")
    assert said == {
        "level": "warning",
        "logger": "polydomo.server",
        "message": "closed\n",
        "peer": "[::1]:7",
        "size": 3,
        "what": "\\xffx",
        "level_": "mine",
        "nan": "nan",
        "ok": False,
    }


def test_names_that_logging_keeps_for_itself_may_be_fields(out: io.StringIO) -> None:
    logs.setup(stream=out)
    logs.say(LOG, logging.INFO, "x", name="echo", args=1, text="t", log="l")
    assert out.getvalue().endswith(" x name=echo args=1 text=t log=l\n")


def test_plain_logging_calls_work_too(out: io.StringIO) -> None:
    logs.setup(stream=out)
    LOG.info("took %d s", 3, extra={"service": "echo"})
    assert out.getvalue().endswith("INFO    took 3 s service=echo\n")


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("payload", ["p" * 1_000_000, b"p" * 1_000_000, b"\xff" * 1_000_000])
def test_a_payload_does_not_fit(out: io.StringIO, as_json: bool, payload: object) -> None:
    logs.setup(json=as_json, stream=out)
    logs.say(LOG, logging.INFO, "x", value=payload)
    assert len(out.getvalue()) < 2 * LOG_VALUE + 200
    assert f"...({1_000_000 - LOG_VALUE} more)" in out.getvalue()


def test_exceptions(out: io.StringIO) -> None:
    for as_json in (False, True):
        logs.setup(json=as_json, stream=out)
        try:
            raise ValueError("first\n2026-01-31T12:00:00.000Z INFO    forged")
        except ValueError:
            LOG.exception("went wrong")
    *text, last = lines(out)
    assert text[0].endswith("ERROR   went wrong")
    assert len(text) > 3 and all(line.startswith("    ") for line in text[1:])
    assert "ValueError: first" in json.loads(last)["exception"]


# --- setting up -------------------------------------------------------------------------------------------------------


def test_levels(out: io.StringIO) -> None:
    logs.setup(level="warning", stream=out)
    logs.say(LOG, logging.INFO, "no")
    logs.say(LOG, logging.WARNING, "yes")
    assert [line.split()[-1] for line in lines(out)] == ["yes"]
    logs.setup(level="debug", stream=out)
    logs.say(LOG, logging.DEBUG, "details")
    assert [line.split()[-1] for line in lines(out)] == ["yes", "details"]


def test_setup_again_replaces(out: io.StringIO) -> None:
    first = io.StringIO()
    logs.setup(stream=first)
    logs.setup(stream=out)
    logs.say(LOG, logging.INFO, "once")
    assert first.getvalue() == ""
    assert len(lines(out)) == 1


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    logs.setup()
    logs.say(LOG, logging.INFO, "hello")
    logs.quiet()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("INFO    hello\n")


# --- no flood ---------------------------------------------------------------------------------------------------------


def test_a_flood_of_log_lines_is_counted_and_summarised(out: io.StringIO) -> None:
    logs.setup(stream=out)
    for i in range(1000):
        at(100 + i / 2000, "closed", peer=f"10.0.0.1:{i}", what="garbage")
    assert len(lines(out)) == LOG_LINES
    logs.sweep(100.9)
    assert len(lines(out)) == LOG_LINES
    logs.sweep(101.0)
    assert len(lines(out)) == LOG_LINES + 1
    more = 1000 - LOG_LINES - 1
    assert lines(out)[-1].endswith(f" closed, and {more} more like it peer=10.0.0.1:999 what=garbage")
    logs.sweep(200.0)
    assert len(lines(out)) == LOG_LINES + 1


def test_the_next_second_logs_how_many_lines_were_suppressed(out: io.StringIO) -> None:
    logs.setup(stream=out)
    for _ in range(LOG_LINES + 3):
        at(100.0, "closed", peer="10.0.0.1:1")
    at(101.0, "closed", peer="10.0.0.1:2")
    assert len(lines(out)) == LOG_LINES + 2
    assert "closed, and 2 more like it peer=10.0.0.1:1" in lines(out)[-2]
    assert lines(out)[-1].endswith("closed peer=10.0.0.1:2")


def test_a_single_suppressed_line_is_logged_unchanged(out: io.StringIO) -> None:
    logs.setup(stream=out)
    for i in range(LOG_LINES + 1):
        at(100.0, "closed", peer=f"10.0.0.1:{i}")
    logs.sweep(102.0)
    assert lines(out)[-1].endswith(f"closed peer=10.0.0.1:{LOG_LINES}")


def test_suppressed_lines_are_summarised_at_shutdown(out: io.StringIO) -> None:
    logs.setup(json=True, stream=out)
    for _ in range(100):
        at(100.0, "closed", peer="10.0.0.1:1")
    logs.quiet()
    assert json.loads(lines(out)[-1])["message"] == f"closed, and {100 - LOG_LINES - 1} more like it"


def test_others_are_not_silenced(out: io.StringIO) -> None:
    """Another host, another text, a line without a peer and a debug line are all still heard during a flood."""
    logs.setup(level="debug", stream=out)
    for _ in range(100):
        at(100.0, "closed", peer="10.0.0.1:1")
    at(100.0, "closed", peer="10.0.0.2:1")
    at(100.0, "registered", peer="10.0.0.1:1")
    for _ in range(LOG_LINES + 1):
        at(100.0, "queue is full")
        at(100.0, "read", logging.DEBUG, peer="10.0.0.1:1")
    assert len(lines(out)) == LOG_LINES + 2 + 2 * (LOG_LINES + 1)


def test_many_hosts_do_not_grow_the_counts(out: io.StringIO) -> None:
    logs.setup(stream=out)
    for i in range(10 * LOG_KEYS):
        at(100.0, "closed", peer=f"host{i}:1")
    (handler,) = logging.getLogger(logs.ROOT).handlers
    assert isinstance(handler, logs._LimitedHandler)
    assert len(handler.counts) <= LOG_KEYS + 1
    assert len(lines(out)) == LOG_KEYS + LOG_LINES
    logs.sweep(101.0)
    assert handler.counts == {}
    assert f"and {9 * LOG_KEYS - LOG_LINES - 1} more like it" in lines(out)[-1]


def test_a_clock_that_is_set_back_does_not_suppress_lines(out: io.StringIO) -> None:
    logs.setup(stream=out)
    for _ in range(LOG_LINES):
        at(1000.0, "closed", peer="10.0.0.1:1")
    at(100.0, "closed", peer="10.0.0.1:1")
    assert len(lines(out)) == LOG_LINES + 1


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1:5", "127.0.0.1"),
        ("[::1]:5", "[::1]"),
        ("ipc:///tmp/a", "ipc:///tmp/a"),
        ("tcp://a:5", "tcp://a"),
        ("a", "a"),
    ],
)
def test_host_of(peer: str, host: str) -> None:
    assert logs.host_of(peer) == host
