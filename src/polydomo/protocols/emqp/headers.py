"""The headers of an eMQP REQUEST and the queues of an INFORM: text in a frame, each in two notations.

The document calls the headers a "dictionary" without defining its format; EventMQ uses ``reply-requested,retry-count:2,timeout:5``.
We accept that and a JSON object, and send EventMQ's notation. Queues are "csv seperated names" in the document and
``[[weight, "name"], ...]`` in EventMQ. This module does not depend on messages or the broker.
"""

import json
import math
from collections.abc import Mapping
from math import ceil

from polydomo.errors import ProtocolViolation, SettingError
from polydomo.limits import (
    EMQP_CACHED_HEADER,
    EMQP_HEADER_CACHE,
    EMQP_MAX_HEADERS,
    EMQP_MAX_RETRIES,
    EMQP_MAX_TIMEOUT,
    EMQP_MAX_WEIGHT,
    EMQP_WEIGHT,
    MAX_JOB_KEY,
    MAX_SERVICE_NAME,
    MAX_SERVICES_PER_WORKER,
)
from polydomo.model.jobs.facts import JobFacts
from polydomo.model.request_options import RequestOptions, mark_fault
from polydomo.wire import frames

GUARANTEE = "guarantee"
JOB = "job"
KEY = "key"  # of the durable job, towards a worker
IDEMPOTENCY_KEY = "idempotency-key"  # of a client's request
GROUP = "group"  # likewise: the group that a service may be limited by ...
NEAR = "near"  # ... and what the request should be near to
REPLY_REQUESTED = "reply-requested"
RETRY_COUNT = "retry-count"
TIMEOUT = "timeout"
TIMEOUT_MS = "timeout-ms"  # extension, to a worker: the rest of the deadline in milliseconds
TRACE = "traceparent"

DEFAULT_QUEUE = b"default"


class Headers:
    """The parsed headers of a REQUEST, and their form for a worker."""

    def __init__(self, items: "list[tuple[str, str | None]]") -> None:
        self.wants_reply = False
        self.timeout = 0.0  # seconds; 0: none
        self.attempts = 0  # 1 + retry-count; 0: not said
        self.guarantee = False  # the request is stored in the job store
        self.trace = ""  # W3C trace context
        self.key = b""  # idempotency key
        self.group = b""
        self.near = b""
        before: list[str] = []
        after: list[str] | None = None  # the part after the timeout
        for name, value in items:
            if name == REPLY_REQUESTED:
                self.wants_reply = True
            elif name == GUARANTEE:
                self.guarantee = True
            elif name == TRACE:
                self.trace = value or ""
            elif name == IDEMPOTENCY_KEY:
                self.key = (value or "").encode()[:MAX_JOB_KEY]
            elif name == GROUP:
                self.group = _mark(GROUP, value)
            elif name == NEAR:
                self.near = _mark(NEAR, value)
            elif name == RETRY_COUNT:
                count = _number(value)
                if count is None:
                    continue
                self.attempts = 1 + int(min(count, EMQP_MAX_RETRIES))
            elif name == TIMEOUT:
                # EventMQ's job manager crashes on a timeout that is not a number, so it is dropped.
                seconds = _number(value)
                if seconds is not None and seconds > 0:
                    self.timeout = min(seconds, EMQP_MAX_TIMEOUT)
                    after = [] if after is None else after
                continue
            (before if after is None else after).append(name if value is None else f"{name}:{value}")
        if not self.wants_reply:
            # EventMQ's job manager replies only if this header is set. Whether the client gets the reply is decided by the client's own
            # header.
            before.insert(0, REPLY_REQUESTED)
        # Towards a worker. Without a reply the timeout is the worker's alone; otherwise what is left of it is added when it is sent.
        limit = [f"{TIMEOUT}:{self.timeout:g}"] if self.timeout and not self.wants_reply else []
        self.text = ",".join(before + limit + (after or []))
        self.framed = frames.frame(self.text.encode(), True)  # the same as a frame, where there is no deadline
        self.before = ",".join([*before, "timeout:"]).encode()
        self.after = ("," + ",".join(after) if after else "").encode()

    def framed_with(self, seconds: int, milliseconds: int = 0) -> bytes:
        """The headers for a worker as a frame, with the remaining time; in ``milliseconds`` too, if the worker understands them."""
        content = self.before + b"%d" % seconds + self.after
        if milliseconds:
            content += b",%b:%d" % (TIMEOUT_MS.encode(), milliseconds)
        return frames.head(len(content), True) + content


def of_job(job: JobFacts) -> Headers:
    """The headers of an attempt of a durable job: those of the request, and the id and key by which a worker recognises work that it did
    before. A key that the notation cannot express is left out."""
    found = items(job.headers.encode())
    if job.trace and not any(name == TRACE for name, _ in found):
        found.append((TRACE, job.trace))
    found = [(name, value) for name, value in found if name not in (JOB, KEY)]
    plain = job.key and not any(character in job.key for character in ",:\r\n")
    return Headers([*found, (JOB, job.id), *([(KEY, job.key)] if plain else [])])


NONE = Headers([])  # a request of another protocol has no headers


class Route:
    """The queue and headers of a REQUEST. They are adjacent on the wire and the same in most messages of a client."""

    def __init__(self, queue: bytes, headers: Headers) -> None:
        self.queue = queue
        self.headers = headers
        self.wants_reply = headers.wants_reply
        self.timeout = headers.timeout
        self.key = headers.key
        self.options = RequestOptions(
            attempts=headers.attempts,
            fallback=DEFAULT_QUEUE,
            guarantee=headers.guarantee,
            key=headers.key,
            group=headers.group,
            near=headers.near,
        )
        self.framed = frames.frame(queue, True) + headers.framed  # towards a worker, where there is no deadline
        self._seconds = 0
        self._framed = b""

    def framed_with(self, seconds: int) -> bytes:
        """Both frames for a worker, with the remaining time. The result is the same for most requests that do not wait, so it is cached."""
        if seconds != self._seconds:
            self._seconds = seconds
            self._framed = frames.frame(self.queue, True) + self.headers.framed_with(seconds)
        return self._framed

    def framed_within(self, seconds: float) -> bytes:
        """The same for workers that understand milliseconds."""
        headers = self.headers.framed_with(max(1, round(seconds)), max(1, ceil(seconds * 1000 - 0.01)))
        return frames.frame(self.queue, True) + headers


_routes: dict[bytes, Route] = {}


def route(content: bytes) -> Route:
    """Parses the queue and headers frames of a REQUEST. Raises ProtocolViolation if one is not text or is too long."""
    found = _routes.get(content)
    if found is None:
        start, end, _ = frames.bounds(content, 0)
        queue = content[start:end] or DEFAULT_QUEUE
        if len(queue) > MAX_SERVICE_NAME:
            raise ProtocolViolation(f"a queue name of {len(queue)} bytes, the limit is {MAX_SERVICE_NAME}")
        _text(queue, "a queue name")
        start, end, _ = frames.bounds(content, end)
        found = Route(queue, read(content[start:end]))
        if len(content) <= EMQP_CACHED_HEADER and not found.key:  # each request has another key
            if len(_routes) >= EMQP_HEADER_CACHE:
                _routes.clear()
            _routes[content] = found
    return found


def read(content: bytes) -> Headers:
    """Parses the headers frame of a REQUEST. Raises ProtocolViolation if it is not text or is too long."""
    try:
        return Headers(items(content))
    except UnicodeEncodeError:  # a lone surrogate, which JSON can represent and UTF-8 cannot
        raise ProtocolViolation("headers are not valid UTF-8") from None


def items(content: bytes) -> "list[tuple[str, str | None]]":
    """Names and values in order; a header without a value (``guarantee``) has None."""
    if not content:
        return []
    text = _text(content, "headers")
    if text.lstrip().startswith("{"):
        return _json_items(text)
    found: list[tuple[str, str | None]] = []
    for piece in text.split(","):
        name, colon, value = piece.strip().partition(":")
        if name:
            found.append((name.strip(), value.strip() if colon else None))
    return found


def _json_items(text: str) -> "list[tuple[str, str | None]]":
    document = _json(text, "headers")
    if not isinstance(document, dict):
        raise ProtocolViolation("headers are not a JSON object")
    found: list[tuple[str, str | None]] = []
    for name, value in document.items():
        if value is None or value is False:
            continue  # a present header counts as set, so a header that is off is left out
        if value is True:
            written = None
        elif isinstance(value, (str, int, float)):
            written = str(value)
        else:
            continue  # a list or an object cannot be written as EventMQ writes headers
        if not name or "," in name or ":" in name or (written is not None and "," in written):
            continue  # nor can these: a worker would parse them as other headers
        found.append((name, written))
    return found


def write(headers: "Mapping[str, str | float | None]") -> bytes:
    """Encodes a program's headers in EventMQ's notation. ``True`` and ``""`` are a header without a value; ``False`` and ``None`` are no
    header. Raises SettingError for values that the notation cannot express."""
    pieces: list[str] = []
    for name, value in headers.items():
        if value is None or value is False:
            continue
        written = "" if value is True else str(value)
        if name in (REPLY_REQUESTED, TIMEOUT):  # the end's own
            raise SettingError(f"headers: {name} is set automatically with every call; remove it")
        if not name or name != name.strip() or "," in name or ":" in name:
            raise SettingError(f"headers: invalid name {name!r}; a name has no commas, colons or surrounding spaces")
        if written != written.strip() or "," in written:
            raise SettingError(
                f"headers: invalid value {written!r} of {name}; a value has no commas or surrounding spaces"
            )
        pieces.append(f"{name}:{written}" if written else name)
    try:
        content = ",".join(pieces).encode()
    except UnicodeEncodeError:
        raise SettingError("headers: not valid UTF-8") from None
    if len(content) > EMQP_MAX_HEADERS // 2:  # the other half is enough for the automatic headers
        raise SettingError(f"headers: {len(content)} bytes, the limit is {EMQP_MAX_HEADERS // 2}")
    return content


def read_queues(content: bytes) -> "tuple[list[bytes], list[int]]":
    """Parses the queues of an INFORM: distinct names, and each weight relative to EventMQ's default, which is the weight of a worker
    without weights. Raises ProtocolViolation."""
    text = _text(content, "queues").strip() if content else ""
    queues: dict[bytes, int] = {}
    if text.startswith("["):
        document = _json(text, "queues")
        assert isinstance(document, list)  # JSON that begins so
        for entry in document:
            _add_queue(queues, entry)
    else:
        for name in text.split(","):
            if name.strip():
                _add_queue(queues, name.strip())
    if not queues:
        queues[DEFAULT_QUEUE] = 0
    if len(queues) > MAX_SERVICES_PER_WORKER:
        raise ProtocolViolation(f"{len(queues)} queues, the limit is {MAX_SERVICES_PER_WORKER}")
    return list(queues), list(queues.values())


def _add_queue(queues: "dict[bytes, int]", entry: object) -> None:
    weight: object = EMQP_WEIGHT
    name: object = entry
    if isinstance(entry, list) and len(entry) == 2:
        weight, name = entry
    if not isinstance(name, str) or isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise ProtocolViolation('a queue that is neither a name nor [weight, "name"]')
    if not -EMQP_MAX_WEIGHT <= weight <= EMQP_MAX_WEIGHT:  # NaN is outside, too
        raise ProtocolViolation("a weight is out of range")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can represent and UTF-8 cannot
        raise ProtocolViolation("a queue name that is not UTF-8") from None
    if not 0 < len(encoded) <= MAX_SERVICE_NAME:
        raise ProtocolViolation(f"a queue name of {len(encoded)} bytes, the limit is {MAX_SERVICE_NAME}")
    queues.setdefault(encoded, int(weight) - EMQP_WEIGHT)


def _text(content: bytes, what: str) -> str:
    if len(content) > EMQP_MAX_HEADERS:
        raise ProtocolViolation(f"{what} of {len(content)} bytes, the limit is {EMQP_MAX_HEADERS}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ProtocolViolation(f"{what} that are not valid UTF-8") from None


def _json(text: str, what: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolViolation(f"{what} that are not JSON") from None


def _mark(name: str, value: "str | None") -> bytes:
    content = (value or "").encode()
    fault = mark_fault(content)
    if fault:
        raise ProtocolViolation(f"a header {name} that {fault}")
    return content


def _number(value: "str | None") -> "float | None":
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
