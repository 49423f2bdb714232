"""Reads the frames of bridge messages: identities, numbers, paths and the parts of an envelope."""

from polydomo.errors import ProtocolViolation
from polydomo.limits import MAX_HOPS
from polydomo.model.records import Path
from polydomo.wire.frames import MORE, bounds

IDENTITY_SIZE = 16


def is_identity(word: bytes) -> bool:
    return len(word) == IDENTITY_SIZE and word.isalnum()


def is_number(word: bytes, digits: int) -> bool:
    return word.isdigit() and len(word) <= digits


def read_path(word: bytes) -> Path:
    """Parses comma-separated identities. Raises ProtocolViolation."""
    path = tuple(word.split(b",")) if word else ()
    if len(path) > MAX_HOPS or not all(is_identity(broker) for broker in path) or len(set(path)) != len(path):
        raise ProtocolViolation("an invalid path")
    return path


def take(data: bytes, at: int, end: int, count: int) -> "tuple[list[bytes], int]":
    """The next ``count`` frames, and the position after them. Raises ProtocolViolation if they are missing."""
    found: list[bytes] = []
    for _ in range(count):
        if at >= end:
            raise ProtocolViolation("a truncated message")
        start, after, flags = bounds(data, at)
        found.append(data[start:after])
        at = after
        if not flags & MORE:
            at = end
    if len(found) < count:
        raise ProtocolViolation("a truncated message")
    return found, at


def take_all(data: bytes, at: int, end: int) -> "list[bytes]":
    found: list[bytes] = []
    while at < end:
        start, at, _ = bounds(data, at)
        found.append(data[start:at])
    return found
