"""CIDs as MemoDB uses them (docs/memodb/data-model.md of bcdb): version 1, three content types, two multihashes, eight text encodings."""

from base64 import (
    b16decode,
    b16encode,
    b32decode,
    b32encode,
    b64decode,
    b64encode,
    urlsafe_b64decode,
    urlsafe_b64encode,
)
from hashlib import blake2b
from typing import Final

RAW: Final = 0x55  # a Node that is one byte string
DAG_CBOR: Final = 0x71
DAG_CBOR_UNRESTRICTED: Final = 0x0171  # has a value that DAG-CBOR does not allow
CONTENT_TYPES: Final = (RAW, DAG_CBOR, DAG_CBOR_UNRESTRICTED)

IDENTITY: Final = 0x00
BLAKE2B_256: Final = 0xB220
DIGEST_SIZE: Final = 32

MAX_CID_TEXT: Final = (
    200  # the longest CID has 38 bytes unless an identity CID is oversized; base16 needs two characters for each
)
MAX_IDENTITY_SIZE: Final = 34  # "whenever it would be the same length or shorter than the blake2b-256 CID"

MULTIBASES: Final = {
    "f": "base16",
    "F": "base16upper",
    "b": "base32",
    "B": "base32upper",
    "m": "base64",
    "M": "base64pad",
    "u": "base64url",
    "U": "base64urlpad",
}


class CidError(ValueError):
    """Not a CID, or one that MemoDB does not support."""


class Cid:
    """A content identifier. Equal CIDs have equal bytes."""

    __slots__ = ("content_type", "digest", "hash_type", "raw")

    def __init__(self, content_type: int, hash_type: int, digest: bytes) -> None:
        self.content_type = content_type
        self.hash_type = hash_type
        self.digest = digest  # with IDENTITY, the data itself
        self.raw = b"\x01" + varint(content_type) + varint(hash_type) + varint(len(digest)) + digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cid) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Cid({self.text()})"

    def text(self, base: str = "u") -> str:
        """As text in the multibase with this prefix; the default is base64url, as in MemoDB."""
        return base + _encode(base, self.raw)

    def content(self) -> bytes | None:
        """The data, if the CID contains it."""
        return self.digest if self.hash_type == IDENTITY else None


def cid_of(content_type: int, data: bytes) -> Cid:
    """The one CID of this data."""
    if len(data) <= MAX_IDENTITY_SIZE:
        return Cid(content_type, IDENTITY, data)
    return Cid(content_type, BLAKE2B_256, blake2b(data, digest_size=DIGEST_SIZE).digest())


def parse_cid(text: str) -> Cid:
    """From text in any of the eight multibases. Raises CidError.

    >>> parse_cid("uAXEAAfY").content()
    b'\\xf6'
    """
    base = text[:1]
    if base not in MULTIBASES:
        raise CidError(f"a CID begins with one of {' '.join(MULTIBASES)}, not {base!r}")
    if len(text) > MAX_CID_TEXT or not text.isascii():
        raise CidError("the CID is too long or has characters outside ASCII")
    try:
        raw = _decode(base, text[1:])
    except ValueError:
        raise CidError(f"the CID is not {MULTIBASES[base]}") from None
    if _encode(base, raw) != text[1:]:
        raise CidError(f"the CID is not {MULTIBASES[base]} in its canonical form")
    return read_cid(raw)


def read_cid(raw: bytes) -> Cid:
    """From bytes, without a multibase prefix. Raises CidError."""
    version, at = read_varint(raw, 0)
    content_type, at = read_varint(raw, at)
    hash_type, at = read_varint(raw, at)
    size, at = read_varint(raw, at)
    digest = raw[at:]
    if version != 1:
        raise CidError(f"CID version {version}; only version 1 is supported")
    if content_type not in CONTENT_TYPES:
        raise CidError(f"content type 0x{content_type:x}; raw, dag-cbor and dag-cbor-unrestricted are supported")
    if hash_type not in (IDENTITY, BLAKE2B_256):
        raise CidError(f"multihash 0x{hash_type:x}; identity and blake2b-256 are supported")
    if len(digest) != size or (hash_type == BLAKE2B_256 and size != DIGEST_SIZE):
        raise CidError("the length of the multihash is wrong")
    return Cid(content_type, hash_type, digest)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, at: int) -> "tuple[int, int]":
    """(number, position after it). Raises CidError; only the shortest form of a number is accepted."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise CidError("the CID ends inside a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte and shift:
                break
            return number, at
    raise CidError("a number in the CID is too large or not in its shortest form")


def _encode(base: str, raw: bytes) -> str:
    if base == "f":
        return raw.hex()
    if base == "F":
        return b16encode(raw).decode()
    if base == "b":
        return b32encode(raw).decode().rstrip("=").lower()
    if base == "B":
        return b32encode(raw).decode().rstrip("=")
    if base == "m":
        return b64encode(raw).decode().rstrip("=")
    if base == "M":
        return b64encode(raw).decode()
    if base == "u":
        return urlsafe_b64encode(raw).decode().rstrip("=")
    return urlsafe_b64encode(raw).decode()


def _decode(base: str, text: str) -> bytes:
    if base in "fF":
        return b16decode(text, casefold=True)
    if base in "bB":
        return b32decode(text + "=" * (-len(text) % 8), casefold=True)
    padding = "=" * (-len(text) % 4)
    if base in "mM":
        return b64decode(text + padding, validate=True)
    return urlsafe_b64decode(text + padding)
