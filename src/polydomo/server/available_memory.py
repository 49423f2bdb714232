"""The memory available to this process: the machine's, or the container's limit if that is lower."""

from pathlib import Path

CGROUP_FILES = (
    "/sys/fs/cgroup/memory.max",  # version 2
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",  # version 1
)
UNLIMITED = 1 << 60  # cgroup version 1 reports a huge number if there is no limit


def available_memory() -> int:
    """Bytes; 0 if the system does not report it."""
    found = [size for size in (_machine(), *map(_limit, _cgroups())) if 0 < size < UNLIMITED]
    return min(found, default=0)


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


def _cgroups() -> list[str]:
    """The limit files of this process's control groups, from its own group up to the root."""
    found = list(CGROUP_FILES)
    try:
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return found
    place = Path("/sys/fs/cgroup") / own.strip().lstrip("/")
    while place != Path("/sys/fs/cgroup") and place.is_relative_to("/sys/fs/cgroup"):
        found.append(str(place / "memory.max"))
        place = place.parent
    return found


def _limit(file: str) -> int:
    try:
        text = Path(file).read_text().strip()
        return int(text) if text.isdigit() else 0  # "max"
    except OSError:
        return 0
