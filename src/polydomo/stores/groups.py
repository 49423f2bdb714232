"""A group of writes, sorted into batches that a store can execute in one statement.

Few statements matter, because every statement releases Python's GIL, and getting it back from a busy event loop can take milliseconds.
"""

from polydomo.broker.jobs.ops import Collected, Finish, Insert, Op, Progress
from polydomo.stores.checks import progress_checks


class Group:
    """Within a group, no operation depends on another, except that an outcome supersedes earlier updates of the same job."""

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


def progress_values(op: Progress) -> tuple[object, ...]:
    return op.id, op.attempts, op.due, op.story, progress_checks(op)
