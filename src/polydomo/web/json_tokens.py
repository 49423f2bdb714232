"""JSON as tokens, for messages that are too large to be parsed at once. A long string is read in several calls."""

import re
from codecs import getincrementaldecoder
from typing import Final

from polydomo.limits import STEP_BYTES

# what ``JsonTokens.next`` returns, besides the bytes [ ] { } , :
STRING: Final = 1  # ``text`` has its content, as UTF-8
NUMBER: Final = 2  # ``text`` has its characters
WORD: Final = 3  # true, false or null, in ``text``
END: Final = 4  # the end of the data
UNFINISHED: Final = 5  # a string goes on: call ``next`` again

BEGIN_LIST: Final = 0x5B
END_LIST: Final = 0x5D
BEGIN_OBJECT: Final = 0x7B
END_OBJECT: Final = 0x7D
COMMA: Final = 0x2C
COLON: Final = 0x3A

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_PUNCTUATION: Final = frozenset(b"[]{},:")
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD: Final = re.compile(rb"true|false|null")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_ESCAPES: Final = {
    b'"': b'"',
    b"\\": b"\\",
    b"/": b"/",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
}
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_ESCAPES_AT_ONCE: Final = 200


class JsonTokens:
    """The tokens of one JSON text. Every call of ``next`` reads at most STEP_BYTES bytes of a string."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.text = bytearray()
        self._in_string = False
        self._utf8 = getincrementaldecoder("utf-8")()

    def next(self) -> int:
        """Raises ValueError with the reason."""
        if self._in_string:
            return self._string()
        data = self.data
        at = self.at
        if at < len(data) and data[at] in b" \t\n\r":
            space = _SPACE.match(data, at, at + STEP_BYTES)
            assert space is not None
            self.at = at = space.end()
            if at < len(data) and data[at] in b" \t\n\r":
                return UNFINISHED
        if at >= len(data):
            return END
        first = data[at]
        if first in _PUNCTUATION:
            self.at = at + 1
            return first
        if first == _QUOTE:
            self.at = at + 1
            self.text = bytearray()
            self._in_string = True
            return self._string()
        found = _NUMBER.match(data, at, at + STEP_BYTES)
        kind = NUMBER
        if found is None:
            found = _WORD.match(data, at)
            kind = WORD
        if found is None:
            raise ValueError(f"malformed JSON at byte {at}")
        self.text = bytearray(found[0])
        self.at = found.end()
        return kind

    def _string(self) -> int:
        data = self.data
        end = self.at + STEP_BYTES
        for _ in range(_ESCAPES_AT_ONCE):
            plain = _PLAIN.match(data, self.at, end)
            assert plain is not None
            piece = plain[0]
            self._check(piece)
            self.text += piece
            at = self.at = plain.end()
            if at >= len(data):
                raise ValueError("malformed JSON: a string does not end")
            if data[at] == _QUOTE:
                self.at = at + 1
                self._in_string = False
                self._check(b"", True)
                return STRING
            if data[at] == _BACKSLASH:
                self._check(b"", True)
                self._escape(at + 1)
            elif at < end:
                raise ValueError(f"malformed JSON: a control character in a string, at byte {at}")
            if self.at >= end:
                break
        return UNFINISHED

    def _check(self, piece: bytes, final: bool = False) -> None:
        try:
            self._utf8.decode(piece, final)
        except UnicodeDecodeError:
            raise ValueError("a string is not UTF-8") from None

    def _escape(self, at: int) -> None:
        known = _ESCAPES.get(self.data[at : at + 1])
        if known is not None:
            self.text += known
            self.at = at + 1
            return
        code = self._unit(at)
        self.at = at + 5
        if 0xD800 <= code < 0xDC00 and self.data[self.at : self.at + 2] == b"\\u":
            low = self._unit(self.at + 1)
            if 0xDC00 <= low < 0xE000:
                code = 0x10000 + (code - 0xD800 << 10) + low - 0xDC00
                self.at += 6
        if 0xD800 <= code < 0xE000:
            raise ValueError("a string has a lone surrogate")
        self.text += chr(code).encode()

    def _unit(self, at: int) -> int:
        """The code unit of an escape such as u00e9."""
        digits = self.data[at + 1 : at + 5]
        if self.data[at : at + 1] != b"u" or len(digits) != 4 or not _HEX.issuperset(digits):
            raise ValueError(f"malformed JSON: an unknown escape in a string, at byte {at}")
        return int(digits, 16)
