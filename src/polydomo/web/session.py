"""HTTP, the broker's side: one session per connection. The session is a client, and carries the polls of HTTP workers.

The ``Endpoint`` that the site has for a path handles its requests. An endpoint answers at once, or makes a request with an
``Exchange`` as its ``ref``, which gets the reply when it arrives. docs/http.md describes the API.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from polydomo.limits import (
    HTTP_BODY_RATE,
    HTTP_BODY_TIME,
    HTTP_HEAD_TIME,
    HTTP_IDLE_TIME,
    HTTP_LINGER,
    HTTP_RETRY_AFTER,
    MAX_CONTROL,
)
from polydomo.model.broker_api import BrokerApi
from polydomo.model.outcomes import (
    CANCELLED,
    FAILED,
    GAVE_UP,
    INTERRUPTED,
    KEY_REUSED,
    NO_WORKER,
    REFUSED,
    SHUTDOWN,
    TIMEOUT,
    TOO_LARGE,
)
from polydomo.model.records import Request, Session
from polydomo.model.request_options import NEEDS_WORKER, RequestOptions
from polydomo.model.session import ProtocolSession
from polydomo.native import mypyc_attr
from polydomo.protocols.memo.store_api import StoreFault
from polydomo.web.content import JSON, PROBLEM, dump, problem
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import Body
from polydomo.wire.http.head import HttpError, RequestHead
from polydomo.wire.http.link import HttpLink

LINGER: Final = "linger"

# HTTP statuses of outcomes other than a reply.
STATUS: Final = {
    NO_WORKER: 404,
    TIMEOUT: 504,
    GAVE_UP: 502,
    INTERRUPTED: 502,
    FAILED: 502,
    TOO_LARGE: 502,
    CANCELLED: 503,
    REFUSED: 503,
    SHUTDOWN: 503,
    "denied": 403,
    KEY_REUSED: 422,
    "invalid-arguments": 422,
}

# Problem types of statuses that are not the outcome of a request.
TYPES: Final = {
    400: "bad-request",
    401: "unauthorized",
    403: "denied",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "request-timeout",
    409: "conflict",
    410: "gone",
    413: "too-large",
    414: "target-too-long",
    415: "unsupported-media-type",
    417: "expectation-failed",
    421: "misdirected",
    422: "invalid-arguments",
    426: "upgrade-required",
    431: "headers-too-large",
    501: "not-implemented",
    503: "unavailable",
    505: "version-not-supported",
}


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange:
    """Receives the reply to a request: ``Request.ref`` of every request that HTTP makes."""

    takes_partials = False
    trace = ""  # the W3C traceparent of the request

    def partial(self, request: Request, body: Body) -> None:
        """Called only if ``takes_partials`` is True."""

    def progress(self, request: Request, share: float, text: str) -> None:
        """How far the request is. Responses without events do not show it."""

    def final(self, request: Request, body: Body) -> None:
        raise NotImplementedError

    def failure(self, request: Request, code: str, text: str) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Endpoint:
    """Serves one path and the paths below it."""

    methods: "tuple[str, ...]" = ("GET", "HEAD")
    public = False  # served without credentials, even with access control
    takes_payload = (
        False  # a body is passed on, or parsed in steps: it may be as large as a message; others are control messages
    )
    right: "tuple[str, str] | None" = (
        None  # right and name that are checked before it is served; others are checked on the way
    )

    def check(self, session: "HttpSession", head: RequestHead, path: "list[str]") -> None:
        """Called with the head alone. Raises HttpError to reject the request before its body is read."""

    def serve(self, session: "HttpSession", head: RequestHead, path: "list[str]", body: bytes) -> None:
        """``path`` is the rest of the path after the endpoint's own, decoded. Raises HttpError."""
        raise NotImplementedError


class Site:
    """Shared by all HTTP connections of a broker: which endpoint serves which path, and which hosts and origins are accepted."""

    def __init__(self, broker: BrokerApi) -> None:
        self.broker = broker
        self.endpoints: dict[tuple[str, ...], Endpoint] = {}
        self.sessions: dict[HttpSession, None] = {}
        # Names in Host that are accepted besides addresses and localhost; "*": all.
        self.hosts: frozenset[str] = frozenset()
        self.origins: frozenset[str] = frozenset()  # other origins whose pages may use the API
        self.upgrades: dict[str, Endpoint] = {}  # by the end of the WebSocket subprotocol, at any path
        # With access control: the principal that a request's credentials stand for; "" if it has none that are accepted.
        self.identify: Callable[[HttpSession, RequestHead], str] | None = None
        self._date = b""
        self._date_at = -1.0

    def mount(self, path: str, endpoint: Endpoint) -> None:
        """Serves this path and the paths below it with the endpoint; an endpoint at ``/`` serves only that path."""
        self.endpoints[tuple(path.strip("/").split("/")) if path != "/" else ()] = endpoint

    def find(self, head: RequestHead) -> "tuple[Endpoint, list[str]]":
        """The endpoint of the WebSocket subprotocol, or the one with the longest matching path, and the rest of the path. Raises
        HttpError."""
        if head.upgrade and "sec-websocket-protocol" in head.headers:
            for name in head.headers["sec-websocket-protocol"].split(","):
                for suffix, upgrade in self.upgrades.items():
                    if name.strip().endswith(suffix):
                        return upgrade, []
        segments = head.segments()
        for length in range(min(3, len(segments)), 0, -1):
            endpoint = self.endpoints.get(tuple(segments[:length]))
            if endpoint is not None:
                return endpoint, segments[length:]
        if segments == [""] and () in self.endpoints:
            return self.endpoints[()], []
        raise HttpError(404, f"nothing is served at {head.path[:200]}; see docs/http.md", close=False)

    def date(self) -> bytes:
        """The line of the Date header; computed once per second."""
        now = self.broker.now
        if now - self._date_at >= 1.0 or self._date_at < 0:
            self._date_at = now
            moment = datetime.fromtimestamp(now + self.broker.wall, UTC)
            day = "Mon Tue Wed Thu Fri Sat Sun".split()[moment.weekday()]
            month = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()[moment.month - 1]
            self._date = f"Date: {day}, {moment:%d} {month} {moment:%Y %H:%M:%S} GMT\r\n".encode()
        return self._date

    def check_browser(self, head: RequestHead) -> None:
        """Rejects pages of other origins and host names that were rebound to this address (DNS rebinding)."""
        host = head.headers.get("host", "")
        name = host_name(host)
        if host and "*" not in self.hosts and not is_address(name) and name not in self.hosts:
            raise HttpError(421, f"the host {name[:100]!r} is not served here; list it in http.hosts")
        origin = head.headers.get("origin")
        if (
            origin is None
            or origin in self.origins
            or origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())
        ):
            return
        if "*" in self.origins:
            return
        raise HttpError(403, f"pages of {origin[:100]} may not use this broker; list the origin in http.origins")

    def trusts(self, head: RequestHead) -> bool:
        """Whether the page that a browser sent this request for is of a listed origin. A link or an image sends no ``Origin``."""
        return "*" in self.origins or head.headers.get("origin", "") in self.origins

    def cors(self, head: RequestHead) -> bytes:
        """Response headers that let a page of a listed origin read the response."""
        origin = head.headers.get("origin")
        if origin is None or (origin not in self.origins and "*" not in self.origins):
            return b""
        exposed = "Polydomo-Request, Polydomo-Token, Polydomo-Worker, Polydomo-Service, Retry-After, Location, ETag"
        return f"Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\nAccess-Control-Expose-Headers: {exposed}\r\n".encode(
            "latin-1"
        )

    def sweep(self, now: float) -> None:
        """Once a second: closes connections that are idle for too long or send too slowly."""
        for session in list(self.sessions):
            session.check_pace(now)


def host_name(host: str) -> str:
    """``localhost`` of ``localhost:5246``, ``[::1]`` of ``[::1]:80``."""
    if host.startswith("["):
        return host[: host.find("]") + 1].lower()
    return host.partition(":")[0].lower()


def is_address(name: str) -> bool:
    """Whether no DNS answer can change what the name refers to: an IP address or localhost."""
    if name.startswith("[") or name == "localhost" or name.endswith(".localhost"):
        return True
    parts = name.split(".")
    return len(parts) == 4 and all(part.isdigit() and len(part) <= 3 for part in parts)


class HttpSession(ProtocolSession):
    """One HTTP connection."""

    protocol = "http"
    refuses_at_limit = True  # at a limit, a request ends with 503 instead of pausing the connection

    http: HttpLink  # ``link`` with its own type

    def __init__(self, broker: BrokerApi, link: HttpLink, site: Site) -> None:
        super().__init__(broker, link)
        self.http = link
        link.attach(self, self)
        self.site = site
        self.known = False  # the broker knows this session; false if it only reads metrics
        self.carried: Exchange | None = (
            None  # an open response that waits for something other than a reply, such as a worker's poll
        )
        self.bound: dict[Session, None] = {}  # workers that end with this connection
        self._found: tuple[Endpoint, list[str]] | None = None  # of the request whose body is being read
        self._last_head: RequestHead | None = None
        self._last_found: tuple[Endpoint, list[str]] | None = None
        site.sessions[self] = None

    def announce(self) -> None:
        """Registers the session with the broker before its first request."""
        if not self.known:
            self.known = True
            self.broker.session_opened(self)

    # --- from the link

    def on_head(self, head: RequestHead) -> None:
        site = self.site
        self.http.common = site.date()
        if head is self._last_head:  # the same head as before, with the same result
            self._found = self._last_found
            if self._found is not None:
                if site.identify is not None:
                    self._check_access(head, self._found[0])
                if head.body_size and not self._found[0].takes_payload:
                    self.http.reader.narrow(MAX_CONTROL)
            return
        site.check_browser(head)
        if head.method == "OPTIONS":
            return
        found = site.find(head)
        endpoint = found[0]
        if head.method not in endpoint.methods:
            raise HttpError(405, f"{head.method} is not allowed here; use {', '.join(endpoint.methods)}", close=False)
        if site.identify is not None:
            self._check_access(head, endpoint)
        if head.body_size and not endpoint.takes_payload:
            self.http.reader.narrow(MAX_CONTROL)
        endpoint.check(self, head, found[1])
        self._found = self._last_found = found
        self._last_head = head

    def _check_access(self, head: RequestHead, endpoint: Endpoint) -> None:
        """Authenticates the request and checks the endpoint's right. Done for every request, because a token may be revoked at any time."""
        assert self.site.identify is not None
        principal = self.site.identify(self, head)
        if not principal:
            if endpoint.public:
                return
            if "authorization" in head.headers:
                raise HttpError(401, "the token in Authorization is not valid", close=False)
            raise HttpError(401, "credentials are required; send a token with Authorization: Bearer", close=False)
        if self.known and principal != self.principal:
            raise HttpError(401, f"this connection belongs to {self.principal}; use another one for {principal}")
        self.principal = self.http.principal = principal
        why = self.broker.denial(self, *endpoint.right) if endpoint.right is not None else ""
        if why:
            raise HttpError(403, why, close=False)

    def on_request(self, head: RequestHead, body: bytes) -> None:
        if head.method == "OPTIONS":
            self._options(head)
            return
        found, self._found = self._found, None
        assert found is not None
        try:
            found[0].serve(self, head, found[1], body)
        except StoreFault as error:
            raise HttpError(503, f"the memo store cannot do this: {error}", close=False) from None

    def on_bad_request(self, head: RequestHead | None, error: HttpError) -> None:
        self.http.common = self.site.date()
        headers = b""
        if error.status == 405 and head is not None:
            allowed = [method for method in self._allowed(head) if method != head.method]
            headers = b"Allow: " + ", ".join(allowed).encode() + b"\r\n"
        elif error.status == 401:
            headers = b'WWW-Authenticate: Bearer realm="polydomo"\r\n'
        elif error.status == 426:
            headers = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        elif error.status == 503:
            headers = b"Retry-After: %d\r\n" % HTTP_RETRY_AFTER
        self.problem(error.status, error.type or TYPES.get(error.status, "error"), error.detail, headers)
        if error.close:
            self.broker.report_violation(self, f"HTTP {error.status}: {error.detail}")

    def on_linger(self) -> None:
        self.broker.set_timer(HTTP_LINGER, self, LINGER)

    def on_timer(self, key: object) -> None:
        if key == LINGER:
            self.http.close(CloseCause.COMPLETE, "closed after an error response")
        elif isinstance(key, Poll) and key is self.carried:
            key.on_poll_over()

    def on_close(self, reason: CloseReason) -> None:
        self.site.sessions.pop(self, None)
        carried, self.carried = self.carried, None
        if isinstance(carried, Poll):
            carried.abandoned()
        for worker in list(self.bound):
            self.broker.session_closed(
                worker, CloseReason(CloseCause.CONNECTION_LOST, "it was bound to this connection")
            )
        if self.known:
            self.broker.session_closed(self, reason)
        self.disconnected = True

    def hand_over(self, why: str) -> None:
        """Hands the connection over to another session."""
        self.site.sessions.pop(self, None)
        if self.known:
            self.broker.session_closed(self, CloseReason(CloseCause.COMPLETE, why))
        self.disconnected = True

    def _allowed(self, head: RequestHead) -> "list[str]":
        if head.path == "*":
            return ["OPTIONS"]
        return [*self.site.find(head)[0].methods, "OPTIONS"]

    def _options(self, head: RequestHead) -> None:
        allowed = ", ".join(self._allowed(head))
        headers = f"Allow: {allowed}\r\n"
        if "access-control-request-method" in head.headers:
            headers += f"Access-Control-Allow-Methods: {allowed}\r\nAccess-Control-Max-Age: 600\r\n"
            headers += "Access-Control-Allow-Headers: *, Authorization\r\n"
        self.respond(204, headers.encode())

    def check_pace(self, now: float) -> None:
        """Closes the connection if it has been idle for too long or sends a request too slowly."""
        link = self.http
        if link.busy or link.tunnel is not None:
            return
        waited = now - link.since
        if link.reader.unread():
            head = link.reader.head
            size = link.reader.max_body if head is None or head.body_size < 0 else head.body_size
            if waited > HTTP_BODY_TIME + size / HTTP_BODY_RATE:
                self._too_slow("the body")
        elif link.reader.partway:
            if waited > HTTP_HEAD_TIME:
                self._too_slow("the head")
        elif waited > HTTP_IDLE_TIME:
            link.close(CloseCause.COMPLETE, "idle")

    def _too_slow(self, what: str) -> None:
        link = self.http
        link.reader.head = None  # the response closes the connection
        self.problem(408, TYPES[408], f"{what} of the request did not arrive in time")

    # --- responses

    def _cors(self) -> bytes:
        head = self.http.reader.head
        return self.site.cors(head) if head is not None and "origin" in head.headers else b""

    def respond(self, status: int, headers: bytes, body: Body = b"") -> None:
        """Every whole response passes here: a page of a listed origin may read it, also if it has no body."""
        self.http.respond(status, headers + self._cors(), body)

    def reply(self, status: int, content_type: str, body: Body, headers: bytes = b"") -> None:
        self.respond(status, content_lines(content_type) + headers, body)

    def reply_json(self, status: int, value: object, headers: bytes = b"") -> None:
        self.reply(status, JSON, dump(value), b"Cache-Control: no-store\r\n" + headers)

    def problem(self, status: int, type_: str, detail: str, headers: bytes = b"", **more: object) -> None:
        self.reply(
            status, PROBLEM, dump(problem(status, type_, detail, **more)), b"Cache-Control: no-store\r\n" + headers
        )

    def start(self, status: int, content_type: str, headers: bytes = b"") -> None:
        lines = b"Content-Type: %b\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
        self.http.start(status, lines % content_type.encode("latin-1") + headers + self._cors())

    # --- as a client

    def ask(
        self,
        service: bytes,
        body: Body,
        exchange: Exchange,
        deadline: float = 0.0,
        options: RequestOptions = NEEDS_WORKER,
    ) -> Request | None:
        """Makes a request. With the default options, it fails if no worker offers the service."""
        self.announce()
        self.takes_partials = exchange.takes_partials
        return self.broker.request(self, service, body, exchange, deadline, options)

    def client_id_of(self, request: Request) -> bytes:
        ref = request.ref
        return ref.trace.encode() if isinstance(ref, Exchange) else b""

    def facts_of(self, ref: object) -> "tuple[str, str]":
        return "", ref.trace if isinstance(ref, Exchange) else ""

    def send_partial(self, request: Request, body: Body) -> None:
        exchange = request.ref
        if isinstance(exchange, Exchange):
            exchange.partial(request, body)

    def send_progress(self, request: Request, share: float, text: str) -> None:
        exchange = request.ref
        if isinstance(exchange, Exchange):
            exchange.progress(request, share, text)

    def send_final(self, request: Request, body: Body) -> None:
        exchange = request.ref
        if isinstance(exchange, Exchange):
            exchange.final(request, body)

    def send_failure(self, request: Request, code: str, text: str) -> None:
        exchange = request.ref
        if isinstance(exchange, Exchange):
            exchange.failure(request, code, text)


@mypyc_attr(allow_interpreted_subclasses=True)
class Poll(Exchange):
    """An open response that waits for something other than a reply."""

    def abandoned(self) -> None:
        """The connection was closed."""

    def on_poll_over(self) -> None:
        """The timer that was set for the poll has fired."""


@lru_cache(maxsize=64)
def content_lines(content_type: str) -> bytes:
    return f"Content-Type: {content_type}\r\nX-Content-Type-Options: nosniff\r\n".encode("latin-1")


def failure_problem(request: Request, code: str, text: str, name: str) -> "dict[str, object]":
    """The problem of a request that ended without a reply. ``code`` is an outcome, a code that the worker chose, or why the job store did
    not take a durable request, which was refused."""
    outcome = request.outcome
    own = code not in STATUS
    type_ = code
    if own:
        type_ = REFUSED if outcome == REFUSED else FAILED
    service = request.service.name.decode("utf-8", "replace")
    return problem(STATUS[type_], type_, text, service=service, request=name, code=code if own else "", outcome=outcome)


def problem_headers(status: object) -> bytes:
    return b"Retry-After: %d\r\n" % HTTP_RETRY_AFTER if status == 503 else b""
