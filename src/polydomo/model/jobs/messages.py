"""The messages of durable jobs: requests to ``polydomo.submit`` and the other built-in services, and the broker's answers.

A message is a header, a JSON object on one line that ends with a newline, and the frames of a body. In protocols with single-frame
bodies, header and body are in the same frame, separated by the newline. An error is a header with ``error``
(a code) and ``text``. Times are ISO 8601 in UTC, durations are whole microseconds (``_us``).
"""

import json
import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from polydomo.errors import SettingError
from polydomo.limits import MAX_JOB_DELAY, MAX_JOB_KEY, MAX_JOB_PRIORITY, MAX_MARK, MAX_MESSAGE, MAX_SERVICE_NAME
from polydomo.model.request_options import mark_fault
from polydomo.model.retry_policy import Backoff, backoff_of
from polydomo.wire.frames import Body, bounds, frame, join, split

Row = dict[str, object]

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
ID_LENGTH = 26

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]  # two characters are 10 bits
_SHIFTS = range(120, -1, -10)

_decode = msgspec.json.Decoder().decode

RETRY_CODE = "retry"  # a worker's failure code "retry:SECONDS" asks for another attempt after that time
INVALID_ARGUMENTS = "invalid-arguments"  # the failure code of a request that does not match the service's schema
PERMANENT_CODES: Final = ("permanent", INVALID_ARGUMENTS)  # a worker's failure codes that rule out another attempt


def make_id(moment: float, chance: bytes) -> str:
    """A job's id: 48 bits of milliseconds and 80 random bits (10 bytes), in 26 characters that sort by time.

    >>> make_id(1767225600.0, bytes(10))
    '01KDVDNA000000000000000000'
    """
    return _id_text((int(moment * 1000) & (1 << 48) - 1) << 80 | int.from_bytes(chance, "big"))


def _id_text(value: int) -> str:
    return "".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS])


_CHARACTERS = frozenset(ALPHABET)
_VALUES = {character: value for value, character in enumerate(ALPHABET)}
_UUID = re.compile(r"[0-9A-F]{32}")


def is_id(text: str) -> bool:
    return len(text) == ID_LENGTH and _CHARACTERS.issuperset(text)


def read_id(text: str) -> str:
    """The id of a job from an id or a UUID of the same 128 bits, in upper or lower case, with or without dashes and braces; "" if the
    text is neither.

    >>> read_id("{019b76da-a800-0000-0000-000000000000}") == read_id("01kdvdna000000000000000000")
    True
    """
    given = text.strip().upper()
    if is_id(given):
        return given
    digits = given.strip("{}").replace("-", "")
    return _id_text(int(digits, 16)) if _UUID.fullmatch(digits) else ""


def uuid_text(id: str) -> str:
    """The 128 bits of an id as a UUID of 32 hexadecimal digits, as Titanic clients expect it.

    >>> uuid_text("01KDVDNA000000000000000000")
    '019B76DAA80000000000000000000000'
    """
    value = 0
    for character in id:
        value = value << 5 | _VALUES[character]
    return f"{value & (1 << 128) - 1:032X}"


def read_instant(what: str, value: object) -> float:
    """Seconds since the epoch of an ISO 8601 time; one without a zone is in UTC. Raises SettingError."""
    try:
        found = datetime.fromisoformat(str(value)) if isinstance(value, str) else None
        if found is not None:
            return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    raise SettingError(f"{what}: {value!r} is not an ISO 8601 time such as 2026-01-31T12:00:00Z")


def write_message(header: Row, body: "list[bytes] | None" = None) -> "list[bytes]":
    """The frames of a message."""
    return [_line(header), *(body or [])]


def answer_body(header: Row, body: Body = b"") -> Body:
    """Encodes an answer of the broker."""
    return frame(_line(header), bool(body)) + body


def stored_body(id: str, state: str, repeated: bool) -> Body:
    """Encodes the answer to a submission. None of the values needs to be escaped."""
    return frame(
        b'{"job":"%b","state":"%b","repeated":%b}\n' % (id.encode(), state.encode(), b"true" if repeated else b"false"),
        False,
    )


def _line(header: Row) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode() + b"\n"


def read_message(body: Body, most: int = MAX_MESSAGE) -> "tuple[Row, bytes]":
    """Parses the header of a message, of at most this many bytes; returns it with the body in wire form. Raises SettingError."""
    if not body:
        return {}, b""
    start, end, flags = bounds(body, 0)
    first = bytes(body[start:end])
    rest = bytes(body[end:])
    if not flags & 1:
        text, newline, content = first.partition(b"\n")
        first, rest = text, frame(content, False) if newline and content else b""
    if len(first) > most:
        raise SettingError(f"the header has {len(first):,} bytes; the limit is {most:,} (MAX_CONTROL)")
    return read_header(first), rest


def read_header(text: bytes) -> Row:
    if not text.strip():
        return {}
    try:
        header = _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        header = _lenient(text)
    if not isinstance(header, dict):
        raise SettingError(f"the message must begin with a JSON object, not {text[:40]!r}")
    return header


def _lenient(text: bytes) -> object:
    """Parses what the standard library accepts as JSON and msgspec does not, such as a lone surrogate."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SettingError(f"the message must begin with a JSON object, not {text[:40]!r}") from None


def read_answer(frames: "list[bytes]") -> "tuple[Row, list[bytes]]":
    """Parses an answer; returns its header and body."""
    first = frames[0] if frames else b""
    if len(frames) == 1:
        text, _, content = first.partition(b"\n")
        return read_header(text), [content] if content else []
    return read_header(first), frames[1:]


FIELDS: Final = frozenset(
    {"service", "id", "key", "delay_us", "at", "priority", "ttl_us", "retries", "timeout_us", "group", "near"}
)


class Submission:
    """A checked ``polydomo.submit`` request."""

    __slots__ = ("at", "backoff", "body", "delay", "group", "id", "key", "near", "priority", "run", "service", "ttl")

    def __init__(self, header: Row, body: bytes) -> None:
        """Raises SettingError that names the field and the expected value."""
        if not FIELDS.issuperset(header):
            unknown = sorted(str(name) for name in header if name not in FIELDS)
            raise SettingError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(FIELDS))}")
        self.service = read_service(header)
        self.body = body
        self.id = _text(header, "id", ID_LENGTH)
        if self.id and not is_id(self.id):
            raise SettingError(f"id: {self.id!r} must have {ID_LENGTH} characters of Crockford's base 32")
        self.key = self.group = self.near = ""
        self.delay = self.at = self.ttl = self.run = 0.0
        self.priority = 0
        self.backoff: Backoff | None = None
        if len(header) > 2 or not self.id:
            self._read_options(header)

    def _read_options(self, header: Row) -> None:
        """Parses the optional fields, other than the service and the id."""
        self.key = _text(header, "key", MAX_JOB_KEY)
        self.delay = read_duration(header, "delay_us")
        self.at = read_instant("at", header["at"]) if header.get("at") is not None else 0.0
        self.ttl = read_duration(header, "ttl_us")
        self.run = read_duration(header, "timeout_us")
        self.priority = _whole(header, "priority", -MAX_JOB_PRIORITY, MAX_JOB_PRIORITY)
        if header.get("retries") is not None:
            self.backoff = backoff_of(header["retries"])
        self.group, self.near = read_mark(header, "group"), read_mark(header, "near")


def read_service(header: Row) -> bytes:
    name = read_octets(header, "service", MAX_SERVICE_NAME)
    if not name:
        raise SettingError("service: the name of the service is missing")
    return name


def read_octets(header: Row, name: str, most: int) -> bytes:
    """A text that may be any bytes: those that are not UTF-8 are lone surrogates (PEP 383)."""
    return _text(header, name, most, "surrogateescape").encode("utf-8", "surrogateescape")


def _text(header: Row, name: str, most: int, errors: str = "strict") -> str:
    """Without NUL and lone surrogates, which databases do not store as text."""
    value = header.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise SettingError(f"{name}: must be a string, not {value!r}")
    if value.isascii() and len(value) <= most:
        return value
    try:
        size = len(value.encode("utf-8", errors))
    except UnicodeEncodeError:
        raise SettingError(f"{name}: is not valid Unicode") from None
    if size > most:
        raise SettingError(f"{name}: has {size} bytes; the limit is {most}")
    return value


def read_text(header: Row, name: str, most: int) -> str:
    return _text(header, name, most)


def read_mark(header: Row, name: str) -> str:
    """The group of a job, or what it is near to. Raises SettingError."""
    value = _text(header, name, MAX_MARK, "surrogateescape")
    fault = mark_fault(value.encode("utf-8", "surrogateescape")) if value else ""
    if fault:
        raise SettingError(f"{name}: {fault}")
    return value


def _whole(header: Row, name: str, least: int, most: int) -> int:
    value = header.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SettingError(f"{name}: {value!r} must be a whole number from {least} to {most}")
    return value


def read_count(header: Row, name: str, most: int) -> int:
    return _whole(header, name, 0, most)


def read_duration(header: Row, name: str) -> float:
    """Seconds, from a field in microseconds; 0 if it is missing."""
    return _whole(header, name, 0, round(MAX_JOB_DELAY * 1e6)) / 1e6


def body_of(frames: "list[bytes]") -> bytes:
    return join(frames) if frames else b""


def frames_of(body: Body) -> "list[bytes]":
    return split(body) if body else []


def error_header(code: str, text: str) -> Row:
    return {"error": code, "text": text}
