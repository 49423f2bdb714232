"""Checksums of the memo store, and what is copied from a damaged file."""

import sqlite3
from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any
from zlib import crc32

from polydomo.protocols.memo.cid import BLAKE2B_256, DIGEST_SIZE, Cid, CidError, read_cid
from polydomo.stores.salvage import Copying

TIME = Struct("<d")
WRONG = -2  # no stored checksum is equal to it


def is_node(cid: Cid, data: Any) -> bool:
    """Whether the CID identifies this data."""
    if not isinstance(data, bytes) or cid.hash_type != BLAKE2B_256:
        return False
    return blake2b(data, digest_size=DIGEST_SIZE).digest() == cid.digest


def _sum(*parts: Any) -> int:
    """A value of another type is damaged, and so is text that was not UTF-8."""
    try:
        return crc32(b"\0".join([part.encode() if isinstance(part, str) else part for part in parts]))
    except (TypeError, ValueError):
        return WRONG


def head_sum(name: Any, cid: Any) -> int:
    return _sum(name, cid)


def call_sum(func: Any, args: Any, result: Any) -> int:
    return _sum(func, args, result)


def reply_sum(key: Any, service: Any, version: Any, body: Any, created: Any) -> int:
    if not isinstance(body, bytes) or not isinstance(created, float):
        return WRONG
    head = _sum(key, service, version, TIME.pack(created))
    return crc32(body, head) if head >= 0 else WRONG


def is_whole(table: str, row: Sequence[Any]) -> bool:
    """Whether a record of one of the tables has its checksum."""
    if table == "head":
        return bool(row[2] == head_sum(row[0], row[1]))
    if table == "call":
        return bool(row[3] == call_sum(row[0], row[1], row[2]))
    if table == "reply":
        numbers = all(isinstance(value, int | float) for value in row[4:8])
        return numbers and bool(row[8] == reply_sum(row[0], row[1], row[2], row[3], row[5]))
    try:
        return is_node(read_cid(row[0]), row[1])
    except (CidError, TypeError, IndexError):
        return False


class MemoCopy(Copying):
    """Copies what is not damaged. The rest is computed or stored again."""

    def __init__(self) -> None:
        self.copied = 0
        self.damaged = 0

    def copy(self, new: sqlite3.Connection, table: str, row: Sequence[Any]) -> None:
        if is_whole(table, row):
            new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", tuple(row))
            self.copied += 1
        else:
            self.damaged += 1

    def summary(self) -> str:
        return f"{self.copied} records were saved, {self.damaged} were damaged and removed, and what could not be read is lost"
