"""CALL and REPLY between the processes of one broker: the fast path and the general path read the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.errors import ProtocolViolation
from polydomo.model.jobs.facts import JobFacts
from polydomo.protocols.bridge.session import trace_of
from polydomo.protocols.bridge.sibling_messages import (
    CALL,
    CALL_SIZE,
    REPLY,
    TOKEN_SIZE,
    RelayedFacts,
    SiblingCall,
    details,
    read_facts,
    trace_from,
    trace_prefix,
)
from polydomo.wire.frames import frame, join
from tests.broker.net import Net

TOKEN = b"040000abc001"
NAME = "01M7HTT7AD1V40CZFW0000099T"


def call(service: bytes = b"s", left: int = 0, facts: bytes = b"", body: bytes = b"\x00\x05hello") -> bytes:
    return CALL + TOKEN + frame(service, True) + details(NAME, left, facts) + body


@given(st.binary(min_size=1, max_size=255), st.integers(0, 10**9), st.binary(max_size=400))
def test_a_call_is_read_as_it_was_written(service: bytes, left: int, headers: bytes) -> None:
    message = call(service, left, RelayedFacts("dcp", headers).encode() if headers else b"")
    read = SiblingCall(message, 0, len(message))
    assert (read.token, read.service, read.milliseconds, read.parent) == (TOKEN, service, left, NAME)
    assert message[read.body :] == b"\x00\x05hello"
    assert (read.facts.headers if read.facts is not None else b"") == headers


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_any_other_bytes_are_a_violation_or_a_call(rest: bytes) -> None:
    data = CALL + TOKEN + rest
    try:
        read = SiblingCall(data, 0, len(data))
    except ProtocolViolation:
        return
    assert read.body < len(data)


def test_the_facts_of_a_job() -> None:
    facts = read_facts(RelayedFacts("job", b"", JobFacts("01ABC", "key", "x:1", "00-a-b-01")).encode())
    assert facts is not None and facts.job is not None
    assert (facts.job.id, facts.job.key, facts.job.headers, facts.job.trace) == ("01ABC", "key", "x:1", "00-a-b-01")
    for wrong in (b"job\n{}", b"job\n[1]", b"no newline"):
        with pytest.raises(ProtocolViolation):
            read_facts(wrong)


def test_both_sides_derive_the_same_trace() -> None:
    for number in (1, 0xABC, (1 << 30) + 7, (1 << 36) + 5):
        token = b"%09x001" % (number & (1 << 36) - 1)
        assert trace_from(trace_prefix(b"0123456789abcdef"), token) == trace_of(b"0123456789abcdef", number)


@pytest.mark.parametrize("count", [1, 5])
def test_the_fast_path_takes_calls_and_replies(count: int) -> None:
    """All messages of one read, from the second call of a service on."""
    net = Net()
    a, b = net.processes("a", "b")
    worker, client = b.worker(b"s", credit=99), a.peer()
    net.settle()
    near, far = net.bridges[0].ends[1], net.bridges[0].ends[0]
    for end in (near, far):
        end.link.fast_path_size = 1000
    client.ask(b"s", 0)
    net.settle()
    worker.final(b"first")
    net.settle()
    for number in range(count):
        client.ask(b"s", number + 1, b"body %d" % number)
    sent = b"".join(bytes(piece) for piece in near.link.out)
    near.link.out.clear()
    assert far.fast_path(sent + b"\x01\x06PDBR01", 0, len(sent) + 8) == len(sent)
    assert [job[1].body for job in worker.jobs] == [join([b"body %d" % number]) for number in range(count)]
    for number in range(count):
        worker.final(b"reply %d" % number)
    replies = b"".join(bytes(piece) for piece in far.link.out)
    far.link.out.clear()
    assert replies.startswith(REPLY)
    assert near.fast_path(replies, 0, len(replies)) == len(replies)
    assert client.answers[1:] == [(number + 1, "ok", b"reply %d" % number) for number in range(count)]
    net.check()


def test_the_fast_path_stops_at_what_it_does_not_know() -> None:
    net = Net()
    a, b = net.processes("a", "b")
    worker, client = b.worker(b"s", b"t", credit=99), a.peer()
    net.settle()
    near, far = net.bridges[0].ends[1], net.bridges[0].ends[0]
    far.link.fast_path_size = 1000
    client.ask(b"s", 0)
    net.settle()
    client.ask(b"t", 1)  # another service
    client.ask(b"s", 2, timeout=9.0)  # a deadline
    for _ in range(2):
        sent = b"".join(bytes(piece) for piece in near.link.out)
        assert far.fast_path(sent, 0, len(sent)) == 0
        for cut in range(len(sent)):
            assert far.fast_path(sent[:cut], 0, cut) == 0
        net.bridges[0].carry(1, 1)
    assert len(worker.jobs) == 3
    assert len(call()) > CALL_SIZE + TOKEN_SIZE
