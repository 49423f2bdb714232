"""Checksums of stored jobs and schedules: data that changed on disk is found when it is read.

A record has one field ``checks``: CRC-32 of the record without body and result, of the body, and of the result. The first covers
the other two, so that lists, which leave out bodies and results, are verified as well. A CRC-32 finds every change of up to 32 adjacent
bits and misses one in four thousand million others. It protects against damage, not against a person who can write to the store. Records
of polydomo 0.2 or older get their checksums when the tables are upgraded.
"""

import json
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any
from zlib import crc32

from polydomo.broker.jobs.job import DONE, OPEN, Job, key_within, story_of, story_text
from polydomo.broker.jobs.ops import Loaded, Progress, ScheduleRow
from polydomo.model.service_limits import ServiceLimits, read_limits

CHECKS = Struct("<III")
SCHEDULE_NUMBERS = Struct("<qddd")
WHOLE = Struct("<I")

RECORD = "the stored job is damaged"
BODY = "the stored body is damaged"
RESULT = "the stored result is damaged"
SCHEDULE = "the stored schedule is damaged; remove it and add it again"
pack = Struct("<qdddqdddII").pack  # the numbers of a job
LATEST = 2.0**37  # seconds since the epoch: a time that can still be shown

Row = Sequence[Any]  # in the order of ``sql_ops.COLUMNS``, without ``checks``


def _sum(numbers: bytes, service: bytes, digest: bytes, text: "tuple[str, ...]") -> int:
    return crc32(b"\0".join((numbers, service, digest, "\0".join(text).encode())))


def _row_sum(row: Row, body: int, result: int) -> int:
    (
        id, service, _, key, origin, digest, priority, created, due, expires, settings, attempts, state, outcome, reason, _, ended, keep,
        story, schedule, fired,
    ) = row  # fmt: skip
    numbers = pack(priority, created, due, expires, attempts, ended, keep, fired, body, result)
    return _sum(
        numbers, service, digest, (id, key or "", origin, settings, state, outcome, reason, story, schedule or "")
    )


def job_values(job: Job) -> tuple[object, ...]:
    """A job as a row of ``sql_ops.COLUMNS``, with its checksums, and ``collected``. A job with a result is stored without its body."""
    settings = _settings(job)
    story = story_text(job.story) if job.story else ""
    key = job.scoped_key()
    body = b"" if job.state == DONE else job.body
    return (
        job.id, job.service, body, key or None, job.origin, job.digest, job.priority, job.created, job.due, job.expires, settings,
        job.attempts, job.state, job.outcome, job.reason, job.result, job.ended, job.keep, story, job.schedule or None, job.fired,
        _job_checks(job, settings, story, key), 0,
    )  # fmt: skip


def finish_values(job: Job) -> tuple[object, ...]:
    """What an outcome changes: id, state, outcome, reason, result, end, keep, attempts, story, whether the body is removed, due, checks."""
    story = story_text(job.story) if job.story else ""
    return (
        job.id, job.state, job.outcome, job.reason, job.result, job.ended, job.keep, job.attempts, story, int(job.state == DONE), job.due,
        _job_checks(job, _settings(job), story, job.scoped_key()),
    )  # fmt: skip


def _job_checks(job: Job, settings: str, story: str, key: str) -> bytes:
    body = job.body_sum if job.state != DONE else 0  # the body of a job with a result is removed
    result = crc32(job.result) if job.result else 0
    numbers = pack(
        job.priority, job.created, job.due, job.expires, job.attempts, job.ended, job.keep, job.fired, body, result
    )
    text = (job.id, key, job.origin, settings, job.state, job.outcome, job.reason, story, job.schedule)
    return CHECKS.pack(_sum(numbers, job.service, job.digest, text), body, result)


def _settings(job: Job) -> str:
    """The stored text of the settings; computes the checksum of the body as well, if that has not been done."""
    if job.body_sum < 0:
        job.body_sum = crc32(job.body)
    if job.stored_settings is None:
        job.stored_settings = job.settings()
    return job.stored_settings


def progress_checks(op: Progress) -> bytes:
    """The checksums of an open job after this update. The job may have changed since."""
    job = op.job
    settings = _settings(job)
    numbers = pack(job.priority, job.created, op.due, job.expires, op.attempts, 0.0, 0.0, job.fired, job.body_sum, 0)
    text = (job.id, job.scoped_key(), job.origin, settings, OPEN, "", "", op.story, job.schedule)
    return CHECKS.pack(_sum(numbers, job.service, job.digest, text), job.body_sum, 0)


def first_checks(row: Row) -> bytes:
    """The checksums of a record that has none yet; empty if it cannot be a job."""
    try:
        _job(row)
        body, result = crc32(row[2]), crc32(row[15])
        return CHECKS.pack(_row_sum(row, body, result), body, result)
    except Exception:  # a value of another type
        return b""


def job_damage(row: Row, checks: bytes, light: bool) -> str:
    """Why a stored job cannot be used; "" if it can. ``light``: the row has neither body nor result."""
    try:
        whole, body, result = CHECKS.unpack(checks)
        if _row_sum(row, body, result) != whole:
            return RECORD
        if light:
            return ""
        if crc32(row[2]) != body:
            return BODY
        return RESULT if crc32(row[15]) != result else ""
    except Exception:  # a value of another type, or out of range
        return RECORD


def job_of(stored: Row, light: bool = False) -> Job:
    """A job from a row of COLUMNS. If it is damaged, the job is dead, with that reason, and has neither body nor result."""
    row = stored[:-1]
    damage = job_damage(row, stored[-1], light)
    if damage != RECORD:
        job = _job(row)
        if damage:
            job.condemn(damage)
        return job
    service = row[1] if isinstance(row[1], bytes) else b""
    job = Job(row[0] if isinstance(row[0], str) else repr(row[0]), service, b"", _time(row[7]))
    job.ended = _time(row[16])
    job.stored_settings = ""
    job.condemn(damage)
    return job


def _time(value: Any) -> float:
    """A time of a damaged record, if it can be one."""
    return value if isinstance(value, float) and 0.0 <= value < LATEST else 0.0


def _job(row: Row) -> Job:
    job = Job(row[0], bytes(row[1]), bytes(row[2]), row[7])
    job.key = key_within(row[3] or "")
    job.origin = row[4]
    job.digest = bytes(row[5])
    job.priority, job.due, job.expires = row[6], row[8], row[9]
    job.stored_settings = row[10]
    job.configure(row[10])
    job.attempts, job.state, job.outcome, job.reason, job.result = row[11], row[12], row[13], row[14], bytes(row[15])
    job.ended, job.keep, job.story = row[16], row[17], story_of(row[18])
    job.schedule, job.fired = row[19] or "", row[20]
    job.restore_waits()
    return job


def schedule_checks(row: ScheduleRow, next: float, fired: float) -> bytes:
    numbers = SCHEDULE_NUMBERS.pack(row.priority, row.created, next, fired)
    text = "\0".join((row.name, row.timing, row.zone, row.missed, row.settings))
    return WHOLE.pack(crc32(b"%b%b\0%b\0%b" % (numbers, row.service, row.body, text.encode())))


def schedule_of(stored: Row) -> ScheduleRow:
    """A schedule from a row of SCHEDULE_COLUMNS. If it is damaged, it says so."""
    name = stored[0] if isinstance(stored[0], str) else repr(stored[0])
    try:
        row = ScheduleRow(name, bytes(stored[1]), bytes(stored[2]), stored[3], stored[4], stored[8])
        row.missed, row.priority, row.settings, row.next = stored[5], stored[6], stored[7], stored[9]
        fired, checks = stored[10], stored[11]
        if schedule_checks(row, row.next, fired) != bytes(checks):
            row.damage = SCHEDULE
    except Exception:  # a value of another type, or out of range
        row = ScheduleRow(name, b"", b"", "", "", 0.0)
        row.damage = SCHEDULE
    return row


def pause_checks(service: bytes) -> bytes:
    return WHOLE.pack(crc32(service))


LIMIT_COLUMNS = "service, limits, checks"


def limits_table(schema: str, blob: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {schema}limits (service TEXT PRIMARY KEY, limits TEXT NOT NULL, checks {blob} NOT NULL);\n"


def limits_text(limits: ServiceLimits) -> str:
    return json.dumps(limits.to_row(), separators=(",", ":"))


def limits_checks(pattern: str, text: str) -> bytes:
    return WHOLE.pack(crc32(f"{pattern}\0{text}".encode("utf-8", "surrogateescape")))


def load_limits(loaded: Loaded, rows: Iterable[Row]) -> None:
    """Damaged rows are left out, and named."""
    for pattern, text, checks in rows:
        try:
            if limits_checks(pattern, text) != bytes(checks):
                raise ValueError
            loaded.limits[pattern] = read_limits(json.loads(text))
        except Exception:  # a value of another type, or out of range
            loaded.notes.append(f"the stored limits of {pattern!r} are damaged: set them again with `polydomo limit`")


def load_paused(loaded: Loaded, rows: Iterable[Row]) -> None:
    """Damaged rows are left out, and named."""
    for service, checks in rows:
        if isinstance(service, bytes) and checks == pause_checks(service):
            loaded.paused.append(service)
        else:
            loaded.notes.append(f"the stored pause of service {service!r} is damaged: pause the service again")
