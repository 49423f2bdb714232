"""Log records: valid and invalid ones, which are kept, and the request that each belongs to."""

import json

import pytest

from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.requests import request_ids
from polydomo.broker.requests.tokens import NUMBER_MASK, number_of
from polydomo.broker.topics import logs
from polydomo.broker.topics.logs import LogRecord, LogRecords
from polydomo.model.records import Session
from polydomo.model.session import ProtocolSession
from polydomo.protocols.mdx.session import MdxSession
from polydomo.protocols.pubsub.session import PublisherSession, SubscriberSession
from polydomo.wire.frames import MORE, bounds, frame, join
from polydomo.wire.link import Hub, Link, LinkHandler
from tests.entropy import Counting

NOW = 1_794_724_735.5


def record(**content: object) -> LogRecord:
    return logs.read(b"log.upper", json.dumps({"message": "hello", **content}).encode(), NOW)


def test_a_record_in_full() -> None:
    found = record(service="lower", level="WARN", time=12.5, fields={"a": [1]}, request="00000002a001")
    assert (found.service, found.level, found.time, found.message) == ("lower", "warning", 12.5, "hello")
    assert found.fields == {"a": [1]} and found.attempt == "00000002a001"


@pytest.mark.parametrize("content", [b'"\\ud800"', b'"\xed\xa0\x80"'])
def test_a_lone_surrogate_is_shown_escaped(content: bytes) -> None:
    observed = b'{"message": %s, "service": %s, "request": %s, "fields": {%s: [%s]}}' % ((content,) * 5)
    found = logs.read(b"log.upper", observed, NOW)
    assert found.message == found.service == found.attempt == "\\ud800" and found.fields == {"\\ud800": ["\\ud800"]}


def test_only_the_message_is_needed() -> None:
    found = record()
    assert (found.service, found.level, found.time, found.fields, found.attempt) == ("upper", "info", NOW, {}, "")


@pytest.mark.parametrize(
    ("level", "name"),
    [
        ("Error", "error"),
        ("fatal", "critical"),
        (10, "debug"),
        (25, "info"),
        (99, "critical"),
        (0, "debug"),
        (-5, "debug"),
    ],
)
def test_levels_under_their_usual_names(level: object, name: str) -> None:
    assert record(level=level).level == name


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain text",
        b"[]",
        b"{}",
        b'{"message": 1}',
        b'{"message": "m", "level": "loud"}',
        b'{"message": "m", "level": true}',
        b'{"message": "m", "time": "noon"}',
        b'{"message": "m", "time": NaN}',
        b'{"message": "m", "time": -1}',
        b'{"message": "m", "fields": []}',
        b'{"message": "m", "service": 1}',
        b'{"message": "m", "request": [1]}',
        b'{"message": "m", "request": 1e400}',
        b'{"message": "m", "time": 1' + b"0" * 400 + b"}",
        b'{"message": "m", "fields": {"n": 1e400}}',
        b'{"message": "m", "fields": {"a": ' + b"[" * 40 + b"]" * 40 + b"}}",
        b'{"message": "' + bytes(17_000) + b'"}',
        b"[" * 100_000,
    ],
)
def test_invalid_records(content: bytes) -> None:
    with pytest.raises(ValueError):
        logs.read(b"log.x", content, NOW)


def test_the_newest_are_remembered_within_both_bounds() -> None:
    ring = LogRecords(max_records=3, max_bytes=1000)
    for n in range(5):
        ring.add(record(fields={"n": n}))
    assert [r.number for r in ring.records] == [3, 4, 5]
    ring.add(record(fields={"long": "x" * 950}))
    assert [r.number for r in ring.records] == [6] and ring.size == ring.records[0].size


def test_records_are_chosen_by_service_level_request_and_place() -> None:
    ring = LogRecords()
    for n, (service, level) in enumerate([("a", "debug"), ("a", "error"), ("b", "info"), ("b", "warning")]):
        one = record(service=service, level=level)
        one.request = n % 2
        ring.add(one)

    def numbers(**wanted: object) -> list[int]:
        rows = ring.answer(json.dumps(wanted).encode())
        assert isinstance(rows, list)
        return [row["record"] for row in rows]

    assert numbers() == [1, 2, 3, 4]
    assert numbers(service="a") == [1, 2]
    assert numbers(level="warning") == [2, 4]
    assert numbers(request=1) == [2, 4]
    assert numbers(after=2) == [3, 4]
    assert numbers(most=1, level="info") == [4]
    assert numbers(service="a", level="critical") == []


@pytest.mark.parametrize(
    "wanted", [b"[]", b"{", b'{"level": "loud"}', b'{"request": "x"}', b'{"most": [1]}', b'{"after": 1e999}']
)
def test_an_invalid_query_gets_an_error(wanted: bytes) -> None:
    answer = LogRecords().answer(wanted)
    assert isinstance(answer, dict) and "error" in answer


@pytest.mark.parametrize(
    ("token", "newest", "number"),
    [
        (b"00000002a001", 100, 42),
        (b"00000002a001", 41, 0),  # a request that has not been yet
        (b"00000002a00", 100, 0),
        (b"00000002a00x", 100, 0),
        (b"zzzzzzzzz001", 100, 0),
        (b"", 100, 0),
        (b"000000003001", NUMBER_MASK + 1 + 5, NUMBER_MASK + 1 + 3),  # numbers went round once
        (b"fffffffff001", NUMBER_MASK + 1 + 5, NUMBER_MASK),
    ],
)
def test_a_token_leads_to_its_request(token: bytes, newest: int, number: int) -> None:
    assert number_of(token, newest) == number


class Notes(Recorder):
    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.violations: list[str] = []

    def log_record(self, session: Session, record: LogRecord) -> None:
        self.records.append(record)

    def violated(self, session: Session, what: str) -> None:
        self.violations.append(what)


class Hall:
    def __init__(self) -> None:
        self.notes = Notes()
        self.hub = Hub()
        self.broker = Broker(100.0, Counting(), recorder=self.notes, wall=NOW)

    def join(self, session: type[ProtocolSession]) -> Session:
        link = Link(self.hub, LinkHandler(), "tcp://127.0.0.1:1")
        found = session(self.broker, link)
        link.handler = found
        self.broker.session_opened(found)
        return found


def heard(session: Session) -> list[list[bytes]]:
    data = b"".join(session.link.out)
    session.link.out.clear()
    messages: list[list[bytes]] = [[]]
    position = 0
    while position < len(data):
        start, position, flags = bounds(data, position)
        messages[-1].append(data[start:position])
        if not flags & MORE:
            messages.append([])
    return [message for message in messages[:-1] if not message[0].startswith(b"monitor.")]


def say(session: Session, *message: bytes) -> None:
    raw = join(list(message))
    session.on_message(raw, 0, len(raw))


def test_a_worker_s_record_is_tied_to_the_request_also_after_its_reply() -> None:
    hall = Hall()
    worker, client, publisher, subscriber = map(
        hall.join, (MdxSession, MdxSession, PublisherSession, SubscriberSession)
    )
    hall.broker.subscribe(subscriber, b"log.")
    say(worker, b"MDXW01", b"\x01", b"upper")
    say(client, b"MDXC01", b"\x01", b"nobody", b"id0", b"x")
    say(client, b"MDXC01", b"\x01", b"upper", b"id1", b"hello")
    ((_, _, token, _, identity, _),) = heard(worker)
    say(worker, b"MDXW01", b"\x04", token, b"", identity, b"HELLO")
    say(publisher, b"log.upper", json.dumps({"message": "done", "request": token.decode()}).encode())
    ((topic, content),) = heard(subscriber)
    found = json.loads(content)
    assert topic == b"log.upper" and found["message"] == "done"
    assert (found["attempt"], found["record"]) == (token.decode(), 1)
    assert request_ids.parse(found["request"]).number == 2
    assert [r.request for r in hall.notes.records] == [2]
    kept = hall.broker.publishing.log_records
    assert kept.select(request="2") == kept.select(request=found["request"].lower()) == hall.notes.records
    assert kept.select(request=found["request"][:-1] + "3") == []
    assert len(hall.broker.publishing.last_values) == 0  # no last value is kept of it


def test_invalid_records_are_not_published() -> None:
    hall = Hall()
    publisher, subscriber = hall.join(PublisherSession), hall.join(SubscriberSession)
    hall.broker.subscribe(subscriber, b"log.")
    hall.broker.publish(publisher, b"log.x", frame(b"not JSON", False))
    hall.broker.publish(publisher, b"log.x", b"")
    assert heard(subscriber) == [] and not hall.broker.publishing.log_records.records
    assert hall.notes.violations == ["a log record under b'log.x': not JSON"] * 2
