"""The options of a request."""

from typing import Final

from polydomo.limits import MAX_MARK
from polydomo.wire.frames import join, split

GROUP: Final = b"group"  # names of options on the wire
NEAR: Final = b"near"


class RequestOptions:
    """What a request asks for besides its deadline. Requests share one object, so it is never changed.

    ``max_wait`` limits the seconds in the queue (0: the general expiry, which applies only while the service has no worker). ``max_run``
    limits each attempt (memo01). ``attempts`` overrides the default (0). ``fallback`` is the service to use if no worker offers the one
    that was asked for (eMQP's ``default``). ``needs_worker``: the request fails if no worker offers the service. ``guarantee``: store the
    request in the job store, if there is one, whatever its service. ``key`` is an idempotency key: while a request of this principal for
    this service is open under the same key, this one joins it. ``reuse``: a stored reply to an equal request answers it, as if the service
    were memoised.

    ``group`` and ``near`` are *marks*: short printable texts that the client chose (``mark_fault``). A service may be limited per
    ``group``; ``near`` names what the request should be near to.
    """

    __slots__ = (
        "attempts",
        "fallback",
        "group",
        "guarantee",
        "key",
        "max_run",
        "max_wait",
        "near",
        "needs_worker",
        "reuse",
    )

    def __init__(
        self,
        max_wait: float = 0.0,
        max_run: float = 0.0,
        attempts: int = 0,
        fallback: bytes = b"",
        needs_worker: bool = False,
        guarantee: bool = False,
        key: bytes = b"",
        group: bytes = b"",
        near: bytes = b"",
    ) -> None:
        self.max_wait = max_wait
        self.max_run = max_run
        self.attempts = attempts
        self.fallback = fallback
        self.needs_worker = needs_worker
        self.guarantee = guarantee
        self.key = key
        self.group = group
        self.near = near
        self.reuse = False


PLAIN: Final = RequestOptions()
NEEDS_WORKER: Final = RequestOptions(needs_worker=True)


def options_of(needs_worker: bool, key: bytes, group: bytes = b"", near: bytes = b"") -> RequestOptions:
    """The options of a call that may have an idempotency key and marks. Without any, nothing is allocated."""
    if key or group or near:
        return RequestOptions(needs_worker=needs_worker, key=key, group=group, near=near)
    return NEEDS_WORKER if needs_worker else PLAIN


def mark_fault(value: bytes) -> str:
    """Why the value is not a mark; "" if it is one, or empty.

    >>> mark_fault("Köln 7".encode()), mark_fault(b"a\\nb")
    ('', 'is not printable text')
    """
    if len(value) > MAX_MARK:
        return f"has {len(value)} bytes; the limit is {MAX_MARK}"
    try:
        return "" if value.decode().isprintable() else "is not printable text"
    except UnicodeDecodeError:
        return "is not UTF-8"


def marks_of(options: RequestOptions) -> bytes:
    """The marks in the form in which brokers pass them on: frames with names and values; b"" without marks."""
    if not options.group and not options.near:
        return b""
    frames: list[bytes] = []
    for name, value in ((GROUP, options.group), (NEAR, options.near)):
        if value:
            frames += (name, value)
    return join(frames)


def read_marks(content: bytes) -> RequestOptions:
    """The reverse. Raises ProtocolViolation if the frames are malformed. What is not a mark, or unknown, is left out."""
    if not content:
        return PLAIN
    group = near = b""
    frames = split(content)
    for i in range(0, len(frames) - 1, 2):
        if mark_fault(frames[i + 1]):
            continue
        if frames[i] == GROUP:
            group = frames[i + 1]
        elif frames[i] == NEAR:
            near = frames[i + 1]
    return options_of(False, b"", group, near)
