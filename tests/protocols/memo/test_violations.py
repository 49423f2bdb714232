"""memo01: invalid messages, bounds, and any bytes, against the real broker."""

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.guard.rules import AccessRules
from polydomo.broker.policy import Policy
from polydomo.errors import ProtocolViolation
from polydomo.limits import MEMO_MAX_RUN, MEMO_MAX_WORKERS
from polydomo.protocols.memo import messages as memo
from polydomo.wire import frames
from tests.protocols.memo.fakes import DISCONNECT, HEARTBEAT, JOB, READY, RESULT, World


@pytest.fixture
def world() -> World:
    return World()


INVALID = [
    (b"", "not an array"),
    (b"garbage", "not an array"),
    (cbor2.dumps(["memo02", JOB, b"", "echo", 1]), "not a memo01 header"),
    (cbor2.dumps(["memo01", JOB]), "not a memo01 header"),
    (cbor2.dumps([b"memo01", JOB, b"", "echo", 1]), "not a memo01 header"),
    (cbor2.dumps(["memo01", 0, b""]), "unknown type"),
    (cbor2.dumps(["memo01", 6, b""]), "unknown type"),
    (cbor2.dumps(["memo01", True, b"", []]), "unknown type"),
    (cbor2.dumps(["memo01", "1", b"", []]), "unknown type"),
    (cbor2.dumps(["memo01", HEARTBEAT, "text"]), "HEARTBEAT whose id"),
    (cbor2.dumps(["memo01", HEARTBEAT, bytes(256)]), "HEARTBEAT whose id"),
    (cbor2.dumps(["memo01", READY, b""]), "READY with 3 fields"),
    (cbor2.dumps(["memo01", READY, b"", ["a"], 1]), "READY with 5 fields"),
    (cbor2.dumps(["memo01", READY, b"id", ["a"]]), "READY with an id"),
    (cbor2.dumps(["memo01", READY, b"", "a"]), "READY without a list"),
    (cbor2.dumps(["memo01", READY, b"", [b"a"]]), "not a non-empty string"),
    (cbor2.dumps(["memo01", READY, b"", ["a", ""]]), "not a non-empty string"),
    (cbor2.dumps(["memo01", READY, b"", ["a", "b", "a"]]), "twice"),
    (cbor2.dumps(["memo01", READY, b"", [str(i) for i in range(1001)]]), "READY without a list"),
    (cbor2.dumps(["memo01", READY, b"", ["a"]]) + b"payload", "READY with a payload"),
    (cbor2.dumps(["memo01", READY, b"", ["mmi.mine"]]), "READY refused: the name 'mmi.mine' is reserved"),
    (cbor2.dumps(["memo01", READY, b"", ["x" * 256]]), "READY refused"),
    (cbor2.dumps(["memo01", JOB, b"", "echo"]), "JOB with 4 fields"),
    (cbor2.dumps(["memo01", JOB, b"", "echo", 1, 1]), "JOB with 6 fields"),
    (cbor2.dumps(["memo01", JOB, b"id", "echo", 1]), "JOB with an id"),
    (cbor2.dumps(["memo01", JOB, b"", "", 1]), "JOB whose service"),
    (cbor2.dumps(["memo01", JOB, b"", b"echo", 1]), "JOB whose service"),
    (cbor2.dumps(["memo01", JOB, b"", "echo", "1"]), "JOB whose timeout"),
    (cbor2.dumps(["memo01", JOB, b"", "echo", True]), "JOB whose timeout"),
    (cbor2.dumps(["memo01", JOB, b"", "echo", -1]), "has no place"),
    (cbor2.dumps(["memo01", JOB, b"", "echo", 1.5]), "has no place"),
    (bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563686f 18 05"), "shortest"),
    (bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563686f"), "ends early"),
    (bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563"), "ends early"),
    (bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563ffff 01"), "UTF-8"),
    (bytes.fromhex("83 66 6d656d6f3031 03 50 0000"), "ends early"),
    (cbor2.dumps(["memo01", RESULT, b"", 1]), "not a bool"),
    (cbor2.dumps(["memo01", RESULT, b"", True, True]), "RESULT with 5 fields"),
    (cbor2.dumps(["memo01", HEARTBEAT, b"", True]), "HEARTBEAT with 4 fields"),
    (cbor2.dumps(["memo01", HEARTBEAT, bytes(16)]) + b"payload", "HEARTBEAT with a payload"),
    (cbor2.dumps(["memo01", DISCONNECT, bytes(16)]), "only the broker may send"),
]


@pytest.mark.parametrize(("message", "why"), INVALID)
def test_an_invalid_message_is_ignored_and_affects_no_other_peer(world: World, message: bytes, why: str) -> None:
    peer = world.connect()
    worker = peer.worker(10, "echo")
    peer.raw(0x80000001, message)
    assert peer.heard() == [] and peer.link.closing is None
    [said] = world.notes.violations
    assert why in said
    assert list(world.broker.memo_workers) == [worker]
    peer.job(1, "echo", b"x")  # the request id was not used up
    assert peer.heard() == [(11, [JOB, worker, "echo", 5000], b"x")]
    peer.result(12, worker, b"y")
    assert peer.heard() == [(1, [RESULT, b""], b"y")]


def test_a_connection_carries_a_bounded_number_of_workers(world: World) -> None:
    peer = world.connect()
    for rid in range(MEMO_MAX_WORKERS + 1):
        peer.ready(rid, "echo")
    assert len(world.broker.workers) == MEMO_MAX_WORKERS and len(world.notes.violations) == 1


def test_a_job_refused_at_a_bound_is_silence_and_its_id_is_free() -> None:
    peer = World(Policy(max_outstanding=1)).connect()
    peer.worker(10, "echo")
    peer.job(1, "nobody")
    peer.job(2, "nobody")
    assert peer.heard() == []
    assert (0x80000002).to_bytes(4, "big") not in peer.session.open
    assert (0x80000001).to_bytes(4, "big") in peer.session.open


names = st.one_of(st.text(min_size=1, max_size=30), st.text("abc.", min_size=1, max_size=30))


@given(names, st.integers(1, 2**40), st.binary(max_size=40), st.data())
def test_the_fast_path_of_a_job_decodes_the_same_as_the_slow_path(
    service: str, timeout: int, payload: bytes, data: st.DataObject
) -> None:
    body = bytearray(cbor2.dumps(["memo01", JOB, b"", service, timeout], canonical=True) + payload)
    if data.draw(st.booleans()):
        body[data.draw(st.integers(10, len(body) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(body)))
    world = World()
    peer = world.connect()
    peer.raw(0x80000001, bytes(body[:end]))
    why = ""
    try:
        expected = memo.parse(bytes(body[:end]), 0, end)
    except ProtocolViolation as error:
        why = str(error)
    if why:
        assert world.notes.violations == [why]
        return
    if expected.timeout == 0 or len(expected.service) > 255 or expected.service.startswith((b"mmi.", b"polydomo.")):
        return
    [request] = peer.session.requests
    assert request.service.name == expected.service
    assert request.max_run == min(expected.timeout / 1000, MEMO_MAX_RUN)
    assert frames.split(request.body) == [bytes(body[expected.payload : end])]


@given(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=40)), max_size=20))
def test_any_bytes_leave_the_broker_serving(messages: list[tuple[int, bytes]]) -> None:
    world = World()
    peer, other = world.connect(), world.connect()
    worker = other.worker(10, "echo")
    for rid, body in messages:
        peer.raw(0x80000000 | rid, body)
    other.job(1, "echo", b"x")
    assert other.heard() == [(11, [JOB, worker, "echo", 5000], b"x")]


def test_a_ready_that_access_control_denies_is_no_violation(world: World) -> None:
    world.broker.access.replace(AccessRules(["alice"], []))
    peer = world.connect()
    peer.session.principal = "alice"
    peer.ready(1, "echo")
    assert world.broker.counters.denied == {"offer": 1} and not world.broker.workers
    assert world.notes.violations == [] and world.broker.counters.violations == 0
