"""``POST /v1/call/{service}``: the reply as one body, as separate frames, or as a stream of partial replies.

``GET /v1/call/{service}?name=value`` is for services whose schema declares that they change nothing, and lists the media types of their
replies. The request is a JSON object of the query parameters, plus ``accept``: the media type that was selected.
"""

import re
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from polydomo.limits import MAX_CONTROL, MAX_HTTP_TIMEOUT, MAX_IDEMPOTENCY_KEY, MAX_SERVICE_NAME
from polydomo.model import durations
from polydomo.model.progress import progress_row
from polydomo.model.records import Request
from polydomo.model.request_options import mark_fault, options_of
from polydomo.model.service_schema import JSON_ENCODING
from polydomo.web.content import (
    EVENTS,
    FORM,
    FRAMES_JSON,
    JSON,
    LINES,
    MULTIPART,
    OCTETS,
    PROBLEM,
    TEXT,
    body_from_json,
    choose,
    dump,
    event,
    event_of_frames,
    line,
    media_type,
    request_body,
    response_body,
)
from polydomo.web.json_frames import JsonFrames
from polydomo.web.session import Endpoint, Exchange, HttpSession, failure_problem, problem_headers
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import Body, flat, join
from polydomo.wire.http.head import HttpError, RequestHead

OFFERED: Final = (OCTETS, TEXT, EVENTS, LINES, MULTIPART, JSON, FRAMES_JSON)
# A reply to GET may be HTML. It must not run scripts, load anything, or share the dashboard's origin.
SANDBOX: Final = (
    b"Content-Security-Policy: sandbox allow-forms; default-src 'none'; style-src 'unsafe-inline'; form-action 'self'\r\n"
    b"Vary: Accept\r\n"
)
NO_STORE: Final = b"Cache-Control: no-store\r\n"

_TRACE: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def duration(text: str, what: str) -> float:
    """Seconds. Raises HttpError.

    >>> duration("500ms", "Polydomo-Timeout")
    0.5
    """
    seconds = durations.read_duration(text)
    if seconds is None or seconds > MAX_HTTP_TIMEOUT:
        most = durations.show_duration(MAX_HTTP_TIMEOUT)
        raise HttpError(400, f"{what} must be {durations.EXPECTED}, at most {most}", close=False)
    return seconds


def preferences(head: RequestHead) -> "dict[str, str]":
    """The Prefer header (RFC 7240)."""
    found: dict[str, str] = {}
    for item in head.headers.get("prefer", "").split(","):
        name, _, value = item.partition("=")
        found[name.strip().lower()] = value.strip().strip('"')
    return found


def service_name(path: "list[str]") -> bytes:
    """Raises HttpError. A slash in the name may be escaped or not."""
    name = "/".join(path).encode()
    if not name:
        raise HttpError(404, "the path names no service: POST /v1/call/SERVICE", close=False)
    if len(name) > MAX_SERVICE_NAME:
        raise HttpError(404, f"a service name has at most {MAX_SERVICE_NAME} bytes", close=False)
    return name


Submit = Callable[[HttpSession, bytes, bytes, "CallPlan"], None]


class Keep(Protocol):
    """``idempotency.Idempotency``"""

    def begin(self, session: HttpSession, service: bytes, body: bytes, name: str, inner: Exchange) -> Exchange | None:
        """The exchange for a call that runs or joins one; None if ``inner`` got the stored reply of an earlier call with the same key."""

    def started(self, exchange: Exchange, request: Request | None) -> None:
        """The call was made."""


class CallEndpoint(Endpoint):
    methods: "tuple[str, ...]" = ("GET", "POST")
    takes_payload = True

    def __init__(
        self,
        encoding_of: "Callable[[bytes], str]" = lambda service: "",
        submit: "Submit | None" = None,
        keep: "Keep | None" = None,
        media_of: "Callable[[bytes], tuple[str, ...]]" = lambda service: (),
    ) -> None:
        self.media_of = media_of  # of a service that may be called with GET
        self.encoding_of = encoding_of  # of a typed service: its replies are JSON already
        self.submit = submit  # makes a call a durable job
        self.keep = keep  # keeps replies under the client's keys

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        service = service_name(path)
        if head.method == "GET" and not self.media_of(service):
            raise HttpError(405, "GET is not allowed for this service; use POST", close=False)
        if (
            head.method == "GET"
            and head.headers.get("sec-fetch-site") == "cross-site"
            and not session.site.trusts(head)
        ):
            raise HttpError(
                403, "pages of other sites may not call services; list their origins in http.origins", close=False
            )
        if "polydomo-timeout" in head.headers:
            duration(head.headers["polydomo-timeout"], "Polydomo-Timeout")

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        if head.method == "GET":
            self._get(session, head, service_name(path))
            return
        plan = head.plan
        if not isinstance(plan, CallPlan):
            plan = head.plan = CallPlan(head, path)
        if plan.one_frame:
            self._call(session, plan, join([body]))
        else:
            read_frames(session, plan.content_type, body, lambda frames: self._call(session, plan, frames))

    def _call(self, session: HttpSession, plan: "CallPlan", frames: bytes) -> None:
        service = plan.service
        media = plan.media
        exchange: Exchange
        if media in (EVENTS, LINES):
            exchange = EventExchange(session, media)
        elif plan.chunked:
            exchange = ChunkExchange(session)
        elif media in (OCTETS, JSON) and self.encoding_of(service) == JSON_ENCODING:
            exchange = TypedExchange(session, JSON)
        else:
            exchange = CallExchange(session, media)
        if plan.plain:
            session.ask(service, frames, exchange)
            return
        if plan.respond_async and self.submit is not None:
            self.submit(session, service, frames, plan)
            return
        deadline = session.broker.now + plan.time_limit if plan.has_time_limit else 0.0
        if plan.trace:
            exchange.trace = plan.trace
        own = session.broker.is_reserved(service)  # a built-in service has its own right, and its replies are not kept
        if plan.key and self.keep is not None and isinstance(exchange, CallExchange) and not own:
            kept = self.keep.begin(session, service, frames, plan.key, exchange)
            if kept is not None:
                self.keep.started(kept, session.ask(service, frames, kept, deadline, plan.options))
        else:
            session.ask(service, frames, exchange, deadline, plan.options)

    def _get(self, session: HttpSession, head: RequestHead, service: bytes) -> None:
        headers = head.headers
        media = choose(headers.get("accept", ""), self.media_of(service))
        if not media:
            offered = ", ".join(self.media_of(service))
            raise HttpError(406, f"the service cannot reply with an accepted type; it offers {offered}", close=False)
        deadline = 0.0
        if "polydomo-timeout" in headers:
            deadline = session.broker.now + duration(headers["polydomo-timeout"], "Polydomo-Timeout")
        body = dump({**head.parameters(), "accept": media.partition(";")[0]})
        session.ask(service, join([body]), ChunkExchange(session, media, SANDBOX), deadline)


def read_frames(session: HttpSession, content_type: str, data: bytes, then: "Callable[[bytes], None]") -> None:
    """Passes the frames of a request's body on: at once, or after some turns if they are in a large JSON object. Raises HttpError."""
    if len(data) <= MAX_CONTROL or media_type(content_type) != FRAMES_JSON:
        then(request_body(content_type, data))
        return

    def failed(why: str) -> None:
        raise HttpError(400, f"the body is not {FRAMES_JSON}: {why}", close=False)

    def taken(row: "dict[str, object]") -> None:
        try:
            body = body_from_json(row.get("frames"))
        except ValueError as error:
            failed(str(error))
            return
        then(body)

    session.http.run(JsonFrames(data, taken, failed))


class CallPlan:
    """The options of a call, from its headers. Raises HttpError."""

    def __init__(self, head: RequestHead, path: "list[str]") -> None:
        headers = head.headers
        self.service = service_name(path)
        self.content_type = headers.get("content-type", "")
        self.one_frame = media_type(self.content_type) not in (MULTIPART, FORM, FRAMES_JSON)
        self.media = choose(headers.get("accept", ""), OFFERED) or OCTETS
        self.chunked = headers.get("polydomo-stream", "").lower() == "chunked"
        self.has_time_limit = "polydomo-timeout" in headers
        self.timeout = duration(headers["polydomo-timeout"], "Polydomo-Timeout") if self.has_time_limit else 0.0
        self.time_limit = self.timeout
        preferred = preferences(head) if "prefer" in headers else {}
        self.respond_async = "respond-async" in preferred
        wait = preferred.get("wait")
        self.waits = wait is not None  # also where no worker offers the service
        if wait is not None and not self.has_time_limit:
            self.has_time_limit = True
            self.time_limit = duration(wait, "Prefer: wait")
        self.key = headers.get("idempotency-key", "")
        if len(self.key) > MAX_IDEMPOTENCY_KEY:
            raise HttpError(400, f"Idempotency-Key has at most {MAX_IDEMPOTENCY_KEY} characters", close=False)
        self.group, self.near = mark(headers, "Polydomo-Group"), mark(headers, "Polydomo-Near")
        self.options = options_of(not self.waits, self.key.encode("utf-8", "replace"), self.group, self.near)
        trace = headers.get("traceparent", "")
        self.trace = trace if _TRACE.fullmatch(trace) else ""
        # none of these headers: the most common case
        self.plain = not (
            self.has_time_limit or self.respond_async or self.waits or self.key or self.trace or self.group or self.near
        )


def mark(headers: "dict[str, str]", name: str) -> bytes:
    """The value of a header with a mark of the request, percent-encoded or not; b"" without it. Raises HttpError."""
    text = headers.get(name.lower(), "")
    if not text:
        return b""
    value = unquote_to_bytes(text.encode("latin-1"))
    fault = mark_fault(value)
    if fault:
        raise HttpError(400, f"{name} {fault}", close=False)
    return value


def named(session: HttpSession, request: Request) -> bytes:
    return b"Polydomo-Request: %b\r\n" % session.broker.request_name(request).encode()


def fail(session: HttpSession, request: Request, code: str, text: str) -> None:
    """Sends a failure as the whole response."""
    value = failure_problem(request, code, text, session.broker.request_name(request))
    status = value["status"]
    assert isinstance(status, int)
    session.reply(status, PROBLEM, dump(value), NO_STORE + problem_headers(status) + named(session, request))


class CallExchange(Exchange):
    """Sends the final reply as one response."""

    def __init__(self, session: HttpSession, media: str) -> None:
        self.session = session
        self.media = media

    def final(self, request: Request, body: Body) -> None:
        session = self.session
        content_type, content = response_body(self.media, body, session.broker.random_bytes)
        session.reply(200, content_type, content, NO_STORE + named(session, request))

    def failure(self, request: Request, code: str, text: str) -> None:
        fail(self.session, request, code, text)


class TypedExchange(CallExchange):
    """Sends the final reply of a typed service, which is JSON already."""

    def final(self, request: Request, body: Body) -> None:
        self.session.reply(200, JSON, flat(body), NO_STORE + named(self.session, request))


class ChunkExchange(Exchange):
    """A chunked response: one chunk for each partial reply and for the final one."""

    takes_partials = True

    def __init__(self, session: HttpSession, media: str = OCTETS, headers: bytes = b"") -> None:
        self.session = session
        self.media = media
        self.headers = headers
        self.started = False

    def partial(self, request: Request, body: Body) -> None:
        self._start(request)
        self.session.http.write(flat(body))

    def final(self, request: Request, body: Body) -> None:
        self.partial(request, body)
        self.session.http.finish()

    def failure(self, request: Request, code: str, text: str) -> None:
        if self.started:
            # RFC 9112, 8: an incomplete chunked body is how a client learns that the response failed
            self.session.http.close(CloseCause.OTHER, f"request {code} after partial replies", abort=True)
        else:
            fail(self.session, request, code, text)

    def _start(self, request: Request) -> None:
        if not self.started:
            self.started = True
            self.session.start(200, self.media, self.headers + named(self.session, request))


class EventExchange(Exchange):
    """A stream of events, as text/event-stream or as lines of JSON: partial and progress, and then final or failure."""

    takes_partials = True

    def __init__(self, session: HttpSession, media: str) -> None:
        self.session = session
        self.media = media
        self.started = False

    def partial(self, request: Request, body: Body) -> None:
        self._send(request, event_of_frames(self.media, b"partial", body))

    def progress(self, request: Request, share: float, text: str) -> None:
        value = progress_row(share, text)
        self._send(request, [event("progress", value) if self.media == EVENTS else line("progress", value)])

    def final(self, request: Request, body: Body) -> None:
        self._send(request, event_of_frames(self.media, b"final", body))
        self.session.http.finish()

    def failure(self, request: Request, code: str, text: str) -> None:
        if not self.started:
            fail(self.session, request, code, text)
            return
        value = failure_problem(request, code, text, self.session.broker.request_name(request))
        self._send(request, [event("failure", value) if self.media == EVENTS else line("failure", value)])
        self.session.http.finish()

    def _send(self, request: Request, pieces: "list[bytes]") -> None:
        if not self.started:
            self.started = True
            self.session.start(200, self.media, named(self.session, request))
        while pieces:
            self.session.http.write(pieces.pop())
