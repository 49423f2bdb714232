"""Bodies as programs see them: a list of frames with the usual shortcuts."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from polydomo.errors import CallFailed
from polydomo.limits import MAX_BODY, MAX_BODY_FRAMES

Frame: TypeAlias = bytes | bytearray | memoryview | str
Headers: TypeAlias = Mapping[str, str | float | None]  # True is one without a value, False and None are none


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
        """The frames as a plain list."""
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
    """A reply: the final one, or with ``final`` false one part of a stream."""

    __slots__ = ("final",)

    def __init__(self, frames: Iterable[bytes] = (), final: bool = True) -> None:
        super().__init__(frames)
        self.final = final


def encode(body: Iterable[Frame]) -> list[bytes]:
    """Frames as bytes; text becomes UTF-8. Raises CallFailed for a body that no broker would take.

    >>> encode(["zażółć", b"raw"])
    [b'za\\xc5\\xbc\\xc3\\xb3\\xc5\\x82\\xc4\\x87', b'raw']
    """
    frames: list[bytes] = []
    size = 0
    for frame in body:
        if isinstance(frame, bytes):
            content = frame
        elif isinstance(frame, str):
            content = frame.encode()
        elif isinstance(frame, bytearray | memoryview):
            content = bytes(frame)
        else:
            raise TypeError(
                f"a frame is bytes or str, not {type(frame).__name__}; json.dumps() makes one of most things"
            )
        size += len(content)
        frames.append(content)
    if size > MAX_BODY:
        raise CallFailed("too-large", f"a body of {size} bytes, the bound is {MAX_BODY}")
    if len(frames) > MAX_BODY_FRAMES:
        raise CallFailed("too-large", f"a body of {len(frames)} frames, the bound is {MAX_BODY_FRAMES}")
    return frames
