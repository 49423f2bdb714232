"""eMQP/1.0: headers and queues as text, and our own client and worker ends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import CallFailed, ProtocolViolation, SettingError
from polydomo.limits import (
    EMQP_CACHED_HEADER,
    EMQP_HEADER_CACHE,
    EMQP_MAX_HEADERS,
    EMQP_MAX_RETRIES,
    EMQP_MAX_TIMEOUT,
)
from polydomo.protocols.emqp import headers as emqp_headers
from polydomo.protocols.emqp.ends import EmqpClientEnd, EmqpWorkerEnd
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.ends import Delivery, Dismissed, Reply
from polydomo.wire import frames
from tests.protocols.emqp_dbp_fakes import (
    HEAD,
    JOB,
    Peer,
    Table,
    inform,
)

# --- headers and queues ---


@pytest.mark.parametrize(
    ("content", "reply", "timeout", "attempts", "expected"),
    [
        (b"", False, 0.0, 0, b"reply-requested"),
        (b"reply-requested", True, 0.0, 0, b"reply-requested"),
        (b"reply-requested,retry-count:2,timeout:5", True, 5.0, 3, b"reply-requested,retry-count:2,timeout:9"),
        (b"timeout:5,reply-requested", True, 5.0, 0, b"timeout:9,reply-requested"),
        (b" guarantee , retry-count: 0 ", False, 0.0, 1, b"reply-requested,guarantee,retry-count:0"),
        (b"x-trace:a:b,guarantee", False, 0.0, 0, b"reply-requested,x-trace:a:b,guarantee"),
        (b"timeout:0,timeout:soon,timeout:-1,timeout:nan", False, 0.0, 0, b"reply-requested"),
        (b"timeout:0.5", False, 0.5, 0, b"reply-requested,timeout:9"),
        (b"timeout:1e30,retry-count:1e30", False, EMQP_MAX_TIMEOUT, EMQP_MAX_RETRIES + 1, None),
        (b"retry-count:many", False, 0.0, 0, b"reply-requested"),
        (b'{"reply-requested": true, "timeout": 5}', True, 5.0, 0, b"reply-requested,timeout:9"),
        (
            b'{"reply-requested": false, "retry-count": "1", "x": "y"}',
            False,
            0.0,
            2,
            b"reply-requested,retry-count:1,x:y",
        ),
        (b'{"a": [1], "b,timeout:1": 2, "c": "d,timeout:1", "e": null}', False, 0.0, 0, b"reply-requested"),
        (b" { } ", False, 0.0, 0, b"reply-requested"),
    ],
)
def test_headers(content: bytes, reply: bool, timeout: float, attempts: int, expected: bytes | None) -> None:
    headers = emqp_headers.read(content)
    assert (headers.wants_reply, headers.timeout, headers.attempts) == (reply, timeout, attempts)
    if expected is not None:
        framed = headers.framed_with(9) if timeout else headers.framed
        assert framed == frames.frame(expected, True)


@pytest.mark.parametrize(
    ("headers", "written"),
    [
        ({}, b""),
        ({"retry-count": 2, "guarantee": True, "x": "y"}, b"retry-count:2,guarantee,x:y"),
        ({"off": False, "none": None, "empty": "", "trace": "a:b", "half": 0.5}, b"empty,trace:a:b,half:0.5"),
        ({"imię": "zażółć"}, "imię:zażółć".encode()),
    ],
)
def test_headers_of_a_program_are_written_as_they_are_read(
    headers: dict[str, str | float | None], written: bytes
) -> None:
    assert emqp_headers.write(headers) == written
    seen = {name: "" if value is True else str(value) for name, value in headers.items() if value not in (None, False)}
    assert {name: value or "" for name, value in emqp_headers.items(written)} == seen


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"timeout": 5}, "timeout is set automatically"),
        ({"reply-requested": True}, "reply-requested is set automatically"),
        ({"": "x"}, "invalid name ''"),
        ({"a,b": "x"}, "invalid name 'a,b'"),
        ({"a:b": "x"}, "invalid name 'a:b'"),
        ({" a": "x"}, "invalid name ' a'"),
        ({"a": "1,timeout:1"}, "invalid value '1,timeout:1' of a"),
        ({"a": "x\n"}, r"invalid value 'x\\n' of a"),
        ({"a": "\ud800"}, "not valid UTF-8"),
        ({"a": "x" * EMQP_MAX_HEADERS}, "bytes, the limit is"),
    ],
)
def test_headers_that_would_be_read_as_others_are_refused(headers: dict[str, str | float | None], says: str) -> None:
    with pytest.raises(SettingError, match=f"^headers: .*{says}"):
        emqp_headers.write(headers)


def test_a_route_is_remembered_within_a_bound() -> None:
    seen = frames.more([b"q", b"guarantee,a:1"])
    assert emqp_headers.route(seen) is emqp_headers.route(seen)
    for number in range(EMQP_HEADER_CACHE * 2):
        emqp_headers.route(frames.more([b"q", b"n:%d" % number]))
    assert len(emqp_headers._routes) <= EMQP_HEADER_CACHE
    long = frames.more([b"q", b"x" * EMQP_CACHED_HEADER])
    assert emqp_headers.route(long).queue == b"q" and long not in emqp_headers._routes


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_headers_and_queues_of_any_bytes_are_read_or_refused(content: bytes) -> None:
    for reader in (emqp_headers.read, emqp_headers.read_queues):
        try:
            reader(content)
        except ProtocolViolation:
            pass


def test_queues_in_both_notations() -> None:
    assert emqp_headers.read_queues(b'[[10, "a"], [15, "b"]]') == ([b"a", b"b"], [0, 5])
    assert emqp_headers.read_queues(b"a, b,,a") == ([b"a", b"b"], [0, 0])
    assert emqp_headers.read_queues(b'["a"]') == ([b"a"], [0])
    assert emqp_headers.read_queues(b"") == emqp_headers.read_queues(b"[]") == ([b"default"], [0])
    assert emqp_headers.read_queues("grüße".encode()) == (["grüße".encode()], [0])


# --- our own ends ---


def run(table: Table, client: EmqpClientEnd, worker: EmqpWorkerEnd, at_client: Peer, at_worker: Peer) -> list[object]:
    """Carries messages between both until there are no more; a job is answered with its body in capitals."""
    events: list[object] = []
    while client.out or worker.out:
        for end, peer in ((client, at_client), (worker, at_worker)):
            for message in end.out:
                peer.say(*message)
            end.out.clear()
        for heard in at_worker.hear():
            for event in worker.receive(heard):
                if isinstance(event, Delivery):
                    worker.partial(event, [b"<"])
                    worker.final(event, [event.body[0].upper(), b">"])
                events.append(event)
        for heard in at_client.hear():
            events += client.receive(heard)
    return events


def test_our_ends_through_our_broker() -> None:
    table = Table()
    client, worker = EmqpClientEnd(), EmqpWorkerEnd()
    at_client, at_worker = table.join(EmqpSession), table.join(EmqpSession)
    worker.open([b"echo", "grüße".encode()], slots=2)
    client.request(7, b"echo", [b"ab", b"c"], timeout=12.0)
    client.request(8, "grüße".encode(), [])
    events = run(table, client, worker, at_client, at_worker)
    jobs = [event for event in events if isinstance(event, Delivery)]
    assert [(job.service, job.timeout, job.headers) for job in jobs] == [
        (b"echo", 12.0, {"reply-requested": "", "timeout": "12"}),
        ("grüße".encode(), 0.0, {"reply-requested": ""}),
    ]
    assert [event for event in events if isinstance(event, Reply)] == [Reply(7, [b"<ABC>"]), Reply(8, [b"<>"])]
    worker.beat()
    worker.close()
    run(table, client, worker, at_client, at_worker)
    assert table.notes.violations == [] and table.notes.departures == [("left", "DISCONNECT")]


def test_our_worker_disconnects_after_a_failed_job_and_understands_both_answers() -> None:
    worker = EmqpWorkerEnd()
    worker.open([b"echo"])
    (delivery,) = worker.receive([*HEAD, b"REQUEST", b"7", b"echo", b"", b"x"])
    assert isinstance(delivery, Delivery)
    assert worker.fail(delivery, "boom", "text")
    assert worker.out[-1][2] == b"DISCONNECT"
    worker.beat()
    assert worker.out[-1][2] == b"DISCONNECT"  # nothing after it
    for word in (b"KBYE", b"DISCONNECT"):
        assert EmqpWorkerEnd().receive([*HEAD, word, b"1"]) == [Dismissed(word.decode())]


def test_our_worker_asks_for_no_more_once_it_drains() -> None:
    worker = EmqpWorkerEnd()
    (delivery,) = worker.receive([*HEAD, b"REQUEST", b"7", b"echo", b"", b"x"])
    assert isinstance(delivery, Delivery)
    worker.drain()
    worker.final(delivery, [b"y"])
    assert [message[2] for message in worker.out] == [b"REPLY"]


def test_our_worker_raises_for_a_request_it_does_not_hold() -> None:
    worker = EmqpWorkerEnd()
    (delivery,) = worker.receive([*HEAD, b"REQUEST", b"7", b"echo", b"", b"x"])
    assert isinstance(delivery, Delivery)
    worker.final(delivery, [b"y"])
    with pytest.raises(ValueError):
        worker.final(delivery, [b"y"])
    with pytest.raises(ValueError):
        worker.fail(delivery, "", "")


def test_partials_held_by_our_worker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.protocols.ends.MAX_BODY", 10)
    worker = EmqpWorkerEnd()
    (delivery,) = worker.receive([*HEAD, b"REQUEST", b"7", b"echo", b"", b"x"])
    assert isinstance(delivery, Delivery)
    worker.partial(delivery, [b"x" * 10])
    with pytest.raises(CallFailed):
        worker.partial(delivery, [b"x"])


def test_our_client_reads_the_replies_of_other_brokers() -> None:
    client = EmqpClientEnd()
    client.request(1, b"q", [b"x"])
    client.request(2, b"q", [b"y"])
    first, second = (message[3] for message in client.out)
    assert client.receive([*HEAD, b"REPLY", b"router-id", first]) == []  # EventMQ's router: it was handed out, no more
    assert client.receive([*HEAD, b"REPLY", first, b"by document"]) == [Reply(1, [b"by document"])]
    client.forget(2)
    assert client.receive([*HEAD, b"REPLY", b"new", b"late", second]) == []
    client.forget(99)
    assert client.receive([*HEAD, b"HEARTBEAT", b"1"]) == []


@pytest.mark.parametrize("end", [EmqpClientEnd, EmqpWorkerEnd])
@pytest.mark.parametrize(
    "message", [[], [b""], [b"x", b"eMQP/1.0", b"REPLY", b"1"], [*HEAD, b"DANCE", b"1"], [*HEAD, b"REQUEST", b"1"]]
)
def test_our_ends_name_what_is_not_allowed(end: type[EmqpClientEnd | EmqpWorkerEnd], message: list[bytes]) -> None:
    with pytest.raises(ProtocolViolation):
        end().receive(message)


def test_our_client_publishes_and_schedules() -> None:
    table = Table()
    scheduler = table.join(EmqpSession)
    inform(scheduler, b"", b"scheduler")
    client, peer = EmqpClientEnd(), table.join(EmqpSession)
    client.publish(b"topic", b"message")
    client.schedule(b"default", JOB, interval=60)
    client.unschedule(b"default", JOB)
    for message in client.out:
        peer.say(*message)
    assert [message[2:] for message in scheduler.hear()] == [
        [b"SCHEDULE", b"c2", b"default", b"guarantee", b"60", JOB, b""],
        [b"UNSCHEDULE", b"c3", b"default", b"", b"-1", JOB, b""],
    ]
    assert json.loads(JOB)[0] == "run" and table.notes.violations == []
