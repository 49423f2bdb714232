"""The lives of brokers as columns of numbers, which ``generate_journal.py`` writes as a journal. Every rule can be broken on purpose."""

from typing import Any

import numpy as np

from bench.durable_lives import durable
from bench.flow_lives import flows
from bench.life import (
    ABSENT,
    CLIENTS,
    EV,
    FAR,
    FINISHED,
    FRAGILE,
    JOB_FIELDS,
    KEY_CLIENT,
    KEY_HOLDER,
    LANES,
    LEVELS,
    LONG,
    LOST_ROWS,
    MEMO_STORE,
    MESSAGE_FIELDS,
    O_ACCEPT,
    O_DISPATCH,
    O_FINAL,
    O_LOST,
    O_PARTIAL,
    O_QUEUE,
    O_RECORD,
    RECORD_FIELDS,
    SERVED,
    SERVICES,
    SPARE_CREDIT,
    START,
    Array,
    Blocks,
    Changes,
    Life,
    Made,
    Plant,
    Planted,
    spare,
    visitor,
)
from bench.shared_lives import keyed, memoised
from polydomo.journal import schema


def make(life: Life, dice: np.random.Generator, plant: "Plant") -> Made:
    return _Making(life, dice).made(plant)


class _Making:
    """One life: its events are drawn at random and then written step by step."""

    def __init__(self, life: Life, dice: np.random.Generator) -> None:
        self.life = life
        self.dice = dice
        self.rows = Blocks(MESSAGE_FIELDS)
        self.records = Blocks(RECORD_FIELDS)
        self.jobs = Blocks(JOB_FIELDS)
        self.jobs.add(job=0)  # ``extra`` 0 is none
        self.start = START + int(life.begins * 1e6)
        self.end = self.start + int(life.seconds * 1e6)
        self.spares = KEY_HOLDER
        self.offered = LANES + 1
        self.next_number = life.requests + 1

    def made(self, plant: "Plant") -> Made:
        self._draw()
        self._lanes()
        self._peers()
        self._accepted()
        self._replies()
        self._forwards()
        self._losses()
        self._others()
        self._recorded()
        self._fragile()
        self._long()
        self.next_number = memoised(self.life, self.dice, self.rows, self.records, self.next_number)
        self.next_number, again = durable(self.life, self.dice, self.rows, self.records, self.jobs, self.next_number)
        self.next_number = keyed(self.life, self.rows, self.records, self.jobs, self.next_number)
        self.next_number, early, moving = flows(
            self.life, self.dice, self.rows, self.records, self.jobs, self.next_number, moves=self.life.bridge
        )
        leaving = self._bridge()
        planted, changes = self._broken(plant)
        planted += [*again, *early]
        if self.life.loses:
            at = np.array([(self.start + self.end) // 2])
            self.rows.add(t=at, event=EV[schema.MISSING], order=98, reason=7, covers_run=self.life.run)
        if not self.life.killed:
            self.rows.add(t=np.array([self.end + 10_000_000]), event=EV[schema.STOPPED], order=99)
        made = finish(self.life, self.rows.done(), self.records.done(), self.jobs.done(), changes, planted, leaving)
        made.moving = moving
        return made

    def _draw(self) -> None:
        """Draws the requests: service, time, client and fate."""
        n, dice, life = self.life.requests, self.dice, self.life
        kinds = dice.random(n)
        self.service = dice.integers(0, SERVED, n)
        self.service[kinds < 0.01] = ABSENT
        if life.bridge:
            self.service[(kinds >= 0.01) & (kinds < 0.03)] = FAR
        self.arrive = np.sort(dice.integers(self.start + 1_000_000, self.end - 1_000_000, n))
        self.client = dice.integers(1, KEY_CLIENT, n)
        self.number = np.arange(1, n + 1)
        self.size = dice.integers(20, 2000, n)
        means = np.array([150, 2500, 4000, 900, 600, 1500, 3000, 1])
        self.takes = np.maximum(20, (dice.lognormal(0, 0.8, n) * means[self.service]).astype(np.int64))
        plain = self.service < SERVED
        self.chained = plain & (kinds > 0.94)
        self.errs = plain & ~self.chained & (kinds > 0.93)
        aside = plain & (kinds > 0.90) & (kinds <= 0.93)  # taken by the spare at once
        share = min(0.3, max(0.002, 25 * life.breaches / n))  # of losses: enough of them for all that is to be planted
        self.lost = plain & (kinds > 0.90 - share) & (kinds <= 0.90)
        self.in_lane = plain & ~aside
        self.got = self.service != ABSENT

    def _lanes(self) -> None:
        """Assigns workers and times to requests: each lane is a queue, and gets a new worker each time it loses one."""
        n = self.life.requests
        lane = self.service * LANES + self.dice.integers(0, LANES, n)
        self.began = self.arrive.copy()
        self.stopped = self.began + self.takes
        for one in range(SERVED * LANES):
            mine = np.flatnonzero(self.in_lane & (lane == one))
            if mine.size:
                work = self.takes[mine] + 2  # a worker is given the next one two microseconds after it was free
                total = np.cumsum(work)
                over = total + np.maximum.accumulate(self.arrive[mine] - (total - work))
                self.began[mine] = over - work
                self.stopped[mine] = over - 2
        order = np.lexsort((self.began, lane))
        order = order[self.in_lane[order]]
        generation = np.zeros(n, np.int64)
        flags = self.lost[order].astype(np.int64)
        before = np.cumsum(flags) - flags
        self.lanes, starts = np.unique(lane[order], return_index=True)
        earlier = before - np.repeat(before[starts], np.diff([*starts, order.size]))  # losses of the lane
        generation[order] = earlier
        self.most = int((earlier + flags).max(initial=0)) + 1  # workers of a lane, with the one after the last loss
        first = self.spares + 1
        self.worker = np.where(self.in_lane, first + lane * self.most + generation, spare(self.service))
        self.worker[self.service == ABSENT] = 0
        self.connection = self.worker + CLIENTS
        self.next_worker = first + SERVED * LANES * self.most + 1

    def _peers(self) -> None:
        """The run begins; clients and workers connect."""
        rows, start = self.rows, self.start
        run, first, last = self.life.covers
        level = LEVELS.index(self.life.level)
        covers = {"covers_run": run, "covers_first": first, "covers_last": last}
        rows.add(t=start, event=EV[schema.STARTED], level=level, reason=5, **covers)
        rows.add(t=start + 1, event=EV[schema.CONNECTED], connection=np.arange(1, CLIENTS + 1))
        self._worker(start + 1, np.arange(1, len(SERVICES) + 1), np.arange(len(SERVICES)), credit=SPARE_CREDIT)
        self._worker(start + 1, np.array([MEMO_STORE, KEY_HOLDER]), -1, credit=SPARE_CREDIT)
        self._worker(start + 1, self.spares + 1 + self.lanes * self.most, self.lanes // LANES, credit=1, auto=1)

    def _worker(self, t: Any, worker: Any, service: Any, order: int = 0, **asks: int) -> None:
        """A worker connects, and registers a moment later."""
        connection = np.asarray(worker) + CLIENTS
        later = 0 if order else 1
        self.rows.add(t=t, event=EV[schema.CONNECTED], order=order, connection=connection)
        self.rows.add(
            t=np.asarray(t) + later, event=EV[schema.REGISTERED], order=order + 1 if order else 0, connection=connection,
            worker=worker, service=service, **asks,
        )  # fmt: skip

    def _of(self, where: Array, event: str, **more: Any) -> dict[str, Any]:
        """Columns of a message about each of these requests."""
        about = {"client": self.client, "number": self.number, "service": self.service}
        given = {**about, **more}
        return {
            "event": EV[event],
            **{name: value[where] if np.ndim(value) else value for name, value in given.items()},
        }

    def _accepted(self) -> None:
        rows, everything = self.rows, np.ones(self.life.requests, bool)
        asked = {"t": self.arrive, "connection": self.client, "workers": self.offered}
        rows.add(**self._of(everything, schema.ACCEPTED, order=O_ACCEPT, size=self.size, **asked))
        waits = self.in_lane & (self.began > self.arrive)
        rows.add(**self._of(waits, schema.QUEUED, order=O_QUEUE, queue=1 + self.number % 7, **asked))
        rows.add(
            **self._of(
                self.got, schema.DISPATCHED, t=self.began, order=O_DISPATCH, connection=self.connection, worker=self.worker,
                attempt=1, size=self.size,
            )
        )  # fmt: skip

    def _replies(self) -> None:
        rows, got = self.rows, self.got
        rows.add(
            **self._of(
                ~got, schema.FAILED, t=self.arrive + 5, order=O_FINAL, connection=self.client, outcome=3, reason=2
            )
        )
        held = {"worker": self.worker, "attempt": 1}
        self.parts = got & ~self.lost & ~self.chained & (self.takes > 1000) & (self.number % 5 == 0)
        partial = {"t": self.began + 300, "order": O_PARTIAL, "connection": self.connection, "size": 100}
        rows.add(**self._of(self.parts, schema.PARTIAL, **partial, **held))
        self.ok = got & ~self.lost & ~self.chained & ~self.errs
        ends = {"t": self.stopped, "order": O_FINAL, "connection": self.client, "released": 1}
        rows.add(**self._of(self.ok, schema.FINAL, size=self.size // 2, outcome=1, **ends, **held))
        rows.add(**self._of(self.errs, schema.FAILED, outcome=2, reason=1, **ends, **held))

    def _forwards(self) -> None:
        """Forwarded requests: the next service's spare has them for as long again."""
        rows, chained = self.rows, self.chained
        self.then = (self.service + 1) % SERVED
        self.second = self.stopped + 3
        self.over = self.second + self.takes // 2 + 10
        target = {"service": self.then}
        passed = {
            "t": self.stopped,
            "order": O_FINAL,
            "connection": self.connection,
            "worker": self.worker,
            "attempt": 1,
            "released": 1,
        }
        rows.add(**self._of(chained, schema.FORWARDED, queue=1, workers=self.offered, **passed, **target))
        other = spare(self.then)
        taken = {
            "t": self.second,
            "order": O_DISPATCH,
            "connection": other + CLIENTS,
            "worker": other,
            "attempt": 1,
            "hop": 1,
        }
        rows.add(**self._of(chained, schema.DISPATCHED, size=self.size, **taken, **target))
        ended = {
            "t": self.over,
            "order": O_FINAL,
            "connection": self.client,
            "worker": other,
            "attempt": 1,
            "hop": 1,
            "released": 1,
        }
        rows.add(**self._of(chained, schema.FINAL, size=self.size // 2, outcome=1, **ended, **target))

    def _losses(self) -> None:
        """The lane's worker is lost, its request goes to the spare worker at once, and a new worker takes over the lane."""
        rows, lost = self.rows, self.lost
        self.again = self.stopped + self.takes // 2 + 10
        gone, worker, service, connection = (
            self.stopped[lost],
            self.worker[lost],
            self.service[lost],
            self.connection[lost],
        )
        who = {"connection": connection, "worker": worker, "service": service, "allowed": 7_500_000}
        rows.add(t=gone - 1, event=EV[schema.LATE], silence=5_000_000, reason=4, **who)
        rows.add(t=gone, event=EV[schema.LOST], order=O_LOST, silence=7_600_000, outcome=4, reason=3, size=1, **who)
        held = {"t": self.stopped, "connection": self.connection, "worker": self.worker, "attempt": 1}
        waits = {"queue": 1, "workers": self.offered - 1, "reason": 3}
        rows.add(**self._of(lost, schema.REQUEUED, order=O_LOST + 1, **held, **waits))
        other = spare(self.service)
        taken = {"connection": other + CLIENTS, "worker": other, "attempt": 2}
        rows.add(**self._of(lost, schema.DISPATCHED, t=self.stopped, order=O_LOST + 3, size=self.size, **taken))
        ended = {
            "t": self.again,
            "order": O_FINAL,
            "connection": self.client,
            "worker": other,
            "attempt": 2,
            "released": 1,
        }
        rows.add(**self._of(lost, schema.FINAL, size=self.size // 2, outcome=1, **ended))
        rows.add(t=gone, event=EV[schema.DISCONNECTED], order=O_LOST + 4, connection=connection, reason=3)
        self._worker(gone, worker + 1, service, order=O_LOST + 5, credit=1, auto=1)
        rows.add(t=gone + 900, event=EV[schema.STALE], worker=worker, size=50)

    def _others(self) -> None:
        """Log records and published values."""
        rows = self.rows
        told = np.flatnonzero(self.ok & (self.number % 200 == 0))
        rows.add(
            t=self.began[told] + 5, event=EV[schema.LOG], connection=self.connection[told], service=self.service[told],
            number=self.number[told], outcome=6, reason=6, size=30,
        )  # fmt: skip
        said = np.arange(self.start + 2_000_000, self.end, 1_000_000)
        topic = 1 + np.arange(said.size) % 3
        rows.add(t=said, event=EV[schema.PUBLISHED], connection=CLIENTS + 1, topic=topic, size=8)

    def _recorded(self) -> None:
        absent, chained, lost = ~self.got, self.chained, self.lost
        self.ended = np.select([absent, chained, lost], [self.arrive + 5, self.over, self.again], self.stopped)
        self.records.add(
            number=self.number,
            service=self.service,
            last_service=np.where(chained, self.then, self.service),
            client=self.client,
            worker=np.select([chained, lost], [spare(self.then), spare(self.service)], self.worker),
            accepted=self.arrive,
            first=np.where(self.got, self.began, 0),
            dispatched=np.select([absent, chained, lost], [0, self.second, self.stopped], self.began),
            partial=np.where(self.parts, self.began + 300, 0),
            ended=self.ended,
            attempts=np.where(lost, 2, self.got),
            max_attempts=3,
            dispatches=np.where(lost | chained, 2, self.got),
            hops=chained,
            partials=self.parts,
            request_bytes=self.size,
            reply_bytes=np.where(self.errs | absent, 0, self.size // 2),
            outcome=np.select([absent, self.errs], [3, 2], 1),
            reason=np.select([absent, self.errs], [2, 1], 0),
        )
        self.rows.add(t=self.ended, event=FINISHED, order=O_RECORD, number=self.number)

    # --- lives that end in the queue, and work over the edge of an hour --------------------------------------------------------

    def _fragile(self) -> None:
        """Once a minute a request whose worker is lost after 401 ms; every second one is dispatched once more, and lost again. Then it
        waits for 20 s, until its client leaves."""
        for i, t in enumerate(range(self.start + 5_000_000, self.end - 40_000_000, 60_000_000)):
            number, self.next_number = self.next_number, self.next_number + 1
            about = {"number": number, "service": FRAGILE, "client": 2}
            self.rows.add(t=t, event=EV[schema.ACCEPTED], order=O_ACCEPT, connection=2, size=40, workers=1, **about)
            dispatched = began = t + 100
            attempts = 1 + i % 2
            for attempt in range(1, attempts + 1):
                worker, self.next_worker = self.next_worker, self.next_worker + 1
                connection = worker + CLIENTS
                held = {"connection": connection, "worker": worker}
                self._worker(began - 50, worker, FRAGILE, credit=1, auto=1)
                self.rows.add(
                    t=began, event=EV[schema.DISPATCHED], order=O_DISPATCH, attempt=attempt, size=40, **held, **about
                )
                dispatched, gone = began, began + 401_000
                self.rows.add(t=gone, event=EV[schema.LOST], order=O_LOST, service=FRAGILE, reason=3, size=1, **held)
                self.rows.add(
                    t=gone,
                    event=EV[schema.REQUEUED],
                    order=O_LOST + 1,
                    attempt=attempt,
                    queue=1,
                    reason=3,
                    **held,
                    **about,
                )
                self.rows.add(t=gone, event=EV[schema.DISCONNECTED], order=O_LOST + 2, connection=connection, reason=3)
                began = gone + 3_000_000
            ended = gone + 20_000_000
            self.rows.add(
                t=ended,
                event=EV[schema.FAILED],
                order=O_FINAL,
                connection=2,
                attempt=attempts,
                outcome=7,
                reason=8,
                **about,
            )
            self.records.add(
                number=number, service=FRAGILE, last_service=FRAGILE, client=2, worker=worker, accepted=t, first=t + 100,
                dispatched=dispatched, ended=ended, attempts=attempts, max_attempts=3, dispatches=attempts, request_bytes=40,
                outcome=7, reason=8,
            )  # fmt: skip
            self.rows.add(t=ended, event=FINISHED, order=O_RECORD, number=number)

    def _long(self) -> None:
        """Requests of 100 s, one after the other, at the spare of the service: one of them is at work when the hour ends."""
        for t in range(self.start + 3_000_000, self.end - 110_000_000, 120_000_000):
            visitor(self.rows, self.records, self.next_number, LONG, t, t + 100_000_000)
            self.next_number += 1

    def _bridge(self) -> dict[str, Array] | None:
        """Requests that come over the bridge, and those that leave over it."""
        life = self.life
        if life.visitors is not None:
            came = life.visitors
            numbers = np.arange(self.next_number, self.next_number + came["service"].size)
            self.next_number += came["service"].size
            visitor(
                self.rows, self.records, numbers, came["service"], came["accepted"], came["ended"], child=came["parent"]
            )
        if not life.bridge:
            return None
        far = np.flatnonzero((self.service == FAR) & (self.takes > 200))
        return {
            "service": far % SERVED,
            "accepted": self.began[far] + 10,
            "ended": self.stopped[far] - 10,
            "parent": np.arange(far.size) + 1,
            "ms": self.arrive[far] // 1000,
            "number": self.number[far],
        }

    def _broken(self, plant: "Plant") -> tuple[Planted, Changes]:
        if not self.life.breaches:
            return [], Changes()
        names = "number service client worker began stopped ended takes connection".split()
        facts = {name: getattr(self, name) for name in names}
        masks = {
            "usual": self.ok & self.in_lane & ~self.parts & (self.takes > 100),
            "lost": self.lost,
            "chained": self.chained,
            "partial": self.parts & self.in_lane,
        }
        return plant(self.life, self.rows, self.records, facts, masks, self.next_number, self.dice)


def finish(
    life: Life,
    rows: dict[str, Array],
    records: dict[str, Array],
    jobs: dict[str, Array],
    changes: Changes,
    planted: Any,
    leaving: Any,
) -> Made:
    """Puts the rows in order, numbers them, and makes the changes that were planned."""
    keep = np.ones(rows["t"].size, bool)
    for number, event in changes.drop:
        keep &= ~((rows["number"] == number) & (rows["event"] == event))
    for number, event, name, value in changes.set:
        key = rows["number"] == number if number > 0 else rows["worker"] == -number
        rows[name] = np.where(key & (rows["event"] == event), value, rows[name])
    for number, name, value in changes.record:
        records[name] = records[name].copy()
        records[name][number - 1] = value
    if life.level == schema.REQUESTS:
        keep &= ~np.isin(rows["event"], [EV[name] for name in schema.ONLY_MESSAGES])
    if life.killed:
        keep &= rows["t"] <= START + int((life.begins + life.seconds / 2) * 1e6)
    chosen = np.flatnonzero(keep)
    chosen = chosen[np.lexsort((rows["order"][chosen], rows["t"][chosen]))]
    rows = {name: values[chosen] for name, values in rows.items()}
    seq = np.arange(1, chosen.size + 1)
    partial = rows["event"] == EV[schema.PARTIAL]
    gone = [int(np.flatnonzero(partial & (rows["number"] == number))[0]) for number in changes.hole]
    again = [int(np.flatnonzero(partial & (rows["number"] == number))[0]) for number in changes.twice]
    if life.loses:
        (at,) = np.flatnonzero(rows["event"] == EV[schema.MISSING])
        rows["covers_first"][at], rows["covers_last"][at] = seq[at - LOST_ROWS], seq[at - 1]
        gone += [*range(at - LOST_ROWS, at)]
    index = np.sort(np.concatenate([np.delete(np.arange(seq.size), gone), np.array(again, np.int64)]))
    rows = {name: values[index] for name, values in rows.items()}
    last = int(seq[-1]) if seq.size else 0
    return Made(
        rows, records, jobs, seq[index], planted, leaving, (last + 1, last + LOST_ROWS) if life.killed else (0, 0)
    )
