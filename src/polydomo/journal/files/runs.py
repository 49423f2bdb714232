"""Run files: for each run a small memory-mapped file with its last sequence number, and what the next start does with it.

The processes of one broker (``polydomo up --processes``) write to one journal. Process 0 keeps its run file and its lock in ``.runs``, each
other one in ``.runs/pN``. Each cleans up after its own earlier runs; process 0 also after processes that there are no longer.

A killed process loses the rows that it had not written, but not what it stored in mapped memory. So the next start
knows exactly which rows are lost: those after the last one in a closed segment, up to the last one that was counted. A
run's file is removed only after a row that states the loss is on disk.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from polydomo.errors import SettingError
from polydomo.journal.files.segments import Segment, all_segments, segment_name, segments
from polydomo.journal.ids import run_name

__all__ = [
    "RUNS",
    "EarlierRun",
    "RunFile",
    "Segment",
    "lock",
    "publish_rest",
    "recover",
    "segment_name",
    "segments",
]

RUNS = ".runs"  # Parquet readers ignore names that begin with a dot

_MAGIC, _RUN, _SEQ, _CLOSED, _STOPPED = range(5)  # places in the file, each of 8 bytes
_SIZE = 5 * 8
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_VALUE = int.from_bytes(b"pdjrnl\x00\x01", "little")


class RunFile:
    """The mapped file of the current run. ``mark[0]`` is its last sequence number.

    On a full disk it exists only in memory until there is space.
    """

    kept = False  # it is on disk. Until then no segment is published, so that every loss can be stated

    def __init__(self, directory: Path, run: int, process: int = 0) -> None:
        self.path = place(directory, process) / run_name(run)
        self._use(mmap.mmap(-1, _SIZE))
        self._view[_RUN] = run
        self._view[_MAGIC] = _VALUE
        self.keep()

    def _use(self, memory: mmap.mmap) -> None:
        self._map = memory
        self._view = memoryview(memory).cast("Q")
        self.mark = self._view[_SEQ : _SEQ + 1]

    def keep(self) -> bool:
        """Puts it on the disk, with a new ``mark``. False if the disk is full: it can be tried again."""
        try:
            with open(self.path, "x+b", buffering=0) as file:
                # Written and synced, not just sized: a mapped page that the disk has no room for would be SIGBUS with the next row.
                if file.write(self._map[:]) != _SIZE:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
                self._use(mmap.mmap(file.fileno(), _SIZE))
        except OSError as error:
            self.kept = False
            self.path.unlink(missing_ok=True)
            if error.errno not in FULL:
                raise
            return False
        self.kept = True
        return True

    def closed(self, seq: int) -> None:
        """Every row up to this one is safe, or covered by one that is."""
        self._view[_CLOSED] = seq

    def stopped(self) -> None:
        self._view[_STOPPED] = 1

    def close(self) -> None:
        self.mark.release()
        self._view.release()
        self._map.close()


class EarlierRun(NamedTuple):
    """An earlier run, and which of its rows are lost: none if ``last`` is below ``first``."""

    run: int
    first: int
    last: int
    stopped: bool  # it ended in an orderly way
    path: Path

    @property
    def lost(self) -> int:
        return self.last - self.first + 1


def place(directory: Path, process: int) -> Path:
    """Where this process of the broker keeps its run file and its lock."""
    return directory / RUNS / f"p{process}" if process else directory / RUNS


def lock(directory: Path, process: int = 0) -> int:
    """Locks the journal for this process of a broker. Raises SettingError if another program has the lock."""
    place(directory, process).mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(place(directory, process) / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise SettingError(
            f"data: another broker writes the journal in {directory}; give each its own with --data"
        ) from None
    return handle


def holds(handle: int, directory: Path, process: int = 0) -> bool:
    """Whether the lock that this process holds is still the one in the directory: False once someone has removed that."""
    try:
        there = os.stat(place(directory, process) / "lock")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # it cannot be known now
    ours = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def recover(directory: Path, process: int = 0, processes: int = 1) -> list[EarlierRun]:
    """Cleans up after earlier runs of this process: finishes publishing, removes torn files. Returns the runs, oldest first, with what each
    lost."""
    found = []
    paths = _run_files(place(directory, process))
    others: list[Path] = []  # of processes that may run now
    if not process:
        for number, folder in _folders(directory):
            (others if number < processes else paths).extend(_run_files(folder))
    if process:
        publish_rest(directory, only={path.name for path in paths})
    else:
        publish_rest(directory, without={path.name for path in others})
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns):
        content = path.read_bytes()
        words = [int.from_bytes(content[i : i + 8], "little") for i in range(0, len(content) - 7, 8)]
        if len(words) != 5 or words[_MAGIC] != _VALUE:
            path.unlink()  # the process was killed while it made the file: nothing had been recorded
            continue
        run = words[_RUN]
        last = max((segment.last for segment in segments(directory, run)), default=0)
        closed = max(words[_CLOSED], last)
        found.append(EarlierRun(run, closed + 1, words[_SEQ], bool(words[_STOPPED]), path))
    return found


def _run_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != "lock" and path.is_file()]


def _folders(directory: Path) -> list[tuple[int, Path]]:
    """Of processes other than 0, by number."""
    found = (directory / RUNS).glob("p*")
    return sorted((int(path.name[1:]), path) for path in found if path.name[1:].isdigit() and path.is_dir())


def publish_rest(
    directory: Path, only: "Collection[str] | None" = None, without: "Collection[str]" = frozenset()
) -> None:
    """The files of a batch are all complete before the first of them is published: if one is published, the others follow.

    This holds for a batch of new rows and for a batch of merged segments. Only the process that has the lock may call it. ``only`` and
    ``without`` name runs: those of another process of the broker are left to that process.
    """
    hidden = [
        segment
        for segment in all_segments(directory, hidden=True)
        if (name := run_name(segment.run)) not in without and (only is None or name in only)
    ]
    published = {(segment.run, *segment.range) for segment in all_segments(directory)} if hidden else set()
    for segment in hidden:
        if (segment.run, *segment.range) in published:
            segment.path.rename(segment.path.with_name(segment.path.name[1:]))
        else:
            segment.path.unlink()
