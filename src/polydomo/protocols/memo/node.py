"""MemoDB's Nodes and their CBOR (docs/memodb/data-model.md of bcdb).

A Node is None, a bool, an int of 64 bits (signed or unsigned), a float, a str, bytes, a ``Cid`` (a link), a list of Nodes or a dict of
Nodes with str keys. Encoding is deterministic, so that equal Nodes have equal bytes and one CID. Decoding accepts any well-formed CBOR that
means a Node: "In general, the MemoDB server and tools will accept CBOR that doesn't follow these restrictions, and will convert Nodes".
"""

import math
from struct import Struct, pack, unpack
from typing import Final, Union

from polydomo.limits import MAX_NODE_DEPTH
from polydomo.protocols.memo.cid import DAG_CBOR, DAG_CBOR_UNRESTRICTED, RAW, Cid, CidError, cid_of, read_cid

Node = Union[None, bool, int, float, str, bytes, Cid, "list[Node]", "dict[str, Node]"]

LEAST: Final = -(2**63)
MOST: Final = 2**64 - 1
MOST_SIGNED: Final = 2**63 - 1

NAN: Final = b"\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00"
CID_TAG: Final = 42
DOUBLE: Final = Struct(">d")
FLOATS: Final = {25: ">e", 26: ">f", 27: ">d"}  # by the additional information of the head


class NodeError(ValueError):
    """Not a Node: malformed bytes, or a value that the data model does not support."""


# --- encoding ------------------------------------------------------------------------------------------------------------


def encode(node: Node) -> bytes:
    """Deterministic CBOR. Raises NodeError for values that are not Nodes."""
    out = bytearray()
    _encode(node, out, 0)
    return bytes(out)


def cbor_head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major << 5 | number,))
    for size, info in ((1, 24), (2, 25), (4, 26), (8, 27)):
        if number < 1 << 8 * size:
            return bytes((major << 5 | info,)) + number.to_bytes(size, "big")
    raise NodeError(f"the integer {number} has more than 64 bits")


def _encode(node: Node, out: bytearray, depth: int) -> None:
    if depth > MAX_NODE_DEPTH:
        raise NodeError(f"the Node is nested more than {MAX_NODE_DEPTH} deep")
    if node is None:
        out += b"\xf6"
    elif node is True:
        out += b"\xf5"
    elif node is False:
        out += b"\xf4"
    elif isinstance(node, int):
        if not LEAST <= node <= MOST:
            raise NodeError(f"the integer {node} has more than 64 bits")
        out += cbor_head(0, node) if node >= 0 else cbor_head(1, -1 - node)
    elif isinstance(node, float):
        out += NAN if math.isnan(node) else b"\xfb" + DOUBLE.pack(node)
    elif isinstance(node, str):
        text = _utf8(node)
        out += cbor_head(3, len(text)) + text
    elif isinstance(node, bytes):
        out += cbor_head(2, len(node)) + node
    elif isinstance(node, Cid):
        out += b"\xd8\x2a" + cbor_head(2, len(node.raw) + 1) + b"\x00" + node.raw
    elif isinstance(node, list):
        out += cbor_head(4, len(node))
        for item in node:
            _encode(item, out, depth + 1)
    elif isinstance(node, dict):
        out += cbor_head(5, len(node))
        for key, name in ordered(node):
            out += cbor_head(3, len(key)) + key
            _encode(node[name], out, depth + 1)
    else:
        raise NodeError(f"{type(node).__name__} is not a type of Node")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NodeError("a string has a lone surrogate") from None


def ordered(node: "dict[str, Node]") -> "list[tuple[bytes, str]]":
    """The keys in the order of deterministic CBOR: "shorter names come before longer ones, and names with the same length are ordered
    lexicographically"."""
    for name in node:
        if not isinstance(name, str):
            raise NodeError("a map key is not a string")
    return sorted(((_utf8(name), name) for name in node), key=lambda pair: (len(pair[0]), pair[0]))


# --- CIDs of Nodes --------------------------------------------------------------------------------------------------------


def node_cid(node: Node) -> "tuple[Cid, bytes]":
    """The CID of a Node and the bytes that it identifies."""
    if isinstance(node, bytes):
        return cid_of(RAW, node), node
    data = encode(node)
    return cid_of(DAG_CBOR if _restricted(node) else DAG_CBOR_UNRESTRICTED, data), data


def _restricted(node: Node) -> bool:
    """Whether DAG-CBOR can represent the Node: finite floats, and integers within the signed range."""
    if isinstance(node, float):
        return math.isfinite(node)
    if isinstance(node, int):
        return node <= MOST_SIGNED
    if isinstance(node, list):
        return all(map(_restricted, node))
    if isinstance(node, dict):
        return all(map(_restricted, node.values()))
    return True


def node_from(cid: Cid, data: bytes) -> Node:
    """Decodes the Node of a CID from its bytes. Raises NodeError."""
    return data if cid.content_type == RAW else decode(data)


# --- decoding --------------------------------------------------------------------------------------------------------------


def decode(data: bytes) -> Node:
    """A Node from CBOR, canonical or not. Raises NodeError."""
    reader = _NodeReader(data)
    node = reader.node(0)
    if reader.at != len(data):
        raise NodeError(f"{len(data) - reader.at} bytes follow the Node")
    return node


class CborHeads:
    """Reads deterministic CBOR, which this module wrote, head by head."""

    __slots__ = ("at", "data", "info")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.info = 0  # additional information of the last head

    def next(self) -> "tuple[int, int]":
        """(major type, number)"""
        first = self.data[self.at]
        self.at += 1
        self.info = info = first & 31
        if info < 24:
            return first >> 5, info
        size = 1 << info - 24
        number = int.from_bytes(self.data[self.at : self.at + size], "big")
        self.at += size
        return first >> 5, number


class _NodeReader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise NodeError("the CBOR ends too early")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def head(self) -> "tuple[int, int, int]":
        """(major type, additional information, number); the number is -1 for an indefinite length."""
        first = self.take(1)[0]
        info = first & 31
        if info < 24:
            return first >> 5, info, info
        if info < 28:
            return first >> 5, info, int.from_bytes(self.take(1 << info - 24), "big")
        if info == 31:
            return first >> 5, info, -1
        raise NodeError("the CBOR has a reserved length")

    def node(self, depth: int) -> Node:
        if depth > MAX_NODE_DEPTH:
            raise NodeError(f"the Node is nested more than {MAX_NODE_DEPTH} deep")
        major, info, number = self.head()
        if major < 2:
            if number < 0:
                raise NodeError("an integer has no indefinite length")
            value = number if major == 0 else -1 - number
            if value < LEAST:
                raise NodeError(f"the integer {value} is below -2^63")
            return value
        if major == 2:
            return self.string(2, number)
        if major == 3:
            return self.text(number)
        if major == 4:
            return self.items(number, depth)
        if major == 5:
            return self.map(number, depth)
        if major == 6:
            return self.link(number)
        return self.simple(info, number)

    def string(self, major: int, number: int) -> bytes:
        if number >= 0:
            return self.take(number)
        pieces: list[bytes] = []
        while not self.ended():
            kind, _, size = self.head()
            if kind != major or size < 0:
                raise NodeError("a string of indefinite length has a piece of another kind")
            pieces.append(self.take(size))
        return b"".join(pieces)

    def text(self, number: int) -> str:
        try:
            return self.string(3, number).decode()
        except UnicodeDecodeError:
            raise NodeError("a string is not UTF-8") from None

    def ended(self) -> bool:
        """Skips the break that ends an indefinite length, if it is next."""
        if self.at < len(self.data) and self.data[self.at] == 0xFF:
            self.at += 1
            return True
        return False

    def items(self, number: int, depth: int) -> "list[Node]":
        if number > len(self.data) - self.at:
            raise NodeError("the CBOR ends too early")
        found: list[Node] = []
        while len(found) != number if number >= 0 else not self.ended():
            found.append(self.node(depth + 1))
        return found

    def map(self, number: int, depth: int) -> "dict[str, Node]":
        if number > len(self.data) - self.at:
            raise NodeError("the CBOR ends too early")
        found: dict[str, Node] = {}
        while len(found) != number if number >= 0 else not self.ended():
            major, _, size = self.head()
            if major != 3:
                raise NodeError("a map key is not a string")
            key = self.text(size)
            if key in found:
                raise NodeError(f"the map has the key {key[:64]!r} twice")
            found[key] = self.node(depth + 1)
        return found

    def link(self, tag: int) -> Cid:
        if tag != CID_TAG:
            raise NodeError(f"the tag {tag} is not supported; only 42 (a CID) is")
        major, _, size = self.head()
        if major != 2:
            raise NodeError("a CID tag is not followed by a byte string")
        raw = self.string(2, size)
        if raw[:1] != b"\x00":
            raise NodeError("a CID in CBOR must begin with the identity multibase prefix 00")
        try:
            return read_cid(raw[1:])
        except CidError as error:
            raise NodeError(str(error)) from None

    def simple(self, info: int, number: int) -> Node:
        if info == 20:
            return False
        if info == 21:
            return True
        if info == 22:
            return None
        if info in FLOATS:
            (value,) = unpack(FLOATS[info], pack(f">{'HIQ'[info - 25]}", number))
            return math.nan if math.isnan(value) else float(value)
        raise NodeError("the CBOR has undefined or an unknown simple value")
