"""Which segments can be read: found out before Spark reads them, because one damaged file would fail the whole job."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from polydomo.journal import schema
from polydomo.journal.reading.reader import open_segment
from polydomo.pipeline.segments import largest, parse
from polydomo.pipeline.storage import has_scheme, local_path, storage_for

READERS = 8  # threads that read footers


def readable(paths: Sequence[str], problems: list[str], read: "set[str]") -> list[str]:
    """The readable segments. ``problems`` gets a line for each of the others, ``read`` the paths whose rows are included.

    A segment that has gone since it was listed was merged into a larger one, which is read instead, or removed by retention.
    """
    with ThreadPoolExecutor(READERS) as pool:
        answers = list(pool.map(_look, paths))
    good: list[str] = []
    for path, (found, problem) in zip(paths, answers, strict=True):
        if problem and problem not in problems:
            problems.append(problem)
        if found:
            good.append(found)
            read.add(path)
    if good == list(paths):
        return good
    known = [segment for path in dict.fromkeys(good) if (segment := parse(path)) is not None]
    return [segment.path for segment in largest(known)]


def _look(path: str) -> tuple[str, str]:
    """The path to read and a line about it; both may be empty."""
    found = path
    try:
        if has_scheme(path):
            footer = storage_for(path).footer(path)
        else:
            wanted = Path(local_path(path))
            file, place = open_segment(wanted)
            if file is None:
                return "", ""
            footer = file.metadata
            found = path if place == wanted else str(place)
        version = int((footer.metadata or {}).get(b"polydomo.version", b"1"))
    except FileNotFoundError:
        return "", ""
    except (OSError, ValueError, pa.ArrowException) as error:
        return "", f"{path}: skipped: cannot be read: {str(error).splitlines()[0]}"
    if version > schema.VERSION:
        return found, (
            f"{path}: version {version} of the schema is newer than the one that this program knows: unknown columns are ignored"
        )
    return found, ""
