"""The worker library by the letter, with a ROUTER of libzmq at the other end, played by hand."""

import contextlib
import threading
import traceback
from collections.abc import Generator, Iterator

import pytest
import zmq

from polydomo import (
    Call,
    CallFailed,
    Worker,
)
from polydomo.protocols import registry
from polydomo.protocols.mdp.ends import Mdp1WorkerEnd, Mdp2WorkerEnd
from tests.client.zmq_broker import Router
from tests.worker.services import answer

WAIT = 60.0  # seconds: far more than anything here takes

READY, BEAT, LEAVE = b"\x01", b"\x05", b"\x06"  # MDP/0.2

every_protocol = pytest.mark.parametrize("protocol", registry.names())


def test_mdp2_through_libzmq(router: Router) -> None:
    worker = Worker(router.url, "mdp2")

    @worker.service("count")
    def count(call: Call) -> Generator[list[str], None, str]:
        yield ["a", call.text]
        yield ["b"]
        return "end"

    with worker:
        peer, frames = router.expect()
        assert frames == [b"MDPW02", READY, b"count"]
        router.send(peer, b"MDPW02", b"\x02", b"client", b"", b"x", b"y")
        assert router.expect(BEAT)[1] == [b"MDPW02", b"\x03", b"client", b"", b"a", b"xy"]
        assert router.expect(BEAT)[1] == [b"MDPW02", b"\x03", b"client", b"", b"b"]
        assert router.expect(BEAT)[1] == [b"MDPW02", b"\x04", b"client", b"", b"end"]
    assert router.expect(BEAT) == (peer, [b"MDPW02", LEAVE])


def test_mdp1_through_libzmq(router: Router) -> None:
    worker = Worker(router.url, "mdp1")
    worker.add("echo", answer)
    with worker:
        peer, frames = router.expect()
        assert frames == [b"", b"MDPW01", READY, b"echo"]
        for body in (b"1", b"2"):
            router.send(peer, b"", b"MDPW01", b"\x02", b"client", b"", body)
            assert router.expect(b"\x04")[1] == [b"", b"MDPW01", b"\x03", b"client", b"", body]
    assert router.expect(b"\x04") == (peer, [b"", b"MDPW01", b"\x05"])


def test_heartbeats_go_on_while_a_plain_function_runs(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mdp2WorkerEnd, "interval", 0.02)
    worker = Worker(router.url, "mdp2")
    go_on = threading.Event()

    @worker.service("slow")
    def slow(call: Call) -> str:
        assert go_on.wait(WAIT)
        return "done"

    with worker:
        peer, _ = router.expect(BEAT)
        router.send(peer, b"MDPW02", b"\x02", b"client", b"", b"")
        for _ in range(5):
            assert router.expect()[1] == [b"MDPW02", BEAT]
        go_on.set()
        assert router.expect(BEAT)[1] == [b"MDPW02", b"\x04", b"client", b"", b"done"]


def test_disconnect_means_a_new_connection(router: Router) -> None:
    worker = Worker(router.url, "mdp2")
    worker.add("echo", answer)
    with worker:
        first, _ = router.expect()
        router.send(first, b"MDPW02", LEAVE)
        second, frames = router.expect(BEAT)
        assert second != first
        assert frames == [b"MDPW02", READY, b"echo"]


def test_a_silent_broker_is_taken_for_gone(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mdp2WorkerEnd, "interval", 0.02)
    monkeypatch.setattr(Mdp2WorkerEnd, "patience", 0.1)
    worker = Worker(router.url, "mdp2")
    worker.add("echo", answer)
    with worker:
        first, _ = router.expect(BEAT)
        second, frames = router.expect(BEAT)
        assert second != first
        assert frames == [b"MDPW02", READY, b"echo"]


def test_heartbeats_of_the_broker_keep_the_connection_open(router: Router) -> None:
    worker = Worker(router.url, "mdp2", beat=0.02)
    worker.add("echo", answer)
    with worker:
        beating: set[bytes] = set()  # a worker that is late may give up a connection before its first beat
        while True:
            peer, frames = router.expect()
            if frames == [b"MDPW02", BEAT]:
                beating.add(peer)
                continue
            assert frames == [b"MDPW02", READY, b"echo"]
            if beating:  # nothing came back: the broker is gone after four of them
                break
        assert peer not in beating


def test_a_broker_that_beats_is_not_lost(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mdp2WorkerEnd, "interval", 0.02)
    monkeypatch.setattr(Mdp2WorkerEnd, "patience", 1.0)
    worker = Worker(router.url, "mdp2")
    worker.add("echo", answer)
    with worker:
        registered = beats = 0
        while beats < 80:  # over patience, by the worker's own beats
            peer, frames = router.expect()
            if frames == [b"MDPW02", BEAT]:
                beats += 1
            else:  # the first time, or this thread was late
                registered, beats = registered + 1, 0
                assert registered <= 20 and frames == [b"MDPW02", READY, b"echo"]
            with contextlib.suppress(zmq.ZMQError):  # no such connection any more
                router.send(peer, b"MDPW02", BEAT)


@pytest.mark.parametrize("message", [[b"nonsense"], [b"MDPW02", b"\x09"], [b"MDPW02", b"\x02", b"client"]])
def test_a_broker_that_breaks_the_protocol(router: Router, message: list[bytes]) -> None:
    worker = Worker(router.url, "mdp2")
    worker.add("echo", answer)
    with worker:
        first, _ = router.expect()
        router.send(first, *message)
        second, frames = router.expect(BEAT)
        assert second != first
        assert frames == [b"MDPW02", READY, b"echo"]


def test_a_worker_without_failure_messages_registers_again(router: Router, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(router.url, "mdp1")

    @worker.service("fail")
    def fail(call: Call) -> str:
        raise ValueError("no good")

    with worker:
        first, _ = router.expect()
        router.send(first, b"", b"MDPW01", b"\x02", b"client", b"", b"secret")
        assert router.expect(b"\x04") == (first, [b"", b"MDPW01", b"\x05"])
        second, frames = router.expect(b"\x04")
        assert second != first
        assert frames == [b"", b"MDPW01", READY, b"fail"]
    assert "a call of fail failed" in caplog.text
    assert "no good" in caplog.text
    assert "secret" not in caplog.text
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    [frame] = traceback.extract_tb(record.exc_info[2])  # from the function on
    assert (frame.name, frame.filename) == ("fail", __file__)


def test_a_call_failed_raised_by_the_function_has_no_traceback(
    router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(router.url)

    @worker.service("paint")
    def paint(call: Call) -> str:
        raise CallFailed("out-of-paint", "no more blue")

    with worker:
        peer, _ = router.expect()
        router.send(peer, b"MDXW01", b"\x02", b"client", b"", b"1", b"blue")
        router.expect(b"PING")
    [record] = [record for record in caplog.records if "failed" in record.getMessage()]
    assert record.getMessage() == "a call of paint failed: out-of-paint: no more blue"
    assert record.exc_info is None


def test_connection_lost_while_a_function_runs(router: Router, caplog: pytest.LogCaptureFixture) -> None:
    """It is let finish, its result goes nowhere, and the worker does not register before: it does one thing at a time."""
    worker = Worker(router.url, "mdp2")
    started, go_on = threading.Event(), threading.Event()
    running: list[str] = []

    @worker.service("slow")
    def slow(call: Call) -> str:
        running.append(call.text)
        started.set()
        if call.text == "first":
            assert go_on.wait(WAIT)
        running.append("done")
        return call.text

    with worker:
        peer, _ = router.expect()
        router.send(peer, b"MDPW02", b"\x02", b"client", b"", b"first")
        assert started.wait(WAIT)
        router.unbind()
        router.bind()
        assert not router.socket.poll(200)  # nothing says READY while the function runs
        go_on.set()
        peer, frames = router.expect()
        assert frames == [b"MDPW02", READY, b"slow"]
        router.send(peer, b"MDPW02", b"\x02", b"client", b"", b"second")
        assert router.expect(BEAT)[1] == [b"MDPW02", b"\x04", b"client", b"", b"second"]
    assert running == ["first", "done", "second", "done"]
    assert "was discarded" in caplog.text


def test_a_generator_whose_connection_is_lost_is_closed(router: Router) -> None:
    worker = Worker(router.url, "mdp2")
    closed = threading.Event()

    @worker.service("endless")
    def endless(call: Call) -> Iterator[str]:
        try:
            while True:
                yield "tick"
        finally:
            closed.set()

    with worker:
        peer, _ = router.expect()
        router.send(peer, b"MDPW02", b"\x02", b"client", b"", b"")
        assert router.expect(BEAT)[1] == [b"MDPW02", b"\x03", b"client", b"", b"tick"]
        router.unbind()
        assert closed.wait(WAIT)
        router.bind()
        assert router.expect()[1] == [b"MDPW02", READY, b"endless"]


def test_a_busy_worker_that_lost_its_broker_sends_no_reply(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """DISCONNECT while a function runs: "it must send no further commands"."""
    monkeypatch.setattr(Mdp1WorkerEnd, "interval", 0.02)
    worker = Worker(router.url, "mdp1")
    started, go_on = threading.Event(), threading.Event()

    @worker.service("slow")
    def slow(call: Call) -> str:
        started.set()
        assert go_on.wait(WAIT)
        return "late"

    with worker:
        first, _ = router.expect(b"\x04")
        router.send(first, b"", b"MDPW01", b"\x02", b"client", b"", b"")
        assert started.wait(WAIT)
        router.send(first, b"", b"MDPW01", b"\x05")
        go_on.set()
        second, frames = router.expect(b"\x04")
        if second == first:  # the reply was on its way already
            assert frames[2] == b"\x03"
            second, frames = router.expect(b"\x04")
        assert second != first
        assert frames == [b"", b"MDPW01", READY, b"slow"]
