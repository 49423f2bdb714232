"""Chaos on real processes: a short form (``make chaos`` runs the full one), and tests of its checks."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.duplicate_replies import watched
from chaos.faults import FAULTS
from chaos.record import Record, Tally
from chaos.report import MAX_MEMORY, Report
from polydomo.errors import ProtocolViolation
from polydomo.protocols import registry
from polydomo.protocols.dcp import session as dcp
from polydomo.protocols.mdx import commands
from polydomo.protocols.memo import messages

BODY = b"client-mdx.1.1|x"
REPLIES: dict[str, Callable[[list[bytes]], list[bytes]]] = {  # what a broker answers to a request
    "mdx": lambda said: [b"MDXC01", commands.FINAL, said[2], said[3], BODY],
    "mdp1": lambda said: [b"", b"MDPC01", said[2], BODY],
    "mdp2": lambda said: [b"MDPC02", b"\x03", said[2], BODY],
    "dcp": lambda said: [b"", said[1], bytes([dcp.REPLY]), b"client", b"", said[5], b"", BODY],
    "memo": lambda said: [said[0], messages.result(b"", False) + BODY],
    "emqp": lambda said: [b"", b"eMQP/1.0", b"REPLY", b"r1", BODY, said[3]],
}
ROOT = Path(__file__).parents[2]


def chaos(*words: str) -> str:
    """A run of its own, with its table; fails with the table if anything is not as it must be."""
    result = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed (on Debian: apt install openssl)")
@pytest.mark.timeout(900)
def test_every_fault_once() -> None:
    slow = ("--beat", "2", "--rest", "300")  # a slow machine gives a process no time for seconds
    table = chaos("chaos.run", "--seconds", "8", "--crowd", "50", "--rate", "5", "--seed", "1", *slow)
    for fault in FAULTS:
        assert f"  {fault.name}\n" in table


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_five_thousand_idle_peers_and_three_minutes() -> None:
    chaos("chaos.run", "--seconds", "180", "--crowd", "5000", "--seed", "7")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_soak(tmp_path: Path) -> None:
    plot = tmp_path / "soak.svg"
    chaos("chaos.soak", "--minutes", "5", "--plot", str(plot))
    assert plot.read_text().count("<polyline") == 4


# --- the checks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(str(tmp_path / "client-mdx.1.record"))


def judged(tmp_path: Path, memory: int = 0) -> dict[str, list[str]]:
    """The checks that fail for these records."""
    report = Report(memory=memory, survivors={"client-mdx.1"})
    report.judge(Tally.of(tmp_path))
    assert report.failed == any(report.musts.values())
    return {what: cases for what, cases in report.musts.items() if cases}


def test_a_good_run(tmp_path: Path, record: Record) -> None:
    record.submitted("client-mdx.1.1", "echo", 2)
    for _ in range(6):  # three attempts by the broker for each of two by the client
        record.executing("client-mdx.1.1")
    record.ended("client-mdx.1.1", record.judge("client-mdx.1.1", b"client-mdx.1.1|x", b"client-mdx.1.1|x"), 0.1)
    Record(str(tmp_path / "client-mdx.0.record")).submitted("client-mdx.0.1", "echo", 1)  # killed with its client
    assert judged(tmp_path) == {}
    assert dict(Report(tally=Tally.of(tmp_path)).outcomes()) == {"reply": 1, "its client was killed": 1}


def test_a_call_that_never_ended(tmp_path: Path, record: Record) -> None:
    record.submitted("client-mdx.1.1", "echo", 1)
    assert judged(tmp_path) == {"calls that never ended": ["client-mdx.1.1"]}


@pytest.mark.parametrize("how", ["ended", "second"])
def test_an_outcome_that_came_twice(tmp_path: Path, record: Record, how: str) -> None:
    record.submitted("client-mdx.1.1", "echo", 1)
    record.ended("client-mdx.1.1", "reply", 0.1)
    if how == "ended":
        record.ended("client-mdx.1.1", "timeout", 0.1)
    else:
        record.second("client-mdx.1.1")
    assert judged(tmp_path) == {"outcomes delivered twice": ["client-mdx.1.1"]}


@pytest.mark.parametrize("protocol", registry.names())
def test_a_second_reply_that_the_library_drops_is_seen(tmp_path: Path, record: Record, protocol: str) -> None:
    end = watched(lambda: registry.client_end(protocol), record, "client-mdx.1")()
    record.submitted("client-mdx.1.1", "echo", 1)
    record.ended("client-mdx.1.1", "reply", 0.1)
    end.request(1, b"echo", [b"client-mdx.1.1|x"])
    reply = REPLIES[protocol](end.out.pop())
    assert end.receive(reply)
    assert judged(tmp_path) == {}
    with contextlib.suppress(ProtocolViolation):  # without ids it can only be one
        assert end.receive(reply) == []
    assert judged(tmp_path) == {"outcomes delivered twice": ["client-mdx.1.1"]}


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (b"client-dcp.1.1|x", "replies to the wrong call or client"),
        (b"client-mdx.1.2|x", "replies to the wrong call or client"),
        (b"client-mdx.1.1|y", "replies that differ from what the worker sent"),
    ],
)
def test_a_reply_that_is_not_the_right_one(tmp_path: Path, record: Record, said: bytes, what: str) -> None:
    record.submitted("client-mdx.1.1", "echo", 1)
    record.ended("client-mdx.1.1", record.judge("client-mdx.1.1", said, b"client-mdx.1.1|x"), 0.1)
    assert judged(tmp_path) == {what: ["client-mdx.1.1"]}


@pytest.mark.parametrize("outcome", ["untyped:KeyError", "violation"])
def test_an_error_that_should_not_be(tmp_path: Path, record: Record, outcome: str) -> None:
    record.submitted("client-mdx.1.1", "echo", 1)
    record.ended("client-mdx.1.1", outcome, 0.1)
    assert list(judged(tmp_path)) == ["errors that are not the library's own, or violations"]


def test_too_many_executions(tmp_path: Path, record: Record) -> None:
    record.submitted("client-mdx.1.1", "echo", 1)
    for _ in range(4):
        record.executing("client-mdx.1.1")
    record.executing("nobody.1.1")
    record.ended("client-mdx.1.1", "reply", 0.1)
    assert list(judged(tmp_path)) == [
        "calls executed more often than attempts allow",
        "calls executed that no client submitted",
    ]


def test_too_much_memory(tmp_path: Path) -> None:
    assert list(judged(tmp_path, MAX_MEMORY + 1)) == ["MiB of the broker at rest over 400"]
