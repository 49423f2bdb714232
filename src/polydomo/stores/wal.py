"""Repairs SQLite's write-ahead log after damage.

SQLite verifies the log when it opens a file that was not closed, and ignores everything after the first damaged frame without a message:
one wrong bit can take back thousands of transactions that were on disk. Each frame has a checksum that continues that of the frame before,
so the damaged frames can be found. They are removed, and the log is written again. The page of a removed frame is an older one; the check
of the whole file finds pages that do not fit together.

The last transaction may be incomplete after a power failure. That is not damage.

The log's format: https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

import os
import sys
from pathlib import Path
from struct import Struct, unpack_from

HEADER = Struct(">IIIIIIII")  # magic number, format, page size, checkpoints, two salts, two checksums
FRAME = Struct(">IIIIII")  # page, pages of the file after a commit or 0, two salts, two checksums
PAIR = Struct(">II")
LITTLE, BIG = 0x377F0682, 0x377F0683  # magic numbers: the byte order of checksums
FORMAT = 3_007_000
PAGE = 4096  # SQLite's default, which all our files have
WORDS = PAGE // 4
MASK = 0xFFFFFFFF

Sums = tuple[int, int]


def log_of(path: Path) -> bytes:
    """The log of a file that was not closed; empty if there is none."""
    try:
        return Path(f"{path}-wal").read_bytes()
    except OSError:
        return b""


def commits(log: bytes) -> list[int]:
    """The numbers of the frames that end a transaction, counted from 1."""
    salts = _salts(log)
    found: list[int] = []
    last = 0  # frame of this log; the rest is left over from before the last checkpoint, with other salts
    for number, start in enumerate(range(HEADER.size, len(log) - FRAME.size - PAGE + 1, FRAME.size + PAGE), 1):
        _, pages, *here, _, _ = FRAME.unpack_from(log, start)
        if here == salts:
            last = number
        if pages:
            found.append(number)
    return [number for number in found if number <= last]


def _salts(log: bytes) -> list[int]:
    """Of the header, or of the first frame if the header is damaged."""
    if len(log) < HEADER.size + FRAME.size:
        return [0, 0]
    magic, *_, first, second, one, two = HEADER.unpack_from(log)
    if _sums(_order(magic), log, 0, 6, (0, 0)) == (one, two):
        return [first, second]
    return list(FRAME.unpack_from(log, HEADER.size)[2:4])


def _order(magic: int) -> str:
    return "<" if magic == LITTLE else ">" if magic == BIG else "<" if sys.byteorder == "little" else ">"


def _sums(order: str, data: bytes, start: int, words: int, seed: Sums) -> Sums:
    first, second = seed
    numbers = iter(unpack_from(f"{order}{words}I", data, start))
    for one, two in zip(numbers, numbers, strict=True):
        first = (first + one + second) & MASK
        second = (second + two + first) & MASK
    return first, second


def _frame_sums(order: str, log: bytes, start: int, seed: Sums) -> Sums:
    return _sums(order, log, start + FRAME.size, WORDS, _sums(order, log, start, 2, seed))


def undamaged(log: bytes) -> list[int]:
    """The positions of the frames that are as they were written."""
    last = (commits(log) or [0])[-1]
    magic, *_, one, two = HEADER.unpack_from(log)
    order = _order(magic)
    salts = _salts(log)
    # What the next checksum continues: as stored, and as computed, since either can be damaged.
    seeds = [(one, two), _sums(order, log, 0, 6, (0, 0))]
    found: list[int] = []
    doubtful = -1  # the frame before, if only its own checksum can be damaged
    for start in range(HEADER.size, HEADER.size + last * (FRAME.size + PAGE), FRAME.size + PAGE):
        _, _, *here, one, two = FRAME.unpack_from(log, start)
        computed = [_frame_sums(order, log, start, seed) for seed in dict.fromkeys(seeds)]
        right = (one, two) in computed
        if right and (one, two) != computed[0] and doubtful >= 0:
            found.append(doubtful)
        if right and here == salts:
            found.append(start)
        doubtful = -1 if right or here != salts else start
        seeds = [(one, two), computed[0]]
    return _whole_end(log, found)


def _whole_end(log: bytes, frames: list[int]) -> list[int]:
    """Leaves out the last transaction if it is incomplete. It may not have been on disk when the power failed; if so, it was never
    acknowledged."""
    ends = [0, *commits(log)]
    if len(ends) == 1:
        return []
    last = HEADER.size + ends[-2] * (FRAME.size + PAGE)
    before = [start for start in frames if start < last]
    return frames if len(frames) - len(before) == ends[-1] - ends[-2] else before


def lost(log: bytes, valid: int) -> int:
    """How many transactions that were on disk are missing, if SQLite found ``valid`` frames."""
    return max(0, sum(1 for number in commits(log) if number > valid) - 1)


def repair(path: Path, log: bytes) -> int:
    """Writes the log of ``path`` again, from the undamaged frames of ``log``. Returns how many frames were left out."""
    frames = undamaged(log)
    order = "<" if sys.byteorder == "little" else ">"
    magic = LITTLE if order == "<" else BIG
    head = HEADER.pack(magic, FORMAT, PAGE, 0, *_salts(log), 0, 0)[:24]
    sums = _sums(order, head, 0, 6, (0, 0))
    made = [head, PAIR.pack(*sums)]
    for start in frames:
        sums = _frame_sums(order, log, start, sums)
        made += (log[start : start + 16], PAIR.pack(*sums), log[start + FRAME.size : start + FRAME.size + PAGE])
    target = Path(f"{path}-wal")
    with open(
        f"{target}.repaired", "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)
    ) as file:
        file.write(b"".join(made))
        file.flush()
        os.fsync(file.fileno())
    Path(f"{path}-shm").unlink(missing_ok=True)
    os.replace(f"{target}.repaired", target)
    return (commits(log) or [0])[-1] - len(frames)
