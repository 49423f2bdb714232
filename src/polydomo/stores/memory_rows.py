"""Copies of jobs and schedules, with their checksums, for the store in memory."""

import copy
import inspect

from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import ScheduleRow
from polydomo.stores import checks
from polydomo.stores.checks import job_values


def attributes(kind: type) -> list[str]:
    """The attributes of a class with slots, whether it is compiled or not."""
    return [name for name, member in vars(kind).items() if inspect.isdatadescriptor(member)]


def job_row(job: Job) -> "tuple[object, ...]":
    return job_values(job)[:21]


def job_checks(job: Job) -> bytes:
    values = job_values(job)
    if any("\0" in value for value in values if isinstance(value, str)):
        raise ValueError("a NUL, which PostgreSQL does not store in a text")
    found = values[21]
    assert isinstance(found, bytes)
    return found


BODY_COLUMN, RESULT_COLUMN = 2, 15
JOB_ATTRIBUTES = attributes(Job)
ROW_ATTRIBUTES = attributes(ScheduleRow)


def job_copy(job: Job) -> Job:
    """``copy.deepcopy`` cannot copy objects of compiled classes."""
    made = Job(job.id, job.service, job.body, job.created)
    for name in JOB_ATTRIBUTES:
        setattr(made, name, getattr(job, name))
    made.story = copy.deepcopy(job.story)
    made.input = None
    return made


def row_copy(row: ScheduleRow) -> ScheduleRow:
    made = ScheduleRow(row.name, row.service, row.body, row.timing, row.zone, row.created)
    for name in ROW_ATTRIBUTES:
        setattr(made, name, getattr(row, name))
    return made


def verified_job(job: Job, stored: bytes, light: bool = False) -> Job:
    """A stored job as the other stores read it: what is not in a column is lost. Without body and result if ``light``."""
    row = list(job_row(job))
    if light:
        row[BODY_COLUMN] = row[RESULT_COLUMN] = b""
    return checks.job_of((*row, stored), light)
