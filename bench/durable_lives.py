"""Durable jobs and schedules in generated journals."""

from typing import Any

import numpy as np

from bench.life import (
    BILLING,
    CODES,
    EV,
    FINISHED,
    JOB_CLIENT,
    KEY_CLIENT,
    MINUTE,
    O_ACCEPT,
    O_FINAL,
    O_RECORD,
    ORIGINS,
    OUTCOMES,
    Array,
    Blocks,
    Life,
    Planted,
    visitor,
)
from polydomo.journal import schema

JOBS = 0.01  # per request of the other services
ONCE_JOB, ONCE_SCHEDULE = 1, 2  # what ``once`` names: the job, or the schedule and the time at which it was due
_HOW = {name: OUTCOMES.index(name) for name in ("accepted", "retry", "done", "dead", "cancelled", "fired", "skipped")}
_OK, _FAILED, _CANCELLED = (CODES.index(name) for name in ("ok", "failed", "cancelled"))
_NO_MORE, _BY_HAND = 9, 10  # REASONS
_JOB, _REQUEST, _TITANIC, _SCHEDULE = (ORIGINS.index(name) for name in ("job", "request", "titanic", "schedule"))


def _of(value: "Array | int", where: Array) -> Any:
    """The chosen values of a column; a number is the same for all."""
    return value[where] if isinstance(value, np.ndarray) else value


class _Jobs:
    """The jobs of ``billing``: most are done at once, some are retried, die, are cancelled or stay open."""

    def __init__(
        self, life: Life, dice: np.random.Generator, blocks: tuple[Blocks, Blocks, Blocks], number: int
    ) -> None:
        self.rows, self.records, self.jobs = blocks
        self.number = number
        self.extra = self.jobs.count  # the next row of ``jobs``
        start, end = life.times
        count = max(20, int(life.requests * JOBS))
        self.id = np.arange(1, count + 1)
        self.created = np.sort(dice.integers(start + 2_000_000, max(start + 3_000_000, end - 200_000_000), count))
        kinds = dice.random(count)
        self.cancelled = kinds < 0.03
        self.open = (kinds >= 0.03) & (kinds < 0.06)
        self.dead = (kinds >= 0.06) & (kinds < 0.12)
        self.attempts = np.select([self.cancelled | self.open, self.dead, kinds < 0.25], [0, 3, 2], 1)
        self.runs = ~self.cancelled & ~self.open
        self.origin = dice.choice([_JOB, _REQUEST, _TITANIC, _SCHEDULE], count)
        self.origin[~self.runs & (self.origin == _REQUEST)] = _JOB
        self.client = dice.integers(1, KEY_CLIENT, count)
        self.key = np.where(self.id % 3 == 0, self.id, 0)
        self.pause = np.where(self.id % 10 == 0, MINUTE, 1_000_000)  # between attempts
        self.takes = np.maximum(100, (dice.lognormal(0, 0.8, count) * 2_000).astype(np.int64))

    def event(
        self,
        where: Array,
        how: str,
        at: Array,
        attempt: "Array | int" = 0,
        code: "Array | int" = 0,
        **more: "Array | int",
    ) -> None:
        """An event of each of these jobs. ``more`` has columns of the row; ``wait`` and ``once`` are of the job's."""
        count = int(np.count_nonzero(where))
        if not count:
            return
        chosen = {name: _of(value, where) for name, value in more.items()}
        self.jobs.add(
            job=self.id[where], created=self.created[where], key=self.key[where], client=self.client[where],
            origin=self.origin[where], schedule=np.where(self.origin[where] == _SCHEDULE, 1, 0), code=_of(code, where),
            wait=chosen.pop("wait", 0), once=chosen.pop("once", 0),
        )  # fmt: skip
        self.rows.add(
            t=_of(at, where), event=EV[schema.JOB], order=O_RECORD, service=BILLING, attempt=_of(attempt, where), outcome=_HOW[how],
            extra=np.arange(self.extra, self.extra + count), **chosen,
        )  # fmt: skip
        self.extra += count

    def live(self) -> None:
        everything = np.ones(self.id.size, bool)
        self.event(everything, "accepted", self.created, size=40 + self.id % 100)
        self.event(self.cancelled, "cancelled", self.created + 500_000, code=_CANCELLED, reason=_BY_HAND, once=ONCE_JOB)
        began = self.created + 1_000
        self.ended = self.created.copy()
        for attempt in (1, 2, 3):
            runs = self.attempts >= attempt
            fails = (self.attempts > attempt) | (self.dead & (attempt == 3))
            self.ended = np.where(runs, began + self.takes, self.ended)
            count = int(np.count_nonzero(runs))
            visitor(
                self.rows, self.records, np.arange(self.number, self.number + count), BILLING, began[runs], self.ended[runs],
                client=JOB_CLIENT, failed=fails[runs].astype(np.int64), job=self.id[runs],
            )  # fmt: skip
            self.number += count
            again = self.attempts > attempt
            self.event(again, "retry", self.ended + 2, attempt, _FAILED, reason=1, wait=self.pause)
            began = self.ended + self.pause
        waited = np.maximum(self.attempts - 1, 0) * self.pause
        self.settled = self.ended + 3
        ends = {"attempt": self.attempts, "wait": waited, "once": ONCE_JOB}
        self.event(self.runs & ~self.dead, "done", self.settled, code=_OK, size=30 + self.id % 50, **ends)
        self.event(self.dead, "dead", self.settled, code=_FAILED, reason=_NO_MORE, **ends)

    def waiting(self) -> None:
        """Clients that wait for the outcome of their job: no worker has their requests."""
        where = self.origin == _REQUEST
        count = int(np.count_nonzero(where))
        numbers = np.arange(self.number, self.number + count)
        self.number += count
        asked, ended, client = self.created[where], self.settled[where] + 4, self.client[where]
        failed = self.dead[where].astype(np.int64)
        about = {"number": numbers, "service": BILLING, "client": client, "connection": client}
        self.rows.add(t=asked, event=EV[schema.ACCEPTED], order=O_ACCEPT, size=60, **about)
        event = np.where(failed, EV[schema.FAILED], EV[schema.FINAL])
        self.rows.add(t=ended, event=event, order=O_FINAL, outcome=1 + failed, reason=failed, **about)
        self.records.add(
            number=numbers, service=BILLING, last_service=BILLING, client=client, accepted=asked, ended=ended, max_attempts=3,
            request_bytes=60, reply_bytes=np.where(failed, 0, 40), outcome=1 + failed, reason=failed, job=self.id[where],
        )  # fmt: skip
        self.rows.add(t=ended, event=FINISHED, order=O_RECORD, number=numbers)

    def schedules(self, start: int, end: int) -> Array:
        """A schedule that is due every minute. Returns when it fired."""
        due = np.arange(start // MINUTE * MINUTE + MINUTE, end, MINUTE)
        skipped = due // MINUTE % 7 == 0
        for how, times in (("fired", due[~skipped]), ("skipped", due[skipped])):
            self.fire(how, times, times + 40)
        fired: Array = due[~skipped]
        return fired

    def fire(self, how: str, due: Array, at: Array) -> None:
        self.jobs.add(created=due, schedule=1, once=ONCE_SCHEDULE)
        extra = np.arange(self.extra, self.extra + due.size)
        self.rows.add(t=at, event=EV[schema.JOB], order=O_RECORD, service=BILLING, outcome=_HOW[how], extra=extra)
        self.extra += due.size


def durable(
    life: Life, dice: np.random.Generator, rows: Blocks, records: Blocks, jobs: Blocks, number: int
) -> tuple[int, Planted]:
    """Durable jobs and a schedule. Returns the next number, and the breaches: jobs with two outcomes, times for which it fired twice."""
    made = _Jobs(life, dice, (rows, records, jobs), number)
    made.live()
    made.waiting()
    start, end = life.times
    fired = made.schedules(start, end)
    planted: Planted = []
    done = np.flatnonzero(made.runs & ~made.dead)
    for i in range(life.breaches):
        twice = made.id == made.id[done[(i + 1) * done.size // (life.breaches + 2)]]
        later = 20 * MINUTE if i % 2 else 1_000  # may be in the next hour
        made.event(twice, "dead", made.settled + later, attempt=3, code=_FAILED, reason=_NO_MORE, once=ONCE_JOB)
        planted.append(("job-one-outcome", life.run, {"run": life.run}))
        due = fired[(i + 1) * fired.size // (life.breaches + 2)][None]
        made.fire("fired", due, due + later)
        planted.append(("schedule-fires-once", life.run, {"run": life.run}))
    return made.number, planted
