"""Log records that services publish under ``log.``: checks them, finds the request they belong to, and keeps the latest.

A record is a JSON object, published under ``log.`` and the service's name:

    {"service": "upper", "level": "warning", "time": 1794724735.65, "message": "too long", "fields": {"size": 70000},
     "request": "00000002a001"}

Only ``message`` is required. ``request`` is the token of the attempt, which the worker knows (see ``tokens``), or the request's id or
number. ``time`` is seconds since the epoch or ISO 8601. Readers get the id as ``request``, the token as ``attempt``, the time as ISO 8601,
and the record's number as ``record``.
"""

import json
from collections import deque
from datetime import datetime

from polydomo.broker.requests import request_ids
from polydomo.limits import COST_RECORD, MAX_LISTED, MAX_LOG_BYTES, MAX_LOG_QUERY, MAX_LOG_RECORD, MAX_LOG_RECORDS
from polydomo.model import peer_json
from polydomo.model.json_form import iso_time

TOPIC = b"log."
LEVELS = ("debug", "info", "warning", "error", "critical")
OTHER_NAMES = {"trace": "debug", "notice": "info", "warn": "warning", "err": "error", "fatal": "critical"}

Row = dict[str, object]


class LogRecord:
    """One record. ``content`` is sent to subscribers."""

    __slots__ = (
        "attempt",
        "broker",
        "fields",
        "level",
        "message",
        "number",
        "request",
        "request_id",
        "service",
        "size",
        "time",
    )

    def __init__(
        self, time: float, service: str, level: str, message: str, fields: Row, attempt: str, size: int
    ) -> None:
        self.time = time  # seconds since the epoch, by the clock of the sender
        self.service = service
        self.level = level
        self.message = message
        self.fields = fields
        self.attempt = attempt  # "" if it belongs to no request
        self.size = size  # size as published
        self.broker = ""  # the broker it was published at, if not this one
        self.request = 0  # number of the request; set by the broker, like the next two
        self.request_id = ""
        self.number = 0

    def row(self) -> Row:
        return {
            "record": self.number,
            "time": iso_time(self.time),
            "service": self.service,
            "level": self.level,
            "message": self.message,
            "fields": self.fields,
            "request": self.request_id or None,
            "attempt": self.attempt or None,
            "broker": self.broker or None,
        }

    def has(self, text: str) -> bool:
        """Whether the message or a field contains the text, in any case. ``text`` is case-folded."""
        if text in self.message.casefold():
            return True
        return any(text in str(value).casefold() for value in self.fields.values())

    @property
    def content(self) -> bytes:
        return json.dumps(self.row()).encode()


def read(topic: bytes, content: bytes, now: float) -> LogRecord:
    """Parses a record. Raises ValueError with the reason."""
    if len(content) > MAX_LOG_RECORD:
        raise ValueError(f"{len(content)} bytes, the limit is {MAX_LOG_RECORD}")
    found = peer_json.read(content, mend=True)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    message = found.get("message")
    if not isinstance(message, str):
        raise ValueError("message is missing")
    service = found.get("service", topic[len(TOPIC) :].decode(errors="replace"))
    if not isinstance(service, str):
        raise ValueError("service must be a string")
    fields = found.get("fields", {})
    if not isinstance(fields, dict):
        raise ValueError("fields must be an object")
    record = LogRecord(
        _time(found.get("time"), now),
        service,
        level_of(found.get("level", "info")),
        message,
        fields,
        _attempt(found),
        len(content),
    )
    if request_ids.is_id(found.get("request")):
        record.request_id = str(found["request"]).upper()
    return record


def level_of(value: object) -> str:
    """Parses a level: its name in any case, a common alias, or Python's number. Raises ValueError."""
    if isinstance(value, str):
        name = value.strip().lower()
        name = OTHER_NAMES.get(name, name)
        if name in LEVELS:
            return name
    elif isinstance(value, int) and not isinstance(value, bool):
        return LEVELS[min(max(value // 10, 1), 5) - 1]
    raise ValueError(f"level must be one of {', '.join(LEVELS)}")


def _time(value: object, now: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11:
        return float(value)
    if value is None:
        return now
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None and moment.year >= 1970:
            return moment.timestamp()
    raise ValueError("time must be seconds since the epoch, or ISO 8601 with a time zone")


def _attempt(found: "dict[str, object]") -> str:
    value = found.get("request")
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 36:
        return f"{value:09x}000"
    if value is None or value == "" or value == 0:
        return ""
    if request_ids.is_id(value):
        attempt = found.get("attempt")
        return attempt if isinstance(attempt, str) and len(attempt) <= 255 else ""
    if isinstance(value, str) and len(value) <= 255:
        return value
    raise ValueError("request must be an id, a number or the token of an attempt")


class LogRecords:
    """The latest records, bounded in number and bytes."""

    def __init__(self, max_records: int = MAX_LOG_RECORDS, max_bytes: int = MAX_LOG_BYTES) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.records: deque[LogRecord] = deque()  # oldest first
        self.size = 0
        self.taken = 0  # total number of records received

    def add(self, record: LogRecord) -> None:
        self.taken += 1
        record.number = self.taken
        self.records.append(record)
        self.size += record.size
        while len(self.records) > self.max_records or self.size > self.max_bytes:
            self.size -= self.records.popleft().size

    def memory(self) -> int:
        """Memory used by the records, which are larger as objects than as text."""
        return 4 * self.size + COST_RECORD * len(self.records)

    def select(
        self,
        service: str = "",
        level: str = "debug",
        request: str = "",
        after: int = 0,
        most: int = MAX_LISTED,
        oldest: bool = False,
        text: str = "",
    ) -> list[LogRecord]:
        """The newest that fit, or the ``oldest``, in the order of their numbers. ``request`` is an id or a number; ``text`` is part of the
        message or of a field."""
        text = text.casefold()
        least = LEVELS.index(level)
        number, request_id = _request(request)
        found: list[LogRecord] = []
        for record in reversed(self.records):
            if (len(found) == most and not oldest) or record.number <= after:
                break
            if (
                (not service or record.service == service)
                and LEVELS.index(record.level) >= least
                and (not number or record.request == number)
                and (not request_id or not record.request_id or record.request_id == request_id)
                and (not text or record.has(text))
            ):
                found.append(record)
        found.reverse()
        return found[:most]

    def answer(self, wanted: bytes) -> object:
        """To a request for ``polydomo.logs``: a JSON object with any of service, level (the least), request, after (a record's number),
        most, text (part of the message or of a field), and oldest (true: not the newest of them), or nothing."""
        try:
            found = json.loads(wanted) if wanted else {}
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
            records = self.select(
                str(found.get("service") or ""),
                level_of(found.get("level") or "debug"),
                str(found.get("request") or ""),
                int(found.get("after") or 0),
                min(max(int(found.get("most") or MAX_LISTED), 1), MAX_LISTED),
                found.get("oldest") is True,
                str(found.get("text") or "")[:MAX_LOG_QUERY],
            )
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            return {"error": f"invalid filter: {error}"}
        return [record.row() for record in records]


def _request(text: str) -> tuple[int, str]:
    """Parses the number or the id of a request; returns 0 and "" if there is none. Raises ValueError.

    >>> _request("42")
    (42, '')
    """
    if not text:
        return 0, ""
    if request_ids.is_id(text):
        return request_ids.parse(text).number, text.upper()
    if text.isdecimal() and int(text) > 0:
        return int(text), ""
    raise ValueError(f"{text!r} is neither the id nor the number of a request")
