"""The subset of CBOR (RFC 8949) that memo01's header uses: arrays, text, byte strings, unsigned integers and booleans.

Both directions keep to "deterministically encoded CBOR" (section 4.2.1): each length in its shortest form and no indefinite
lengths. Nesting and the size of a header are limited here.
"""

from typing import Final

from polydomo.errors import ProtocolViolation
from polydomo.limits import MEMO_MAX_HEADER

Item = bool | int | bytes | str | list["Item"]

# the major types, in the top three bits of the first byte
UINT: Final = 0x00
BYTES: Final = 0x40
TEXT: Final = 0x60
ARRAY: Final = 0x80
FALSE: Final = 0xF4
TRUE: Final = 0xF5
MAX_DEPTH = 2  # the header, and READY's list of services inside it


def head(major: int, value: int) -> bytes:
    """The first bytes of an item: its major type and its value or length. "The shortest form" is the only one written."""
    if value < 24:
        return bytes((major | value,))
    if value < 0x100:
        return bytes((major | 24, value))
    if value < 0x10000:
        return bytes((major | 25,)) + value.to_bytes(2, "big")
    if value < 0x100000000:
        return bytes((major | 26,)) + value.to_bytes(4, "big")
    return bytes((major | 27,)) + value.to_bytes(8, "big")


def uint(value: int) -> bytes:
    return head(UINT, value)


def byte_string(value: bytes) -> bytes:
    return head(BYTES, len(value)) + value


def text(value: bytes) -> bytes:
    """A text string, given as UTF-8 bytes, which is the form of service names everywhere else."""
    return head(TEXT, len(value)) + value


def encode(item: Item) -> bytes:
    """Any item, deterministically."""
    if isinstance(item, bool):  # before int, which a bool is too
        return b"\xf5" if item else b"\xf4"
    if isinstance(item, int):
        return uint(item)
    if isinstance(item, bytes):
        return byte_string(item)
    if isinstance(item, str):
        return text(item.encode())
    return head(ARRAY, len(item)) + b"".join([encode(part) for part in item])


def read_header(data: bytes, start: int, end: int) -> "tuple[list[Item], int]":
    """The array at ``data[start:end]`` and the position after it, where the payload begins. Raises ProtocolViolation for
    anything that is not a deterministically encoded array of what memo01 allows."""
    end = min(end, start + MEMO_MAX_HEADER)
    if start >= end or data[start] & 0xE0 != ARRAY:
        raise ProtocolViolation("CBOR header is not an array")
    count, position = read_head(data, start, end)
    return _read_array(data, position, end, count, 1)


def read_head(data: bytes, start: int, end: int) -> "tuple[int, int]":
    """The value or length in the first bytes of the item at ``start``, and the position after them."""
    if start >= end:
        raise ProtocolViolation("CBOR header ends early")
    info = data[start] & 0x1F
    if info < 24:
        return info, start + 1
    if info > 27:  # 28 to 30 are reserved
        raise ProtocolViolation("CBOR item of indefinite length" if info == 31 else "CBOR item with a reserved length")
    size = 1 << (info - 24)
    position = start + 1 + size
    if position > end:
        raise ProtocolViolation("CBOR header ends early")
    value = int.from_bytes(data[start + 1 : position], "big")
    if value < 24 or (size > 1 and value >> (size * 4) == 0):
        raise ProtocolViolation("CBOR length or integer not in its shortest form")
    return value, position


def _read_array(data: bytes, position: int, end: int, count: int, depth: int) -> "tuple[list[Item], int]":
    if depth > MAX_DEPTH:
        raise ProtocolViolation("CBOR header nested too deep")
    if count > end - position:  # each item has at least a byte
        raise ProtocolViolation("CBOR header ends early")
    items: list[Item] = []
    for _ in range(count):
        if position >= end:
            raise ProtocolViolation("CBOR header ends early")
        first = data[position]
        major = first & 0xE0
        if first in (FALSE, TRUE):
            items.append(first == TRUE)
            position += 1
            continue
        if major not in (UINT, BYTES, TEXT, ARRAY):
            raise ProtocolViolation(f"CBOR item 0x{first:02x} has no place in a header")
        value, position = read_head(data, position, end)
        if major == UINT:
            items.append(value)
        elif major == ARRAY:
            inner, position = _read_array(data, position, end, value, depth + 1)
            items.append(inner)
        else:
            if value > end - position:
                raise ProtocolViolation("CBOR header ends early")
            content = data[position : position + value]
            position += value
            items.append(content if major == BYTES else _decode(content))
    return items, position


def _decode(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ProtocolViolation("CBOR text is not UTF-8") from None
