"""The system resources that a broker needs: open files, threads, memory and disk, and error messages with remedies if they are short."""

import errno
import math
import os
from pathlib import Path

from polydomo import limits
from polydomo.errors import SettingError

MORE_FILES = "raise the limit with `ulimit -n 4096`, or with LimitNOFILE= in a systemd unit"

REMEDIES = {
    errno.EMFILE: f"this process has too many open files; {MORE_FILES}",
    errno.ENFILE: "this machine has too many open files; raise the limit with `sysctl fs.file-max`",
    errno.ENOMEM: "this machine has no memory left; stop other programs, or raise the limit of this process or container",
    errno.ENOBUFS: "this machine has no memory left for sockets; stop other programs, or raise the limit of this process or container",
    errno.EAGAIN: "this user cannot start more threads; raise the limit with `ulimit -u`, or with TasksMax= in a systemd unit",
    errno.ENOSPC: "the disk is full; make room, or choose another directory with --data",
    errno.EDQUOT: "the disk quota is used up; make room, or choose another directory with --data",
}


def remedy(error: BaseException) -> str:
    """Why a system call failed, and what to do about it.

    >>> remedy(OSError(errno.EACCES, "Permission denied"))
    'Permission denied'
    """
    if isinstance(error, MemoryError):
        return REMEDIES[errno.ENOMEM]
    if isinstance(error, OSError):
        return REMEDIES.get(error.errno or 0) or error.strerror or str(error)
    return str(error) or type(error).__name__


def need_files(wanted: int = limits.START_FILES) -> None:
    """Raises SettingError unless ``wanted`` more files can be opened now."""
    opened: list[int] = []
    try:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        opened.append(null)
        opened.extend(os.dup(null) for _ in range(wanted - 1))
    except OSError as error:
        raise SettingError(
            f"only {len(opened)} more files can be opened, and the broker needs {wanted} to start: {remedy(error)}"
        ) from None
    finally:
        for each in opened:
            os.close(each)


def shortage() -> OSError | None:
    """The error if no file can be opened now; None if one can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error
    return None


def open_files() -> int:
    """The number of open files; 0 if the system does not report it."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


# Control groups: the controller ("": version 2), where its groups are, and the files that limit the memory and the CPU time of a group.
CGROUPS = {
    "": ("/sys/fs/cgroup", "memory.max", "cpu.max"),
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", ""),
    "cpu": ("/sys/fs/cgroup/cpu", "", "cpu.cfs_quota_us"),
}
PERIOD = "cpu.cfs_period_us"  # of version 1: the time for which the quota is
UNLIMITED = 1 << 60  # cgroup version 1 reports a huge number if there is no limit


def available_memory() -> int:
    """The memory that this process may use, in bytes: of the machine, or of its control group if that has a limit; 0 if unknown."""
    limits = [_number(group / memory) for group, memory, _ in _cgroups() if memory]
    return min([size for size in (_machine(), *limits) if 0 < size < UNLIMITED], default=0)


def available_cores() -> int:
    """The cores that this process may use: those it may run on, or the quota of CPU time of its control group, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_quota(group / cpu) for group, _, cpu in _cgroups() if cpu]
    return min([cores, *(math.ceil(quota) for quota in quotas if quota > 0)])


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _cgroups() -> list[tuple[Path, str, str]]:
    """This process's control groups, from its own groups up to the roots, each with the names of its files. A container sees its own as the
    root."""
    found = [(Path(root), memory, cpu) for root, memory, cpu in CGROUPS.values()]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, own = line.split(":", 2)
        for controller in CGROUPS.keys() & set(controllers.split(",")):
            root, memory, cpu = CGROUPS[controller]
            place = Path(root) / own.strip().lstrip("/")
            while place != Path(root) and place.is_relative_to(root):
                found.append((place, memory, cpu))
                place = place.parent
    return found


def _number(file: Path) -> int:
    try:
        text = file.read_text().strip()
        return int(text) if text.isdigit() else 0  # "max"
    except OSError:
        return 0


def _quota(file: Path) -> float:
    """In cores; 0 if there is none. Version 2 has both numbers in one file."""
    try:
        quota, *rest = file.read_text().split()
        period = rest[0] if rest else (file.parent / PERIOD).read_text().strip()
        return int(quota) / int(period) if quota.isdigit() else 0.0  # "max", "-1"
    except (OSError, ValueError, ZeroDivisionError):
        return 0.0
