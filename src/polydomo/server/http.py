"""The little HTTP that a broker answers on its port: ``GET /metrics`` and ``GET /healthz``, one request a connection.

Strict, since nobody but a program asks: a request line, headers, no body. Whatever else comes is told no, and the connection closes after
every answer. A head has to arrive within the time of a handshake and within ``MAX_HTTP_HEAD``.
"""

import re
from typing import TYPE_CHECKING

from polydomo.limits import MAX_HTTP_HEAD
from polydomo.server.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")  # how a request begins

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

PLAIN = "text/plain; charset=utf-8"

# RFC 9112: request-line = method SP request-target SP HTTP-version; RFC 9110: token
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
# field-line = field-name ":" OWS field-value OWS; no folding, "A server that receives an obs-fold ... MUST either reject the message"
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")


class Refused(Exception):
    """The request gets this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def answer(server: "BrokerServer", data: bytes) -> bytes | None:
    """The answer to a request of which ``data`` has arrived; None if its head is not complete yet."""
    end = data.find(b"\r\n\r\n")
    head_only = False
    try:
        if end < 0:
            if len(data) > MAX_HTTP_HEAD:
                raise Refused(431, f"over {MAX_HTTP_HEAD} bytes of headers")
            return None
        method, target = read_head(data[:end])
        head_only = method == b"HEAD"
        if method not in (b"GET", b"HEAD"):
            raise Refused(405, "only GET and HEAD")
        status, kind, body = _page(server, target.partition(b"?")[0])
    except Refused as error:
        status, kind, body = error.status, PLAIN, f"{error}\n".encode()
    head = [
        f"HTTP/1.1 {status} {REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(["Allow: GET, HEAD"] if status == 405 else []),
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + (b"" if head_only else body)


def read_head(head: bytes) -> tuple[bytes, bytes]:
    """Method and target of a request's head, without its empty line. Raises Refused.

    >>> read_head(b"GET /metrics HTTP/1.1\\r\\nHost: localhost")
    (b'GET', b'/metrics')
    """
    if len(head) > MAX_HTTP_HEAD:
        raise Refused(431, f"over {MAX_HTTP_HEAD} bytes of headers")
    first, *rest = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise Refused(400, "not a request of HTTP")
    method, target, major, minor = line.groups()
    if major != b"1":
        raise Refused(505, "only HTTP/1.1 and HTTP/1.0")
    fields: dict[bytes, bytes] = {}
    for field in rest:
        match = _FIELD.fullmatch(field)
        if match is None:
            raise Refused(400, "a header that is none")
        name = match[1].lower()
        if name in (b"host", b"content-length") and name in fields:
            raise Refused(400, f"two headers {name.decode()}")
        fields[name] = match[2].strip()
    # "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host header field"
    if minor != b"0" and b"host" not in fields:
        raise Refused(400, "no header Host")
    if method in (b"GET", b"HEAD") and (b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0"):
        raise Refused(400, "a request with a body")
    if not target.startswith(b"/"):
        raise Refused(400, "a target that is no path")
    return method, target


def _page(server: "BrokerServer", path: bytes) -> tuple[int, str, bytes]:
    if path == b"/metrics":
        return 200, CONTENT_TYPE, server.metrics.get()
    if path == b"/healthz":
        server.health.asked()
        return (503, PLAIN, b"stopping\n") if server.broker.draining else (200, PLAIN, b"ok\n")
    raise Refused(404, "This is a polydomo broker. Over HTTP it has /metrics and /healthz.")
