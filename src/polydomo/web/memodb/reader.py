"""Reads a large MemoDB Node in steps: JSON or CBOR from a client becomes deterministic CBOR, without the Node itself in memory.

The result is the same as that of ``memo_json.from_json`` or ``memo_node.decode``, followed by ``memo_node.encode``.
"""

import math
from base64 import b64decode
from codecs import getincrementaldecoder
from hashlib import blake2b
from struct import pack, unpack
from typing import Final

from polydomo.limits import MAX_NODE_DEPTH, MAX_NODE_KEYS, MAX_STRING_PIECES, STEP_BYTES, STEP_TOKENS
from polydomo.native import mypyc_attr
from polydomo.protocols.memo.cid import (
    BLAKE2B_256,
    DAG_CBOR,
    DAG_CBOR_UNRESTRICTED,
    DIGEST_SIZE,
    MAX_IDENTITY_SIZE,
    RAW,
    Cid,
    CidError,
    cid_of,
    parse_cid,
    read_cid,
)
from polydomo.protocols.memo.node import CID_TAG, FLOATS, LEAST, MOST_SIGNED, NodeError, cbor_head, encode
from polydomo.protocols.memo.node_json import no_fraction, read_float, read_integer
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

WORDS: Final = {b"true": b"\xf5", b"false": b"\xf4", b"null": b"\xf6"}


class _BeingRead:
    """A list or map that is being read."""

    __slots__ = ("count", "entries", "is_map", "key", "keys", "left", "out")

    def __init__(self, is_map: bool, left: int) -> None:
        self.is_map = is_map
        self.left = left  # CBOR: items still to come; -1: until a break
        self.count = 0
        self.out = bytearray()  # the items of a list
        self.entries: list[tuple[int, bytes, bytearray]] = []  # the entries of a map: length of the key, key, value
        self.keys: set[bytes] = set()
        self.key: bytes | None = None  # its value is next


class NodeWriter:
    """Takes the values of a Node in the order of the input."""

    def __init__(self) -> None:
        self.open: list[_BeingRead] = []
        self.done = False
        self.out = bytearray()  # the whole Node, once it is done
        self.raw = False  # the Node is one byte string, and ``out`` its content
        self.restricted = True  # DAG-CBOR can represent it
        self.size = 0  # bytes that were written
        self.heavy = False  # many bytes were moved: a step ends

    def check_depth(self) -> None:
        if len(self.open) > MAX_NODE_DEPTH:
            raise NodeError(f"the Node is nested more than {MAX_NODE_DEPTH} deep")

    def value(self, head: bytes, content: "bytes | bytearray" = b"") -> None:
        self.check_depth()
        self.size += len(head) + len(content)
        if self.open and not self.open[-1].is_map:
            out = self.open[-1].out
            out += head
            out += content
            self._counted()
        else:
            found = bytearray(head)
            found += content
            self._add(found)

    def integer(self, number: int) -> None:
        if number > MOST_SIGNED:
            self.restricted = False
        self.value(encode(number))

    def real(self, number: float) -> None:
        if not math.isfinite(number):
            self.restricted = False
        self.value(encode(number))

    def octets(self, content: "bytes | bytearray") -> None:
        if self.open:
            self.value(cbor_head(2, len(content)), content)
        else:
            self.raw = True
            self.value(b"", content)

    def begin(self, is_map: bool, left: int = -1) -> None:
        self.check_depth()
        self.open.append(_BeingRead(is_map, left))

    def name(self, key: bytes) -> None:
        """The key of the next value."""
        top = self.open[-1]
        if key in top.keys:
            raise NodeError(f"the map has the key {key.decode()[:64]!r} twice")
        if len(top.keys) >= MAX_NODE_KEYS:
            raise NodeError(f"a map of a Node larger than 4 KiB has at most {MAX_NODE_KEYS:,} keys")
        top.keys.add(key)
        top.key = key
        self.size += len(key)

    def end(self) -> None:
        top = self.open.pop()
        if top.is_map:
            top.keys.clear()
            top.entries.sort(key=_order)
            for length, key, value in top.entries:
                top.out += cbor_head(3, length) + key
                top.out += value
        top.out[:0] = cbor_head(5 if top.is_map else 4, top.count)
        self.heavy = len(top.out) > STEP_BYTES
        self._add(top.out)

    def _add(self, found: bytearray) -> None:
        if not self.open:
            self.out = found
            self.done = True
            return
        top = self.open[-1]
        if top.is_map:
            assert top.key is not None
            top.entries.append((len(top.key), top.key, found))
            top.key = None
        else:
            top.out += found
        self._counted()

    def _counted(self) -> None:
        top = self.open[-1]
        top.count += 1
        if top.left > 0:
            top.left -= 1


def _order(entry: "tuple[int, bytes, bytearray]") -> "tuple[int, bytes]":
    return entry[0], entry[1]


def check_utf8(data: bytes) -> None:
    """Piece by piece, because a long text takes up to four times as much memory as its UTF-8."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(data), STEP_BYTES):
            decoder.decode(data[at : at + STEP_BYTES])
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        raise NodeError("a string is not UTF-8") from None


@mypyc_attr(allow_interpreted_subclasses=True)
class NodeReader:
    """Reads one Node. ``cid`` and ``data`` are set at the end."""

    def __init__(self, size: int, reading: bool = True) -> None:
        self._reading = reading
        self.writer = NodeWriter()
        self.cid: Cid | None = None
        self.data = b""
        self._size = size  # of the input
        self._hash = blake2b(digest_size=DIGEST_SIZE)
        self._hashed = 0

    def held(self) -> int:
        return self._size + self.writer.size + len(self.data)

    def step(self) -> bool:
        """Returns True at the end. Raises NodeError."""
        writer = self.writer
        if self._reading:
            if self.read():
                self._reading = False
                self._size = 0
                self.data = bytes(writer.out)
                writer.out = bytearray()
                writer.size = 0
            return False
        data = self.data
        kind = RAW if writer.raw else DAG_CBOR if writer.restricted else DAG_CBOR_UNRESTRICTED
        if len(data) <= MAX_IDENTITY_SIZE:
            self.cid = cid_of(kind, data)
            return True
        self._hash.update(memoryview(data)[self._hashed : self._hashed + STEP_BYTES])
        self._hashed += STEP_BYTES
        if self._hashed < len(data):
            return False
        self.cid = Cid(kind, BLAKE2B_256, self._hash.digest())
        return True

    def read(self) -> bool:
        """Reads a part of the input. Returns True at its end; then the input is not needed any more."""
        raise NotImplementedError


class OctetsReader(NodeReader):
    """A Node that is one byte string."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0, False)
        self.writer.raw = True
        self.data = data


# --- JSON ----------------------------------------------------------------------------------------------------------------

_VALUE: Final = 0
_ITEM: Final = 1  # a value, or the end of an empty list
_AFTER: Final = 2  # a comma, or the end of the list or map
_NAME: Final = 3  # a key, or the end of an empty map
_NEXT_NAME: Final = 4
_COLON: Final = 5
_KIND: Final = 6  # the only key of an object: float, base64, cid or map
_KIND_COLON: Final = 7
_CONTENT: Final = 8  # its value
_KIND_END: Final = 9  # the end of the object


class JsonReader(NodeReader):
    """From MemoDB JSON."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self._tokens = JsonTokens(data)
        self._state = _VALUE
        self._kind = b""

    def held(self) -> int:
        return super().held() + len(self._tokens.text)

    def read(self) -> bool:
        tokens = self._tokens
        for _ in range(STEP_TOKENS):
            try:
                token = tokens.next()
            except ValueError as error:
                raise NodeError(str(error)) from None
            if token == UNFINISHED:
                return False
            if self.writer.done and self._state == _AFTER:
                if token != END:
                    raise NodeError("malformed JSON: text follows the Node")
                self._tokens = JsonTokens(b"")
                return True
            if not (self._scalar(token) if self._state in (_VALUE, _ITEM) else self._structure(token)):
                raise NodeError(f"malformed JSON at byte {tokens.at}")
            if self.writer.heavy:
                self.writer.heavy = False
                break
        return False

    def _scalar(self, token: int) -> bool:
        writer = self.writer
        text = self._tokens.text
        if token == STRING:
            writer.value(cbor_head(3, len(text)), text)
        elif token == NUMBER:
            number = text.decode()
            writer.integer(read_integer(number) if number.lstrip("-").isdigit() else no_fraction(number))
        elif token == WORD:
            writer.value(WORDS[bytes(text)])
        elif token == BEGIN_LIST:
            writer.begin(False)
            self._state = _ITEM
            return True
        elif token == BEGIN_OBJECT:
            self._state = _KIND
            return True
        elif token == END_LIST and self._state == _ITEM:
            writer.end()
        else:
            return False
        self._state = _AFTER
        return True

    def _structure(self, token: int) -> bool:
        """Whether the token may be at this place."""
        state = self._state
        writer = self.writer
        top = writer.open[-1] if writer.open else None
        if state == _AFTER and top is not None:
            if token == COMMA:
                self._state = _NEXT_NAME if top.is_map else _VALUE
            elif token == (END_OBJECT if top.is_map else END_LIST):
                writer.end()
                self._state = _KIND_END if top.is_map else _AFTER
            else:
                return False
        elif state in (_NAME, _NEXT_NAME) and token == STRING:
            writer.name(bytes(self._tokens.text))
            self._state = _COLON
        elif state == _NAME and token == END_OBJECT:
            writer.end()
            self._state = _KIND_END
        elif state == _COLON and token == COLON:
            self._state = _VALUE
        elif state == _KIND and token == STRING:
            self._kind = bytes(self._tokens.text)
            if self._kind not in (b"float", b"base64", b"cid", b"map"):
                raise NodeError(f"unknown object {self._kind.decode()[:32]!r}; expected float, base64, cid or map")
            self._state = _KIND_COLON
        elif state == _KIND_COLON and token == COLON:
            self._state = _CONTENT
        elif state == _CONTENT and token == BEGIN_OBJECT and self._kind == b"map":
            writer.begin(True)
            self._state = _NAME
        elif state == _CONTENT and token == STRING and self._kind != b"map":
            self._content(bytes(self._tokens.text))
            self._state = _KIND_END
        elif state == _KIND_END and token == END_OBJECT:
            self._state = _AFTER
        else:
            return False
        return True

    def _content(self, text: bytes) -> None:
        writer = self.writer
        if self._kind == b"float":
            writer.real(read_float(text.decode()))
        elif self._kind == b"base64":
            try:
                writer.octets(b64decode(text, validate=True))
            except ValueError:
                raise NodeError("the value of base64 is not padded base64") from None
        else:
            if not text.startswith(b"u"):
                raise NodeError("a CID in JSON must be base64url")
            try:
                writer.value(encode(parse_cid(text.decode())))
            except CidError as error:
                raise NodeError(str(error)) from None


# --- CBOR -----------------------------------------------------------------------------------------------------------------


class CborReader(NodeReader):
    """From CBOR, canonical or not."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self._data = data
        self._at = 0

    def read(self) -> bool:
        writer = self.writer
        for _ in range(STEP_TOKENS):
            if writer.open and not writer.open[-1].left:
                writer.end()
                if writer.heavy:
                    return False
                continue
            if writer.done:
                if self._at != len(self._data):
                    raise NodeError(f"{len(self._data) - self._at} bytes follow the Node")
                self._data = b""
                return True
            top = writer.open[-1] if writer.open else None
            if top is not None and top.left < 0 and top.key is None and self._data[self._at : self._at + 1] == b"\xff":
                self._at += 1
                top.left = 0
            elif top is not None and top.is_map and top.key is None:
                major, _, size = self._head()
                if major != 3:
                    raise NodeError("a map key is not a string")
                key = self._string(3, size)
                check_utf8(key)
                writer.name(key)
            else:
                self._value()
        return False

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise NodeError("the CBOR ends too early")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def _head(self) -> "tuple[int, int, int]":
        """(major type, additional information, number); the number is -1 for an indefinite length."""
        first = self._take(1)[0]
        info = first & 31
        if info < 24:
            return first >> 5, info, info
        if info < 28:
            return first >> 5, info, int.from_bytes(self._take(1 << info - 24), "big")
        if info == 31:
            return first >> 5, info, -1
        raise NodeError("the CBOR has a reserved length")

    def _string(self, major: int, size: int) -> bytes:
        if size >= 0:
            return self._take(size)
        found = bytearray()
        pieces = 0
        while self._data[self._at : self._at + 1] != b"\xff":
            kind, _, length = self._head()
            if kind != major or length < 0:
                raise NodeError("a string of indefinite length has a piece of another kind")
            found += self._take(length)
            pieces += 1
            if pieces > MAX_STRING_PIECES:
                raise NodeError(f"a string of indefinite length has more than {MAX_STRING_PIECES:,} pieces")
        self._at += 1
        return bytes(found)

    def _value(self) -> None:
        writer = self.writer
        major, info, number = self._head()
        if major < 2:
            if number < 0:
                raise NodeError("an integer has no indefinite length")
            value = number if major == 0 else -1 - number
            if value < LEAST:
                raise NodeError(f"the integer {value} is below -2^63")
            writer.integer(value)
        elif major == 2:
            writer.octets(self._string(2, number))
        elif major == 3:
            text = self._string(3, number)
            check_utf8(text)
            writer.value(cbor_head(3, len(text)), text)
        elif major < 6:
            if number > len(self._data) - self._at:
                raise NodeError("the CBOR ends too early")
            writer.begin(major == 5, number)
        elif major == 6:
            writer.value(encode(self._link(number)))
        else:
            self._simple(info, number)

    def _link(self, tag: int) -> Cid:
        if tag != CID_TAG:
            raise NodeError(f"the tag {tag} is not supported; only 42 (a CID) is")
        major, _, size = self._head()
        if major != 2:
            raise NodeError("a CID tag is not followed by a byte string")
        raw = self._string(2, size)
        if raw[:1] != b"\x00":
            raise NodeError("a CID in CBOR must begin with the identity multibase prefix 00")
        try:
            return read_cid(raw[1:])
        except CidError as error:
            raise NodeError(str(error)) from None

    def _simple(self, info: int, number: int) -> None:
        writer = self.writer
        if 20 <= info <= 22:
            writer.value(bytes((0xE0 | info,)))
        elif info in FLOATS:
            (value,) = unpack(FLOATS[info], pack(f">{'HIQ'[info - 25]}", number))
            writer.real(math.nan if math.isnan(value) else float(value))
        else:
            raise NodeError("the CBOR has undefined or an unknown simple value")
