"""The two frequent messages between the processes of one broker, in a form that is read by position.

    CALL   token service details body*     a request. details: its id at the sending process (26 characters), the milliseconds until its
                                           deadline (0: none), its marks if it has any (a tab, the group, a tab, what it is near to,
                                           a tab), with access control a space and its origin (``principals``), a newline, and its
                                           facts (``RelayedFacts``), mostly none
    REPLY  token body*                     its final reply

The sender is the only process that the request has passed, and its trace follows from its number, which is in the token; so neither
is sent. Everything else between processes, and requests that came over a bridge to another broker, use the messages of ``bridge``.
"""

import json

from polydomo.errors import ProtocolViolation
from polydomo.limits import MAX_SERVICE_NAME
from polydomo.model.jobs.facts import JobFacts
from polydomo.model.request_options import PLAIN as PLAIN_OPTIONS
from polydomo.model.request_options import RequestOptions, mark_fault, options_of
from polydomo.wire.frames import MORE, bounds, head

TOKEN_SIZE = 12
ID_SIZE = 26
NUMBER_SIZE = 9  # characters of the token that are the request's number
PLAIN_TAIL = b"0\n"  # the details after the id of a request without deadline and facts

PREFIX = b"\x01\x06PDBR01"
CALL = PREFIX + b"\x01\x04CALL\x01\x0c"  # a token follows
REPLY = PREFIX + b"\x01\x05REPLY\x01\x0c"
CALL_SIZE = len(CALL)
REPLY_SIZE = len(REPLY)
PLAIN = b"\x01" + bytes((ID_SIZE + len(PLAIN_TAIL),))  # head of the details of such a request
PLAIN_SIZE = len(PLAIN) + ID_SIZE + len(PLAIN_TAIL)


class RelayedFacts:
    """What a worker of another process gets besides the body: headers that its protocol has in common with the client's, or the job."""

    __slots__ = ("headers", "job", "protocol")

    def __init__(self, protocol: str, headers: bytes, job: JobFacts | None = None) -> None:
        self.protocol = protocol  # of the client
        self.headers = headers  # in the form of that protocol
        self.job = job

    def encode(self) -> bytes:
        if self.job is not None:
            job = self.job
            return b"job\n" + json.dumps([job.id, job.key, job.headers, job.trace]).encode()
        return self.protocol.encode() + b"\n" + self.headers


def read_facts(data: bytes) -> RelayedFacts | None:
    """Raises ProtocolViolation."""
    if not data:
        return None
    protocol, newline, headers = data.partition(b"\n")
    if not newline:
        raise ProtocolViolation("a CALL with facts of no protocol")
    if protocol != b"job":
        return RelayedFacts(protocol.decode("ascii", "replace"), headers)
    try:
        id, key, text, trace = json.loads(headers)
    except (ValueError, TypeError, RecursionError):
        raise ProtocolViolation("a CALL with an unreadable job") from None
    return RelayedFacts("job", b"", JobFacts(str(id), str(key), str(text), str(trace)))


def details(
    name: str, milliseconds: int, facts: bytes, origin: str = "", options: RequestOptions = PLAIN_OPTIONS
) -> bytes:
    """The frame of the details."""
    marks = b"\t%b\t%b\t" % (options.group, options.near) if options.group or options.near else b""
    if not milliseconds and not facts and not origin and not marks and len(name) == ID_SIZE:
        return PLAIN + name.encode() + PLAIN_TAIL
    named = b" " + origin.encode("ascii", "backslashreplace") if origin else b""
    content = b"%b%d%b%b\n%b" % (name.encode(), milliseconds, marks, named, facts)
    return head(len(content), True) + content


class SiblingCall:
    """A CALL that the general path has read."""

    __slots__ = ("body", "facts", "milliseconds", "options", "origin", "parent", "service", "token")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        """The message is at ``data[start:end]``. Raises ProtocolViolation."""
        at = start + CALL_SIZE + TOKEN_SIZE
        self.token = data[start + CALL_SIZE : at]
        self.service, at = _frame(data, at, end)
        content, self.body = _frame(data, at, end)
        self.parent = content[:ID_SIZE].decode("ascii", "replace")
        known, newline, facts = content[ID_SIZE:].partition(b"\n")
        self.options = PLAIN_OPTIONS
        digits, tab, marked = known.partition(b"\t")
        if tab:
            group, _, marked = marked.partition(b"\t")
            near, tab, known = marked.partition(b"\t")
            if not tab or mark_fault(group) or mark_fault(near):
                raise ProtocolViolation("a CALL with invalid marks")
            self.options = options_of(False, b"", group, near)
            known = digits + known
        digits, _, origin = known.partition(b" ")
        if not newline or not digits.isdigit() or len(digits) > 12 or len(self.service) > MAX_SERVICE_NAME:
            raise ProtocolViolation("a CALL without details")
        self.milliseconds = int(digits)
        self.origin = origin.decode("ascii", "replace")
        self.facts = read_facts(facts)


def _frame(data: bytes, at: int, end: int) -> "tuple[bytes, int]":
    """The content of a frame that is not the last, and the position after it."""
    if at + 2 > end:
        raise ProtocolViolation("a truncated CALL")
    start, after, flags = bounds(data, at)
    if after >= end or not flags & MORE:
        raise ProtocolViolation("a truncated CALL")
    return data[start:after], after


def trace_prefix(identity: bytes) -> str:
    """The trace of a request is this, and then twice its number (``bridge.trace_of``)."""
    return f"00-{identity.decode()}" + "0" * (16 - NUMBER_SIZE)


def trace_from(prefix: str, token: bytes) -> str:
    """
    >>> trace_from(trace_prefix(b"0123456789abcdef"), b"000000abc001")
    '00-0123456789abcdef0000000000000abc-0000000000000abc-01'
    """
    number = token[:NUMBER_SIZE].decode("ascii", "replace")
    return f"{prefix}{number}-{'0' * (16 - NUMBER_SIZE)}{number}-01"
