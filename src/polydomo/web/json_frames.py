"""A message with frames as JSON that is read in steps because it is large: ``{"op": "call", "service": "upper", "frames": ["..."]}``.

Frames may be as large as messages; everything else in the object is small and not nested.
"""

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Final

from polydomo.limits import MAX_BODY_FRAMES, MAX_CONTROL, STEP_TOKENS
from polydomo.web.json_tokens import (
    BEGIN_LIST,
    BEGIN_OBJECT,
    COLON,
    COMMA,
    END,
    END_LIST,
    END_OBJECT,
    NUMBER,
    STRING,
    UNFINISHED,
    WORD,
    JsonTokens,
)
from polydomo.wire.steps import Steps

FRAMES: Final = "frames"
BODY: Final = "body"  # one frame

# where the reader is
_START: Final = 0
_NAME: Final = 1  # a name, or the end of an empty object
_NEXT_NAME: Final = 2
_COLON: Final = 3
_VALUE: Final = 4
_AFTER: Final = 5  # a comma or the end of the object
_FRAME: Final = 6  # a frame, or the end of an empty list
_NEXT_FRAME: Final = 7
_AFTER_FRAME: Final = 8
_BINARY: Final = 9  # the name "base64"
_BINARY_COLON: Final = 10
_BINARY_TEXT: Final = 11
_BINARY_END: Final = 12
_DONE: Final = 13


class JsonFrames(Steps):
    """Reads one message, and passes it to ``taken``, with the frames as bytes. If it is malformed, ``failed`` is given the reason."""

    def __init__(
        self, data: bytes, taken: "Callable[[dict[str, object]], None]", failed: "Callable[[str], None]"
    ) -> None:
        self._tokens = JsonTokens(data)
        self._taken = taken
        self._failed = failed
        self.row: dict[str, object] = {}
        self.frames: list[object] | None = None
        self._state = _START
        self._name = ""
        self._size = 0  # bytes of the frames
        self._one = False  # the frame is the value of "body"

    def held(self) -> int:
        return len(self._tokens.data) + self._size + len(self._tokens.text)

    def step(self) -> bool:
        try:
            if not self.read():
                return False
        except ValueError as error:
            self._failed(str(error))
            return True
        self._tokens = JsonTokens(b"")
        if self.frames is not None:
            self.row[FRAMES] = self.frames
        self._taken(self.row)
        return True

    def read(self) -> bool:
        """Reads a part. Returns True at the end. Raises ValueError with the reason."""
        for _ in range(STEP_TOKENS):
            token = self._tokens.next()
            if token == UNFINISHED:
                return False
            if self._state == _DONE:
                if token != END:
                    raise ValueError("text follows the JSON object")
                return True
            self._take(token)
        return False

    def _take(self, token: int) -> None:
        state = self._state
        if state == _START and token == BEGIN_OBJECT:
            self._state = _NAME
        elif state in (_NAME, _NEXT_NAME) and token == STRING:
            self._name = self._small()
            self._state = _COLON
        elif state in (_NAME, _AFTER) and token == END_OBJECT:
            self._state = _DONE
        elif state == _COLON and token == COLON:
            self._state = _VALUE
            self._one = self._name == BODY
        elif state == _AFTER and token == COMMA:
            self._state = _NEXT_NAME
        elif state == _VALUE and self._name == FRAMES and token == BEGIN_LIST:
            self.frames = []
            self._state = _FRAME
        elif (state == _VALUE and self._one and token in (STRING, BEGIN_OBJECT)) or (
            state in (_FRAME, _NEXT_FRAME) and token in (STRING, BEGIN_OBJECT)
        ):
            if state == _VALUE:
                self.frames = []
            if token == STRING:
                self._add(bytes(self._tokens.text))
            else:
                self._state = _BINARY
        elif state in (_FRAME, _AFTER_FRAME) and token == END_LIST:
            self._state = _AFTER
        elif state == _AFTER_FRAME and token == COMMA:
            self._state = _NEXT_FRAME
        elif state == _VALUE and self._name != FRAMES and token in (STRING, NUMBER, WORD):
            self.row[self._name] = self._small() if token == STRING else json.loads(bytes(self._tokens.text))
            self._state = _AFTER
        elif not self._take_binary(state, token):
            raise ValueError(
                'a message of more than 256 KiB must be an object whose values are strings, numbers, or "frames", a list of frames'
            )

    def _take_binary(self, state: int, token: int) -> bool:
        if state == _BINARY and token == STRING and self._tokens.text == b"base64":
            self._state = _BINARY_COLON
        elif state == _BINARY_COLON and token == COLON:
            self._state = _BINARY_TEXT
        elif state == _BINARY_TEXT and token == STRING:
            try:
                self._add(b64decode(bytes(self._tokens.text), validate=True))
            except ValueError:
                raise ValueError("a frame is not valid base64") from None
            self._state = _BINARY_END
        elif state == _BINARY_END and token == END_OBJECT:
            self._state = _AFTER if self._one else _AFTER_FRAME
        else:
            return False
        return True

    def _add(self, frame: bytes) -> None:
        assert self.frames is not None
        if len(self.frames) >= MAX_BODY_FRAMES:
            raise ValueError(f"more than {MAX_BODY_FRAMES} frames")
        self.frames.append(frame)
        self._size += len(frame)
        self._tokens.text = bytearray()
        self._state = _AFTER if self._one else _AFTER_FRAME

    def _small(self) -> str:
        if len(self._tokens.text) > MAX_CONTROL or len(self.row) >= STEP_TOKENS:
            raise ValueError("only frames may be large")
        return self._tokens.text.decode()
