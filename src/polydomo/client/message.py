"""Message bodies: a list of frames with shortcuts for text and JSON."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from polydomo.errors import CallFailed
from polydomo.limits import FRAME_HEAD, FREE_HEADS, MAX_BODY, MAX_BODY_FRAMES
from polydomo.model.outcomes import TOO_LARGE

Frame: TypeAlias = bytes | bytearray | memoryview | str
Headers: TypeAlias = Mapping[str, str | float | None]  # True: a header without a value; False and None: no header


class Message(list[bytes]):
    """The frames of one body, each ``bytes``. Most bodies are one frame.

    >>> message = Message([b'{"n": ', b'42}'])
    >>> message.body
    b'{"n": 42}'
    >>> message.json()
    {'n': 42}
    """

    __slots__ = ()

    @property
    def frames(self) -> list[bytes]:
        """The frames as a list."""
        return list(self)

    @property
    def body(self) -> bytes:
        """All frames joined."""
        return self[0] if len(self) == 1 else b"".join(self)

    @property
    def text(self) -> str:
        """All frames joined, as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """All frames joined, as JSON."""
        return json.loads(self.body)


class Result(Message):
    """A reply: the final one, or one part of a stream if ``final`` is false."""

    __slots__ = ("final",)

    def __init__(self, frames: Iterable[bytes] = (), final: bool = True) -> None:
        super().__init__(frames)
        self.final = final


class JobPart(Result):
    """A partial reply of a job, or the rest of its result (``final``). ``attempt`` tells the sequences of several attempts apart, and
    ``number`` counts the parts of one attempt from 1."""

    __slots__ = ("attempt", "number")

    def __init__(self, frames: Iterable[bytes], final: bool, attempt: int, number: int) -> None:
        super().__init__(frames, final)
        self.attempt = attempt
        self.number = number

    @property
    def id(self) -> str:
        """Its place in the stream, such as ``2.17``: the argument ``after`` of ``stream_result`` continues there."""
        return f"{self.attempt}.{self.number}"


def encode(body: Iterable[Frame]) -> list[bytes]:
    """Frames as bytes; text becomes UTF-8. Raises CallFailed for more frames than a broker accepts. ``check_size`` checks their size.

    >>> encode(["zażółć", b"raw"])
    [b'za\\xc5\\xbc\\xc3\\xb3\\xc5\\x82\\xc4\\x87', b'raw']
    """
    frames: list[bytes] = []
    for frame in body:
        if isinstance(frame, bytes):
            content = frame
        elif isinstance(frame, str):
            content = frame.encode()
        elif isinstance(frame, bytearray | memoryview):
            content = bytes(frame)
        else:
            raise TypeError(
                f"a frame must be bytes or str, not {type(frame).__name__}; use json.dumps() for other values"
            )
        frames.append(content)
    if len(frames) > MAX_BODY_FRAMES:
        raise CallFailed(TOO_LARGE, f"the body has {len(frames)} frames; the limit is {MAX_BODY_FRAMES}")
    return frames


def check_size(body: list[bytes], limit: int = MAX_BODY) -> None:
    """Raises CallFailed for a body that is larger than the broker accepts."""
    size = sum(map(len, body)) + FRAME_HEAD * max(0, len(body) - FREE_HEADS)
    if size > limit:
        raise CallFailed(
            TOO_LARGE,
            f"the body has {size:,} bytes; the limit is {limit:,} (limits.max_message of the broker, less room for the envelope)",
        )


def frames_of(body: tuple[Frame, ...], arguments: Mapping[str, object]) -> list[bytes]:
    """The frames of a request that has a body or named arguments. Arguments are sent as one JSON object, the request of a typed service.
    Raises TypeError if it has both.

    >>> frames_of(("one", b"two"), {}), frames_of((), {"a": 1, "b": "x"})
    ([b'one', b'two'], [b'{"a":1,"b":"x"}'])
    """
    if not arguments:
        return encode(body)
    if body:
        names = ", ".join(arguments)
        raise TypeError(
            f"the call has a body and the named arguments {names}; use one of them, or correct the name of an option"
        )
    try:
        return [msgspec.json.encode(arguments, enc_hook=_other)]
    except TypeError as error:
        raise TypeError(f"the arguments cannot be written as JSON: {error}") from None


def _other(value: Any) -> Any:
    """Values that msgspec does not know: pydantic models."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return dump(mode="json")
