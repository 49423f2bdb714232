"""HTTP/1.1 requests from the bytes of a connection: heads, bodies and chunks, without I/O.

``RequestReader`` takes the bytes of one connection in any split and yields, for each request, first its head and then its whole body, so
that a request can be rejected before its body is read. It never reads past the end of a request: what follows stays in the buffer until
the response has been sent.
"""

from io import BytesIO
from typing import Final

from polydomo.limits import (
    CHUNKS_AT_ONCE,
    HTTP_SAME_HEAD,
    MAX_CHUNK_LINE,
    MAX_HTTP_HEAD,
    MAX_MESSAGE,
)
from polydomo.wire.http.head import CHUNKED, HttpError, RequestHead, read_head

# what ``RequestReader.next`` returns
NEED_DATA: Final = 0
HEAD: Final = 1
MESSAGE: Final = 2
AGAIN: Final = 3  # a part of the input was read; call it again


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
