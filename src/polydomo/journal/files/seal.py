"""The checksum of a segment. A changed segment is not read: its rows are reported as missing, instead of wrong ones being returned.

A Parquet file ends with its footer, the footer's length and ``PAR1``. Readers find everything from there by absolute positions, so bytes
between the data and the footer are of no concern to them. That is where a segment has its seal: ``PDMO`` and the CRC-32 of all other bytes
of the file. The footer's metadata ``polydomo.sealed`` says that there is one; segments of polydomo 0.2 and older have none.
"""

import os
from pathlib import Path
from struct import Struct
from zlib import crc32

SEALED = "sealed"  # in the metadata, with the prefix ``polydomo.``
KEY = b"polydomo.sealed"
MARK = b"PDMO"
SEAL = Struct("<4sI")
TAIL = Struct("<I4s")  # the length of the footer, and the end of the file
PIECE = 1 << 20


class Damaged(OSError):
    """The file is not as it was written."""


def seal(path: Path) -> None:
    """Adds the seal to a file that was just written."""
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(end - TAIL.size)
        length = TAIL.unpack(file.read(TAIL.size))[0]
        start = end - TAIL.size - length
        file.seek(start)
        footer = file.read()
        file.seek(0)
        found = 0
        left = start
        while left:
            piece = file.read(min(PIECE, left))
            found = crc32(piece, found)
            left -= len(piece)
        file.seek(start)
        file.write(SEAL.pack(MARK, crc32(footer, found)) + footer)


def verify(data: bytes) -> None:
    """Raises Damaged if the content of a segment has changed. Nothing is parsed before this: a changed file can contain anything."""
    if len(data) < TAIL.size + SEAL.size:
        raise Damaged("it was cut off")
    length, end = TAIL.unpack_from(data, len(data) - TAIL.size)
    start = len(data) - TAIL.size - length
    if end != b"PAR1" or start < SEAL.size:
        raise Damaged("it was cut off, or its end has changed")
    mark, found = SEAL.unpack_from(data, start - SEAL.size)
    view = memoryview(data)
    if mark == MARK and crc32(view[start:], crc32(view[: start - SEAL.size])) == found:
        return
    if mark == MARK or KEY in data[start:]:
        raise Damaged("its checksum does not match")


def read_sealed(path: Path) -> bytes:
    """The content of a segment, verified. Raises Damaged or OSError."""
    data = path.read_bytes()
    verify(data)
    return data


def damage(path: Path) -> str:
    """Why a segment must not be read; "" if it is as it was written, or from before there were checksums."""
    try:
        read_sealed(path)
    except OSError as error:
        return str(error)
    return ""
