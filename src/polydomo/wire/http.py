"""HTTP/1.1 requests from bytes: heads, bodies and chunks (RFC 9110 and 9112), without I/O.

``RequestReader`` takes the bytes of one connection in any split and yields, for each request, first its head and then its whole body, so
that a request can be rejected before its body is read. It never reads past the end of a request: what follows stays in the buffer until
the response has been sent.

llhttp (through httptools) parses the head: a typical one takes 3 us, with h11 it takes 31. Framing, limits and percent-decoding are here.
Where the RFC allows a server to be lenient and request smuggling depends on it, this one is strict: one framing per message, no folded
header, no bare CR or LF, no space before a colon.
"""

from io import BytesIO
from typing import Final

import httptools

from polydomo.limits import (
    CHUNKS_AT_ONCE,
    HTTP_SAME_HEAD,
    MAX_CHUNK_LINE,
    MAX_HTTP_HEAD,
    MAX_HTTP_HEADERS,
    MAX_HTTP_TARGET,
    MAX_MESSAGE,
)

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
# The first four bytes of a request: how a listener recognises HTTP. CONNECT and TRACE are recognised too, and answered with 501.
BEGINNINGS: Final = frozenset(f"{method} "[:4].encode() for method in (*METHODS, "CONNECT", "TRACE"))

REASONS: Final = {
    100: "Continue",
    101: "Switching Protocols",
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    302: "Found",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    410: "Gone",
    411: "Length Required",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    426: "Upgrade Required",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}

# Headers that must not be repeated: readers could disagree on which value counts.
SINGLE: Final = frozenset(
    "host content-length transfer-encoding content-type authorization expect upgrade sec-websocket-key sec-websocket-version "
    "idempotency-key polydomo-timeout polydomo-token polydomo-worker traceparent".split()
)

# what ``RequestReader.next`` returns
NEED_DATA: Final = 0
HEAD: Final = 1
MESSAGE: Final = 2
AGAIN: Final = 3  # a part of the input was read; call it again

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
    first, *rest = text.split("%")
    out = [first.encode()]
    for piece in rest:
        try:
            if len(piece) < 2 or not piece[:2].isalnum():
                raise ValueError
            out.append(bytes((int(piece[:2], 16),)))
        except ValueError:
            raise HttpError(400, f"the target has a malformed percent escape: %{piece[:2]}", close=False) from None
        out.append(piece[2:].encode())
    try:
        return b"".join(out).decode()
    except UnicodeDecodeError:
        raise HttpError(400, "the target is not UTF-8 after percent-decoding", close=False) from None


_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def quote(text: str, safe: str = "") -> str:
    """Percent-encoding of a path segment or a query value; the characters of ``safe`` stay as they are.

    >>> quote("a/b c")
    'a%2Fb%20c'
    """
    keep = _SAFE | frozenset(safe.encode())
    return "".join(chr(byte) if byte in keep else f"%{byte:02X}" for byte in text.encode())


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


class ChunkReader:
    """A chunked body, strictly: sizes of at most eight hex digits, extensions and trailers skipped within a limit."""

    def __init__(self, max_size: int, limit: str = "limits.max_message") -> None:
        self.done = False
        self.out = BytesIO()
        self._max_size = max_size
        self._limit = limit  # its name
        self._size = 0
        self._missing = 0  # bytes of the current chunk, its CRLF included
        self._line = b""  # an unfinished size or trailer line
        self._trailer = False
        self._skipped = 0  # bytes of extensions and trailers

    def feed(self, data: bytes, position: int) -> int:
        """Reads from ``position`` on, at most CHUNKS_AT_ONCE lines. Returns where it stopped. Raises HttpError."""
        size = len(data)
        lines = 0
        while position < size and not self.done and lines <= CHUNKS_AT_ONCE:
            if self._missing:
                position = self._content(data, position)
                continue
            lines += 1
            end = data.find(b"\n", position, position + MAX_CHUNK_LINE)
            if end < 0:
                self._check_line(size - position)
                self._line += data[position:]
                self._check_line(len(self._line))
                return size
            line = self._line + data[position : end + 1]
            self._check_line(len(line))
            self._line = b""
            position = end + 1
            if not line.endswith(b"\r\n"):
                raise HttpError(400, "a line of the chunked body does not end with CRLF")
            if self._trailer:
                self._skip(len(line))
                self.done = line == b"\r\n"
            else:
                self._begin(line[:-2])
        return position

    def _check_line(self, length: int) -> None:
        if length > MAX_CHUNK_LINE:
            raise HttpError(400, f"a line of the chunked body is longer than {MAX_CHUNK_LINE} bytes")

    def _skip(self, length: int) -> None:
        self._skipped += length
        if self._skipped > MAX_HTTP_HEAD:
            raise HttpError(431, f"chunk extensions and trailers exceed {MAX_HTTP_HEAD} bytes")

    def _begin(self, line: bytes) -> None:
        digits, mark, extension = line.partition(b";")
        if mark:
            digits = digits.rstrip(b" \t")
            self._skip(len(extension) + 1)
        if not 1 <= len(digits) <= 8 or digits.strip(b"0123456789abcdefABCDEF"):
            raise HttpError(400, "a chunk size is not a hexadecimal number of at most eight digits")
        length = int(digits, 16)
        self._size += length
        if self._size > self._max_size:
            raise HttpError(413, f"the body exceeds {self._max_size:,} bytes ({self._limit})")
        if length:
            self._missing = length + 2
        else:
            self._trailer = True

    def _content(self, data: bytes, position: int) -> int:
        take = min(self._missing, len(data) - position)
        content = min(take, self._missing - 2) if self._missing > 2 else 0
        if content:
            self.out.write(memoryview(data)[position : position + content])
        rest = data[position + content : position + take]
        expected = b"\r\n"[2 - (self._missing - content) :] if self._missing - content <= 2 else b""
        if not expected.startswith(rest):
            raise HttpError(400, "a chunk does not end with CRLF")
        self._missing -= take
        return position + take


class RequestReader:
    """The requests of one connection, one at a time."""

    def __init__(self, max_body: int = MAX_MESSAGE) -> None:
        self.max_body = max_body
        self.head: RequestHead | None = None  # of the request being read, from HEAD to the next one
        self.body = b""  # of the request that ``next`` has returned as MESSAGE
        self._data = b""
        self._at = 0
        self._scanned = 0  # the head does not end before this position
        self._gather: BytesIO | None = None  # an unfinished body with a Content-Length
        self._missing = 0
        self._chunks: ChunkReader | None = None
        self._reading_body = False
        self._last_raw = b""  # the last head as bytes: most requests of a connection have the same head
        self._last_head: RequestHead | None = None

    def feed(self, data: bytes) -> None:
        if self._gather is not None and self._at == len(self._data):
            self._data = data  # the usual case of a large body: no copy
        else:
            self._data = self._data[self._at :] + data if self._at < len(self._data) else data
            self._scanned = max(0, self._scanned - self._at)
        self._at = 0

    @property
    def buffered(self) -> int:
        """Bytes that have arrived and do not belong to a request yet."""
        return len(self._data) - self._at

    @property
    def held(self) -> int:
        """Bytes of the unfinished request, and of the input after it."""
        size = len(self._data) - self._at
        if self._gather is not None:
            size += self._gather.tell()
        elif self._chunks is not None:
            size += self._chunks.out.tell()
        return size

    @property
    def partway(self) -> bool:
        """A request has begun to arrive and is not complete."""
        return self._reading_body or self._at < len(self._data)

    def rest(self) -> bytes:
        """The input after the current request, for the protocol to which the connection is upgraded."""
        rest = self._data[self._at :]
        self._data = b""
        self._at = 0
        return rest

    def next(self) -> int:
        """NEED_DATA, AGAIN, HEAD (``head`` is set) or MESSAGE (``body`` is set). Raises HttpError."""
        return self._next_body() if self._reading_body else self._next_head()

    def _next_head(self) -> int:
        data = self._data
        # RFC 9112, 2.2: "a server ... SHOULD ignore at least one empty line (CRLF) received prior to the request-line"
        while data.startswith(b"\r\n", self._at):
            self._at += 2
            self._scanned = self._at
        end = data.find(b"\r\n\r\n", max(self._at, self._scanned - 3))
        if end < 0:
            if len(data) - self._at > MAX_HTTP_HEAD:
                raise HttpError(431, f"the request head exceeds {MAX_HTTP_HEAD} bytes")
            self._scanned = len(data)
            return NEED_DATA
        end += 4
        if end - self._at > MAX_HTTP_HEAD:
            raise HttpError(431, f"the request head has {end - self._at} bytes; the limit is {MAX_HTTP_HEAD}")
        raw = data[self._at : end]
        self.head = None
        if raw == self._last_raw and self._last_head is not None:
            head = self._last_head
        else:
            head = read_head(raw)
            if len(raw) <= HTTP_SAME_HEAD:
                self._last_raw = raw
                self._last_head = head
        self.head = head
        self._at = self._scanned = end
        self.body = b""
        if head.body_size > self.max_body:
            raise HttpError(
                413, f"the body has {head.body_size:,} bytes; the limit is {self.max_body:,} (limits.max_message)"
            )
        self._reading_body = True
        if head.body_size == CHUNKED:
            self._chunks = ChunkReader(self.max_body)
        return HEAD

    def _next_body(self) -> int:
        head = self.head
        assert head is not None
        data = self._data
        if self._chunks is not None:
            self._at = self._chunks.feed(data, self._at)
            if not self._chunks.done:
                return AGAIN if self._at < len(data) else NEED_DATA
            self.body = self._chunks.out.getvalue()
            self._chunks = None
        elif self._gather is not None:
            end = min(self._at + self._missing, len(data))
            self._gather.write(memoryview(data)[self._at : end])
            self._missing -= end - self._at
            self._at = end
            if self._missing:
                return NEED_DATA
            self.body = self._gather.getvalue()
            self._gather = None
        else:
            end = self._at + head.body_size
            if end > len(data):
                self._gather = BytesIO()
                self._gather.write(memoryview(data)[self._at :])
                self._missing = end - len(data)
                self._at = len(data)
                return NEED_DATA
            self.body = data[self._at : end]
            self._at = end
        self._reading_body = False
        self._scanned = self._at
        return MESSAGE

    def narrow(self, most: int) -> None:
        """The current request, whose body is not read yet, may have a body of at most this many bytes. Raises HttpError."""
        head = self.head
        assert head is not None
        if head.body_size > most:
            raise HttpError(
                413, f"the body has {head.body_size:,} bytes; the limit for this path is {most:,} (MAX_CONTROL)"
            )
        if self._chunks is not None:
            self._chunks = ChunkReader(most, "MAX_CONTROL")

    def unread(self) -> bool:
        """The body of the current request has not arrived completely."""
        return self._reading_body and self.head is not None and self.head.body_size != 0

    def clear(self) -> None:
        """Frees all input."""
        self.body = self._data = b""
        self._at = self._scanned = 0
        self._gather = None
        self._chunks = None

    def drop(self) -> None:
        """Ends the current request, which has no body."""
        self._reading_body = False
