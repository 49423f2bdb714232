"""A group of writes, sorted by what a store can do in one statement.

One statement for many rows matters: every statement of a driver gives up Python's lock, and getting it back from a busy event loop can take
milliseconds.
"""

from polydomo.broker.jobs.job import DONE, Job, story_text
from polydomo.broker.jobs.ops import Collected, Finish, Insert, Op, Progress


class Group:
    """Within one group no operation depends on another, but that what ends a job supersedes its progress."""

    def __init__(self, ops: list[Op]) -> None:
        self.inserts: list[Insert] = []
        self.finishes: dict[str, Finish] = {}
        self.progress: dict[str, Progress] = {}
        self.collected: list[str] = []  # ids
        self.others: list[Op] = []
        for op in ops:
            if isinstance(op, Insert):
                self.inserts.append(op)
            elif isinstance(op, Finish):
                self.finishes.setdefault(op.job.id, op)
            elif isinstance(op, Progress):
                self.progress[op.id] = op
            elif isinstance(op, Collected):
                self.collected.append(op.id)
            else:
                self.others.append(op)
        for id in self.finishes:
            self.progress.pop(id, None)


def insert_values(job: Job) -> tuple[object, ...]:
    """In the order of the columns of the table ``jobs``."""
    return (
        job.id, job.service, job.body, job.key or None, job.origin, job.digest, job.priority, job.created, job.due, job.expires,
        job.settings(), job.attempts, job.state, job.outcome, job.reason, job.result, job.ended, job.keep, story_text(job.story),
        job.schedule or None, job.fired, 0,
    )  # fmt: skip


def finish_values(job: Job) -> tuple[object, ...]:
    return (
        job.id, job.state, job.outcome, job.reason, job.result, job.ended, job.keep, job.attempts, story_text(job.story),
        int(job.state == DONE),
    )  # fmt: skip


def progress_values(op: Progress) -> tuple[object, ...]:
    return op.id, op.attempts, op.due, op.story
