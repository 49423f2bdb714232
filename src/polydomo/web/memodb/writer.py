"""Writes a stored MemoDB Node as JSON in steps, without the Node itself in memory. Links may be replaced by the Nodes that they name
(``?depth=N``): a small graph can have a very large text, which is limited to MAX_NODE_TEXT."""

import json
from base64 import b64encode
from collections.abc import Callable
from struct import pack, unpack
from typing import Final

from polydomo.limits import MAX_NODE_TEXT, STEP_BYTES, STEP_TOKENS
from polydomo.protocols.memo.cid import RAW, Cid, read_cid
from polydomo.protocols.memo.node import FLOATS, CborHeads, NodeError, decode
from polydomo.protocols.memo.node_json import float_text

Fetch = Callable[[Cid], "bytes | None"]  # the bytes that a CID identifies

WORDS: Final = {20: b"false", 21: b"true", 22: b"null"}
BASE64_STEP: Final = STEP_BYTES // 3 * 3  # a part of a byte string whose base64 needs no padding


class _Source(CborHeads):
    """The bytes of one Node, and the position in them."""

    __slots__ = ("depth",)

    def __init__(self, data: bytes, depth: int) -> None:
        super().__init__(data)
        self.depth = depth  # links in it are followed this many times


class _BeingWritten:
    """A list, a map or a linked Node that is being written."""

    __slots__ = ("end", "is_map", "left", "source", "started")

    def __init__(self, source: _Source, left: int, is_map: bool, end: bytes) -> None:
        self.source = source  # of its items
        self.left = left  # items still to come, or entries
        self.is_map = is_map
        self.started = False
        self.end = end  # what closes it


NOTHING: Final = _Source(b"", 0)


class NodeText:
    """The text of one Node as MemoDB JSON. Stored bytes are deterministic CBOR."""

    def __init__(self, cid_type: int, data: bytes, fetch: Fetch, depth: int = 0) -> None:
        self.out = bytearray()
        self._fetch = fetch
        self._open: list[_BeingWritten] = []
        self._size = len(data)  # of the Nodes that are being written
        self._rest = b""  # of a long string, whose text is being written
        self._rest_at = 0
        self._binary = False  # it is a byte string
        if cid_type == RAW:
            self._begin_octets(data)
        else:
            self._open.append(_BeingWritten(_Source(data, depth), 1, False, b""))

    def held(self) -> int:
        return len(self.out) + len(self._rest) + self._size

    def step(self) -> bool:
        """Returns True at the end. Raises NodeError if the text is too large."""
        for _ in range(STEP_TOKENS):
            if self._rest:
                self._write_rest()
                return False
            if not self._go_on():
                return True
            if len(self.out) > MAX_NODE_TEXT:
                raise NodeError(
                    f"the text of the Node exceeds {MAX_NODE_TEXT:,} bytes (MAX_NODE_TEXT); ask for a smaller depth or for CBOR"
                )
        return False

    def _go_on(self) -> bool:
        """Writes the next value, or the end of a list or map. Returns False at the end."""
        while self._open and not self._open[-1].left:
            closed = self._open.pop()
            self.out += closed.end
            if closed.end == b"}":
                self._size -= len(closed.source.data)
        if not self._open:
            return False
        top = self._open[-1]
        source = top.source
        if top.started:
            self.out += b","
        top.started = True
        top.left -= 1
        if top.is_map:
            size = source.next()[1]
            self.out += json.dumps(source.data[source.at : source.at + size].decode(), ensure_ascii=False).encode()
            source.at += size
            self.out += b":"
        self._value(source)
        return True

    def _value(self, source: _Source) -> None:
        major, number = source.next()
        info = source.info
        out = self.out
        if major == 0:
            out += b"%d" % number
        elif major == 1:
            out += b"%d" % (-1 - number)
        elif major in (2, 3):
            content = source.data[source.at : source.at + number]
            source.at += number
            if major == 2:
                self._begin_octets(content)
            else:
                self._text(content)
        elif major == 4:
            out += b"["
            self._open.append(_BeingWritten(source, number, False, b"]"))
        elif major == 5:
            out += b'{"map":{'
            self._open.append(_BeingWritten(source, number, True, b"}}"))
        elif major == 6:
            self._link(source)
        elif info in WORDS:
            out += WORDS[info]
        else:
            (value,) = unpack(FLOATS[info], pack(f">{'HIQ'[info - 25]}", number))
            out += b'{"float":"%b"}' % float_text(float(value)).encode()

    def _link(self, source: _Source) -> None:
        size = source.next()[1]
        cid = read_cid(source.data[source.at + 1 : source.at + size])
        source.at += size
        data = self._fetch(cid) if source.depth > 0 else None
        if data is not None and cid.content() is not None and cid.content_type != RAW:
            try:
                decode(data)  # a CID may contain bytes that are not a Node; then it is shown as a link
            except NodeError:
                data = None
        if data is None:
            self.out += b'{"cid":"%b"}' % cid.text().encode()
        else:
            self.out += b'{"node":'
            if cid.content_type == RAW:
                self._begin_octets(data, True)
            else:
                self._size += len(data)
                self._open.append(_BeingWritten(_Source(data, source.depth - 1), 1, False, b"}"))

    def _text(self, content: bytes) -> None:
        if len(content) <= STEP_BYTES:
            self.out += json.dumps(content.decode(), ensure_ascii=False).encode()
        else:
            self.out += b'"'
            self._rest = content
            self._binary = False

    def _begin_octets(self, content: bytes, linked: bool = False) -> None:
        self.out += b'{"base64":"'
        end = b'"}}' if linked else b'"}'
        if len(content) <= STEP_BYTES:
            self.out += b64encode(content) + end
        else:
            self._rest = content
            self._binary = True
            self._open.append(_BeingWritten(NOTHING, 0, False, end[1:]))

    def _write_rest(self) -> None:
        """Writes a part of a long string, and its closing quote at the end."""
        rest = self._rest
        at = self._rest_at
        if self._binary:
            end = at + BASE64_STEP
            self.out += b64encode(rest[at:end])
        else:
            end = min(at + STEP_BYTES, len(rest))
            while end < len(rest) and rest[end] & 0xC0 == 0x80:
                end -= 1  # not inside a character
            self.out += json.dumps(rest[at:end].decode(), ensure_ascii=False).encode()[1:-1]
        if end >= len(rest):
            self.out += b'"'
            self._rest = b""
            self._rest_at = 0
        else:
            self._rest_at = end
