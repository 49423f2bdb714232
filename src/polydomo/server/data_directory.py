"""The data directory: it belongs to the broker's user, symbolic links in it are not followed, and each store has a share of its disk."""

import logging
import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from polydomo.errors import SettingError
from polydomo.limits import DISK_JOBS, DISK_JOURNAL, DISK_MEMO, DISK_PART
from polydomo.server import logs
from polydomo.server.connections import listening
from polydomo.server.logs import say

LOG = logs.get("server")


def prepare_data(directory: str) -> Path:
    """Makes the data directory. Raises SettingError if it cannot be written to, or has symbolic links; warns if other users can write to
    it. The directory itself may be a symbolic link."""
    path = Path(directory)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.unlink(missing_ok=True)  # left over from a broker that was killed
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        probe.unlink()
        with os.scandir(path) as entries:
            links = sorted(entry.name for entry in entries if entry.is_symlink())
        found = path.stat()
    except OSError as error:
        raise SettingError(f"data: cannot write to {directory}: {listening.reason(error)}") from None
    if links:
        raise SettingError(
            f"data: {path / links[0]} is a symbolic link, which the broker does not follow; move the file there, or use another "
            "data directory"
        )
    exposed = exposure(path, found)
    if exposed is not None:
        say(LOG, logging.WARNING, exposed.text, data=directory, **exposed.facts)
    return path


class Exposure(NamedTuple):
    """Why other users can change what the broker stores."""

    text: str
    facts: dict[str, object]


def exposure(path: Path, found: os.stat_result) -> Exposure | None:
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return Exposure(
            "other users can write to the data directory, and so replace jobs, results and the journal",
            {"mode": oct(stat.S_IMODE(found.st_mode)), "remedy": f"chmod go-w {path}"},
        )
    if found.st_uid not in (os.geteuid(), 0):
        return Exposure(
            "the data directory belongs to another user, who can replace jobs, results and the journal",
            {"owner": found.st_uid},
        )
    return None


class DiskShares(NamedTuple):
    """The most bytes that each store uses on the disk of the data directory; 0: no limit."""

    memo: int
    jobs: int
    journal: int


def shares_of(directory: str, limit: int) -> DiskShares:
    """``limit`` is ``limits.max_disk``. By default, the stores share most of the space that is free or that they use already."""
    if not limit:
        try:
            limit = round((shutil.disk_usage(directory).free + used_bytes(Path(directory))) * DISK_PART)
        except OSError:
            return DiskShares(0, 0, 0)
    return DiskShares(round(limit * DISK_MEMO), round(limit * DISK_JOBS), round(limit * DISK_JOURNAL))


def used_bytes(directory: Path) -> int:
    """Bytes of all files below a directory. Files that are removed meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(directory, onerror=None):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total
