"""The argument and the return values of a service function, and the call that the current thread or task serves."""

import math
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from polydomo.client.message import Frame, Message, encode
from polydomo.errors import SettingError
from polydomo.limits import MAX_PROGRESS_TEXT, MAX_SERVICE_NAME
from polydomo.model.progress import is_share
from polydomo.protocols.ends import Delivery

if TYPE_CHECKING:
    from polydomo.model.flows.flow import Flow


class Forward:
    """The return value of a function that passes its call on to another service; made by ``Call.forward``."""

    __slots__ = ("body", "metadata", "service")

    def __init__(self, service: bytes, body: list[bytes], metadata: list[bytes] | None) -> None:
        self.service = service
        self.body = body
        self.metadata = metadata  # for the next worker; None: unchanged


class Then:
    """The return value of a function that answers with more work; made by ``Call.then``."""

    __slots__ = ("reply",)

    def __init__(self, reply: bytes) -> None:
        self.reply = reply


class Call(Message):
    """One request: a list of its frames, with attributes.

    >>> call = Call(Delivery(b"echo", [b"one", b"two"]))
    >>> call.service, call.body, call.text, call[1]
    ('echo', b'onetwo', 'onetwo', b'two')
    """

    __slots__ = (
        "_until",
        "attempt",
        "cancelled",
        "chains",
        "headers",
        "job",
        "key",
        "metadata",
        "on_progress",
        "request",
        "service",
        "timeout",
    )

    def __init__(self, delivery: Delivery, arrived: float | None = None) -> None:
        super().__init__(delivery.body)
        self.service = delivery.service.decode(errors="replace")
        self.request = delivery.attempt.decode(errors="replace")  # the broker's token of this attempt
        # 1 is the first; if higher, it may have run before; 0: the protocol does not say.
        self.attempt = attempt_number(delivery.attempt)
        self.job = delivery.job  # the id of the durable job; "" if it is not a job or the protocol does not say
        self.key = delivery.key  # its idempotency key, or ""
        self.headers = delivery.headers  # headers, if the protocol has them (eMQP); a header without a value is ""
        self.metadata = list(delivery.metadata or ())  # the metadata parts of DCP; empty over other protocols
        self.chains = delivery.metadata is not None  # whether it can be forwarded
        self.on_progress: Callable[[float, str], None] | None = None  # set by the worker
        self.cancelled = False  # its caller does not wait any more: the result is not sent
        # Seconds the broker waits, from when the worker got the request; 0: no limit is known.
        self.timeout = delivery.timeout
        since = time.monotonic() if arrived is None else arrived
        self._until = since + delivery.timeout if delivery.timeout else math.inf

    def forward(self, service: str | bytes, *body: Frame, metadata: "Iterable[Frame] | None" = None) -> Forward:
        """Passes the call on to ``service``, which completes it: its reply goes to the caller. Over DCP only; return the result::

            return call.forward("resize", picture)

        ``metadata`` replaces the metadata parts that the next worker gets; they must not be empty.
        Raises SettingError over other protocols.
        """
        if not self.chains:
            raise SettingError("forward: only DCP has chains of services; use a worker with protocol='dcp'")
        name = service.encode() if isinstance(service, str) else service
        if len(name) > MAX_SERVICE_NAME:
            raise SettingError(f"forward: a service name of {len(name)} bytes; the limit is {MAX_SERVICE_NAME}")
        parts = None if metadata is None else encode(metadata)
        if parts is not None and not all(parts):
            raise SettingError("forward: a part of the metadata is empty")
        return Forward(name, encode(body), parts)

    def progress(self, share: float, text: str = "") -> None:
        """Reports how far the call is: ``share`` from 0 to 1, and a text of at most 1,000 characters. The caller, lists of requests and
        jobs, and the dashboard show the last report. Any thread may call it, as often as it likes: at most ten reports a second are sent.
        Over protocols without a message for it (all but MDX) it does nothing. Raises SettingError if the share is not from 0 to 1."""
        if not is_share(share):
            raise SettingError(f"progress: the share must be a number from 0 to 1, not {share!r}")
        if self.on_progress is not None and not self.cancelled:
            self.on_progress(share, text[:MAX_PROGRESS_TEXT])

    def then(self, flow: "Flow") -> Then:
        """Answers with more work: the flow's nodes are added to the flow that this call is a node of, and the result of its last node
        becomes the result of this node. Return the result::

            return call.then(flow)

        The protocols that name the job to their workers have this: MDX, DCP and eMQP. Raises SettingError.
        """
        from polydomo.model.flows.growth import write_growth  # what few workers need is loaded late

        if not self.job:
            raise SettingError("then: this call is not a node of a flow, or its protocol does not say so")
        return Then(write_growth(self.job, flow))

    @property
    def remaining(self) -> float:
        """Seconds until the caller stops waiting, at least 0; ``math.inf`` if there is no limit or the protocol does not say."""
        return max(0.0, self._until - time.monotonic())


def attempt_number(token: bytes) -> int:
    """The number of an attempt, from the last three of the 12 hexadecimal digits of its token.

    >>> attempt_number(b"00000002a003"), attempt_number(b"another broker's")
    (3, 0)
    """
    try:
        return int(token[9:], 16) if len(token) == 12 and int(token, 16) >= 0 else 0
    except ValueError:
        return 0


def body_of(value: object) -> list[bytes]:
    """Encodes a returned or yielded value as a body.

    >>> body_of("text"), body_of([b"two", "frames"]), body_of(None)
    ([b'text'], [b'two', b'frames'], [])
    """
    if value is None:
        return []
    if isinstance(value, Then):
        return [value.reply]
    if isinstance(value, bytes | str | bytearray | memoryview):
        return encode((value,))
    if isinstance(value, list | tuple):
        return encode(value)
    raise TypeError(f"a service function must return bytes, str, a list of those, or None, not {type(value).__name__}")


class Running:
    """The call that is being served. The worker sets it around each call of a function."""

    __slots__ = ("request", "service")

    def __init__(self, service: str, request: str) -> None:
        self.service = service
        self.request = request  # the broker's token of the attempt; ``polydomo logs --request`` finds it


RUNNING: ContextVar[Running | None] = ContextVar("polydomo_running", default=None)


def running() -> Running | None:
    """The call that is being served, None outside a call."""
    return RUNNING.get()
