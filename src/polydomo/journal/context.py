"""W3C trace context: where requests carry it, and how it is parsed.

An eMQP or HTTP client sends it as the header ``traceparent``, which reaches a worker of the same protocol unchanged. MDX and DCP have no
headers. If both sides agree and the setting is on, they use a part instead: ``traceparent:00-...`` as a metadata part of DCP, which the
broker forwards unchanged, or as the first frame of an MDX body.
"""

import re
from typing import NamedTuple

from polydomo.model.records import Request
from polydomo.protocols.dcp.session import Passed
from polydomo.protocols.emqp.session import EmqpRef
from polydomo.web.session import Exchange

NAME = "traceparent"
_FOUND = re.compile(rb"traceparent[:=] ?([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")
_HEAD = 9 + 16 + 55  # bytes of a body in which its first frame shows whether it is a context


class TraceContext(NamedTuple):
    trace_id: int
    span_id: int
    flags: int


def parse(text: str) -> TraceContext | None:
    """
    >>> parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").flags
    1
    >>> parse("00-00000000000000000000000000000000-b7ad6b7169203331-01") is None
    True
    """
    parts = text.split("-")
    if len(parts) != 4 or [len(part) for part in parts] != [2, 32, 16, 2] or parts[0] == "ff":
        return None
    try:
        found = TraceContext(int(parts[1], 16), int(parts[2], 16), int(parts[3], 16))
    except ValueError:
        return None
    return found if found.trace_id and found.span_id else None


def of_header(request: Request) -> str:
    """The context in the headers of the request, of a protocol that has them."""
    ref = request.ref
    if isinstance(ref, Exchange):
        return ref.trace
    return _search(ref.route.headers.framed) if isinstance(ref, EmqpRef) else ""


def of_parts(request: Request) -> str:
    """The context in an agreed part."""
    ref = request.ref
    if isinstance(ref, Passed):
        return _search(ref.onward)
    if request.session.protocol == "dcp" and isinstance(ref, bytes):
        return _search(ref)
    if request.session.protocol == "mdx":
        start = 9 if request.body[:1] in (b"\x02", b"\x03") else 2
        head = bytes(request.body[start:_HEAD])
        return _search(head) if head.startswith(NAME.encode()) else ""
    return ""


def _search(content: bytes) -> str:
    found = _FOUND.search(content)
    return found[1].decode() if found else ""
