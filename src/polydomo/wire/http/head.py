"""The heads of HTTP/1.1 requests (RFC 9110 and 9112), without I/O: parsing, framing, limits and percent-decoding.

llhttp (through httptools) parses the head: a typical one takes 3 us, with h11 it takes 31. The rest is here. Where the RFC allows a server
to be lenient and request smuggling depends on it, this one is strict: one framing per message, no folded header, no bare CR or LF, no space
before a colon.
"""

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

import httptools

from polydomo.limits import (
    MAX_HTTP_HEADERS,
    MAX_HTTP_TARGET,
)

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
# The first four bytes of a request: how a listener recognises HTTP. CONNECT and TRACE are recognised too, and answered with 501.
BEGINNINGS: Final = frozenset(f"{method} "[:4].encode() for method in (*METHODS, "CONNECT", "TRACE"))

# RFC 9110's names; those of three statuses are older in Python before 3.13.
REASONS: Final = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Content Too Large",
    414: "URI Too Long",
    422: "Unprocessable Content",
}

# Headers that must not be repeated: readers could disagree on which value counts.
SINGLE: Final = frozenset(
    "host content-length transfer-encoding content-type authorization expect upgrade sec-websocket-key sec-websocket-version "
    "idempotency-key polydomo-group polydomo-near polydomo-timeout polydomo-token polydomo-worker traceparent".split()
)

_MALFORMED: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)

CHUNKED: Final = -1  # RequestHead.body_size of a chunked body


class HttpError(Exception):
    """The request is answered with this status. ``close``: the following bytes may not be a request, so the connection is closed."""

    def __init__(self, status: int, detail: str, close: bool = True, type_: str = "") -> None:
        super().__init__(detail)
        self.type = type_  # type of the problem, if the status does not determine it
        self.status = status
        self.detail = detail
        self.close = close


class RequestHead:
    """The request line and the headers. Requests with identical heads share one object."""

    __slots__ = (
        "body_size",
        "expects_continue",
        "headers",
        "keep_alive",
        "method",
        "minor",
        "path",
        "plan",
        "query",
        "upgrade",
    )

    def __init__(self, method: str, target: bytes, minor: int, headers: "dict[str, str]") -> None:
        self.method = method
        self.minor = minor  # HTTP/1.minor
        self.headers = headers  # names in lower case; values of repeated headers are joined with ", "
        path, _, query = target.partition(b"?")
        self.path = path.decode("ascii")  # still percent-encoded
        self.query = query.decode("ascii")
        self.keep_alive = False
        self.body_size = 0  # bytes, or CHUNKED
        self.expects_continue = False
        self.upgrade = False  # the client requests another protocol on this connection
        self.plan: object = None  # cache of the endpoint, for the next request with the same head

    def segments(self) -> "list[str]":
        """The path's segments, percent-decoded: ``/a/b%2Fc`` is ["a", "b/c"]."""
        return [unquote(segment) for segment in self.path[1:].split("/")]

    def parameters(self) -> "dict[str, str]":
        """The query parameters, percent-decoded; the last one counts if a name is repeated."""
        found: dict[str, str] = {}
        for pair in self.query.split("&"):
            name, _, value = pair.partition("=")
            if name:
                found[unquote(name, plus=True)] = unquote(value, plus=True)
        return found


def unquote(text: str, plus: bool = False) -> str:
    """Percent-decoding. Raises HttpError where the escapes are malformed or the result is not UTF-8.

    >>> unquote("a%2Fb%20c")
    'a/b c'
    """
    if plus:
        text = text.replace("+", " ")
    if "%" not in text:
        return text
    wrong = _MALFORMED.search(text)
    if wrong is not None:
        raise HttpError(400, f"the target has a malformed percent escape: {wrong[0]}", close=False)
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise HttpError(400, "the target is not UTF-8 after percent-decoding", close=False) from None


class _Collector:
    """llhttp's callbacks for one head."""

    __slots__ = ("headers", "target")

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


SP_PROTOCOL = b".sp.nanomsg.org\r\n"  # the end of a header line of NNG


def read_head(data: bytes) -> RequestHead:
    """Reads a whole head, its empty line included. Raises HttpError.

    >>> read_head(b"GET /metrics?a=1 HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n").path
    '/metrics'
    """
    # RFC 9112, 2.2: "a bare CR ... MUST be considered to be invalid"; 5.2: "reject the message" for a folded header line
    breaks = data.count(b"\r\n")
    if data.count(b"\n") != breaks or data.count(b"\r") != breaks:
        raise HttpError(400, "the request head has a bare CR or LF")
    if b"\r\n " in data or b"\r\n\t" in data:
        raise HttpError(400, "the request head has a folded header line")
    line = data[: data.find(b"\r\n")].split(b" ")
    if len(line) != 3 or not line[2].startswith(b"HTTP/"):
        raise HttpError(400, "the request line is not METHOD TARGET HTTP/1.1")
    if data.startswith(b"GET  HTTP/1.1\r\n") and SP_PROTOCOL in data:
        # NNG sends no target if its URL has no path, as ``ws://127.0.0.1:5246``.
        data = b"GET / " + data[len(b"GET  ") :]
        line[1] = b"/"
    if line[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise HttpError(505, "only HTTP/1.1 and HTTP/1.0 are served on this port")
    if len(line[1]) > MAX_HTTP_TARGET:
        raise HttpError(414, f"the target has {len(line[1])} bytes; the limit is {MAX_HTTP_TARGET}")
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # the parser stops at the end of the head, as it should
    except httptools.HttpParserError as error:
        raise HttpError(400, f"the request head is malformed: {error}") from None
    if len(collector.headers) > MAX_HTTP_HEADERS:
        raise HttpError(431, f"the request has {len(collector.headers)} headers; the limit is {MAX_HTTP_HEADERS}")
    headers: dict[str, str] = {}
    for raw, value in collector.headers:
        name = raw.decode("latin-1").lower()
        text = value.decode("latin-1").strip(" \t")
        if name not in headers:
            headers[name] = text
        elif name in SINGLE:
            raise HttpError(400, f"the header {name} is repeated")
        else:
            headers[name] += ", " + text
    method = line[0].decode("latin-1")
    if method not in METHODS:
        raise HttpError(501, f"the method {method[:16]!r} is not supported")
    head = RequestHead(method, _origin_form(line[1], method), int(line[2][-1:]), headers)
    _frame(head)
    return head


def _origin_form(target: bytes, method: str) -> bytes:
    if target.startswith(b"/") or (target == b"*" and method == "OPTIONS"):
        return target
    # RFC 9112, 3.2.2: "a server MUST accept the absolute-form in requests"
    if target.lower().startswith((b"http://", b"https://")):
        slash = target.find(b"/", 8)
        return target[slash:] if slash > 0 else b"/"
    raise HttpError(400, "the target is not a path")


def _frame(head: RequestHead) -> None:
    """Determines the length of the body, and whether the connection stays open."""
    headers = head.headers
    # RFC 9112, 3.2: "A server MUST respond with a 400 ... to any HTTP/1.1 request message that lacks a Host header field"
    if head.minor and "host" not in headers:
        raise HttpError(400, "the request has no Host header")
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        # RFC 9112, 6.1: such a message "might indicate an attempt to perform request smuggling"
        if length is not None or not head.minor:
            raise HttpError(400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0")
        if coding.lower() != "chunked":
            raise HttpError(501, f"the transfer coding {coding[:32]!r} is not supported; use chunked")
        head.body_size = CHUNKED
    elif length is not None:
        if not (length.isascii() and length.isdigit()) or len(length) > 18:
            raise HttpError(400, "Content-Length is not a number of bytes")
        head.body_size = int(length)
    options = {option.strip().lower() for option in headers.get("connection", "").split(",")}
    head.keep_alive = "close" not in options and (head.minor == 1 or "keep-alive" in options)
    head.upgrade = head.minor == 1 and "upgrade" in options and "upgrade" in headers
    expect = headers.get("expect")
    if expect is not None and head.minor:
        if expect.lower() != "100-continue":
            raise HttpError(417, "only Expect: 100-continue is supported", close=False)
        head.expects_continue = True
