"""The message of ``polydomo.submit.many``: several new jobs at once.

The header has the fields of ``polydomo.submit``, for all jobs, and ``jobs``: a list with an object for each, with the fields in which it
differs and ``sizes``, the sizes of the frames of its body. The frames of all bodies follow, joined. Most jobs of the libraries are
``{"id": "...", "sizes": [5]}``.

The answer has ``jobs``, the id of each job in the same order; ``repeated``, the numbers of those that existed already, counted from 0; and
``failed``: the number, the code and the reason of those that were not stored, whose id is "".
"""

from typing import Final

from polydomo.errors import SettingError
from polydomo.limits import MAX_BODY_FRAMES, SUBMIT_PART
from polydomo.model.jobs.messages import Row, Submission
from polydomo.wire.frames import join, split

JOBS: Final = "jobs"
SIZES: Final = "sizes"


def read_submissions(header: Row, content: bytes) -> "list[Submission]":
    """Raises SettingError that names the job."""
    common: Row = {name: value for name, value in header.items() if name != JOBS}
    given = header.get(JOBS)
    if not isinstance(given, list) or not given:
        raise SettingError("jobs: must be a list with an object for each job")
    if len(given) > SUBMIT_PART:
        raise SettingError(f"jobs: {len(given):,} in one message; the limit is {SUBMIT_PART:,} (SUBMIT_PART)")
    joined = b"".join(split(content)) if content else b""
    found: list[Submission] = []
    start = 0
    for number, row in enumerate(given):
        try:
            if not isinstance(row, dict):
                raise SettingError(f"must be an object, not {row!r:.100}")
            fields: Row = {**common, **row}
            frames, start = _frames(fields.pop(SIZES, None), joined, start)
            found.append(Submission(fields, join(frames)))
        except SettingError as error:
            raise SettingError(f"jobs: number {number}: {error}") from None
    if start != len(joined):
        raise SettingError(f"jobs: the sizes add up to {start:,} bytes, and the bodies have {len(joined):,}")
    return found


def _frames(sizes: object, joined: bytes, start: int) -> "tuple[list[bytes], int]":
    """The frames of a body, and where the next one begins."""
    if not isinstance(sizes, list) or not 1 <= len(sizes) <= MAX_BODY_FRAMES:
        raise SettingError(f"sizes: must be a list of 1 to {MAX_BODY_FRAMES:,} sizes, one for each frame")
    frames: list[bytes] = []
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(joined) - start:
            raise SettingError(
                f"sizes: {size!r:.100} is not the size of a frame; {len(joined) - start:,} bytes are left"
            )
        frames.append(joined[start : start + size])
        start += size
    return frames, start


def count_jobs(header: Row) -> int:
    """How many jobs a message has, as far as the quota of its client is concerned."""
    given = header.get(JOBS)
    return max(1, min(len(given), SUBMIT_PART)) if isinstance(given, list) else 1
