"""Checksums of stored partial replies: CRC-32 of the record, and of the body, which the first covers."""

from struct import Struct
from typing import Any
from zlib import crc32

from polydomo.broker.jobs.part import StoredPart

CHECKS = Struct("<II")
PLACE = Struct("<qqqI")


def part_checks(part: StoredPart) -> bytes:
    body = crc32(part.body)
    return CHECKS.pack(_sum(part.job, part.attempt, part.number, part.stop, body), body)


def _sum(job: str, attempt: int, number: int, stop: int, body: int) -> int:
    return crc32(job.encode() + PLACE.pack(attempt, number, stop, body))


def part_of(job: str, attempt: int, number: int, stop: int, body: Any, checks: Any) -> StoredPart:
    """A part from a row. ``body`` is None if it was not read. If the row is damaged, the part says so, and has no body."""
    part = StoredPart(job, attempt, number, stop, b"")
    try:
        whole, content = CHECKS.unpack(bytes(checks))
        part.damaged = _sum(job, attempt, number, stop, content) != whole
        if body is not None and not part.damaged:
            part.body = bytes(body)
            part.damaged = crc32(part.body) != content
    except Exception:  # a value of another type, or out of range
        part.damaged = True
    if part.damaged:
        part.body = b""
    return part
