"""A group of writes, sorted into batches that a store can execute in one statement.

Few statements matter, because every statement releases Python's GIL, and getting it back from a busy event loop can take milliseconds.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from polydomo.broker.flows.ops import Grow
from polydomo.broker.jobs.ops import Collected, Finish, Insert, Op, Progress, PutParts
from polydomo.broker.jobs.part import StoredPart
from polydomo.limits import KIB
from polydomo.stores.checks import progress_checks
from polydomo.stores.flows.steps import FlowSteps
from polydomo.stores.flows.tables import End

T = TypeVar("T")

# Of bodies or results in a statement: its values are copied while the GIL is held, and the event loop waits.
MOST_BYTES = 256 * KIB


class OpGroup:
    """Within a group, no operation depends on another, except that an outcome supersedes earlier updates of the same job."""

    def __init__(self, ops: list[Op]) -> None:
        self.inserts: list[Insert] = []
        self.finishes: dict[str, Finish] = {}
        self.progress: dict[str, Progress] = {}
        self.collected: list[str] = []  # ids
        self.parts: list[StoredPart] = []
        self.others: list[Op] = []
        for op in ops:
            op.forget()
            if isinstance(op, Insert):
                self.inserts.append(op)
            elif isinstance(op, Finish):
                self.finishes.setdefault(op.job.id, op)
            elif isinstance(op, Progress):
                self.progress[op.id] = op
            elif isinstance(op, PutParts):
                self.parts += op.parts
            elif isinstance(op, Collected):
                self.collected.append(op.id)
            else:
                self.others.append(op)
        for id in self.finishes:
            self.progress.pop(id, None)

    def finish_nodes(self, steps: FlowSteps) -> None:
        """Tells flows which of their nodes have ended, after their outcomes are written. The last operation gets what changed: its answer
        comes after those of the others."""
        found = [op for op in self.finishes.values() if op.job.flow and op.done]
        if found:
            ends: dict[str, list[End]] = {}
            for op in found:
                growth = op.growth if isinstance(op, Grow) else None
                ends.setdefault(op.job.flow, []).append((op.job.node, op.job.state, op.job.ended, growth))
            last = max([op.job.ended for op in found])
            jobs = {op.job.id: op.job for op in found}
            settled = found[-1].settled = steps.finished(ends, last, any(op.in_doubt for op in found), jobs)
            if settled is not None:
                for op in found:
                    settled.place(op.job)


def progress_values(op: Progress) -> tuple[object, ...]:
    return op.id, op.attempts, op.due, op.story, progress_checks(op)


def pieces(rows: list[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Cuts rows into statements of at most MOST_BYTES, or of one row.

    >>> list(pieces([1, 2, MOST_BYTES, 3], int)), list(pieces([], int))
    ([[1, 2], [262144], [3]], [])
    """
    start = total = 0
    for at, row in enumerate(rows):
        total += size(row)
        if total > MOST_BYTES and at > start:
            yield rows[start:at]
            start, total = at, size(row)
    if rows:
        yield rows[start:]


def body_size(op: Insert) -> int:
    return len(op.job.body)


def result_size(op: Finish) -> int:
    return len(op.job.result)
