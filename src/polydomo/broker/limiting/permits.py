"""Limits over the processes of a broker: process 0 counts, and gives the others permits.

A process whose requests wait asks process 0 for permits, one for each, but not more than can start at once. Process 0 gives them in turn. A
permit counts as running, and against the rate, from the moment process 0 gives it until the process has reported the end of the request, or
returned the permit. These messages (``LIMIT`` between ``siblings``) name a service and a key:

    want    count   of a process: it has this many requests more than permits
    grant   count   of process 0; a fifth part says until when, on the clock that the processes of a machine share
    start   count   of a process: that many requests have started under their permits; sent at the end of the turn
    end     count   ... have ended
    back    count   ... permits were not used: their requests were cancelled
    hold    count   ... of its requests run, which process 0 does not know: it has just started, or they came from a process that is gone
    reset           ... forget what this process has of the service: its limits have changed, and ``hold`` follows. Process 0 says the
                    same, and the other process ignores what was granted before that
    ready           ... it has sent all

A permit lapses after ``PERMIT_TIME``, so a process that stood still does not use one that process 0 has given to another meanwhile. If a
process is lost, its permits come back after that time, and those that had not started count as starts at its end. If process 0
is lost, the others use no permit that they have, and report to its successor what they run. It lets nothing start before all others
have reported, and where a rate is limited, for one window more.
"""

from collections.abc import Callable

from polydomo.broker.limiting.lane import Lane, Share
from polydomo.broker.limiting.limited_queue import PERMITTED, LimitedQueue, Permits
from polydomo.broker.state import State
from polydomo.limits import PERMIT_TIME
from polydomo.model.records import Worker


class LaneReport:
    """What happened in a lane in this turn."""

    __slots__ = ("back", "ended", "lane", "queue", "started")

    def __init__(self, queue: LimitedQueue, lane: Lane) -> None:
        self.queue = queue
        self.lane = lane
        self.started = self.ended = self.back = 0


class SharedPermits(Permits):
    """In a broker of several processes."""

    def __init__(
        self,
        state: State,
        find: "Callable[[bytes], LimitedQueue | None]",
        make: "Callable[[bytes], LimitedQueue | None]",
    ) -> None:
        self._state = state
        self._find = find  # the queue of a service
        self._make = make  # the same, for one that only another process knows
        self.decides = state.process.index == 0
        self.first: Worker | None = None  # the bridge to process 0
        self.reported: set[int] = set()  # of process 0: processes that have said what they run
        self.complete = False  # ... all have
        self.on_complete: Callable[[], None] | None = None
        self.reports: dict[Lane, LaneReport] = {}
        self.resets: dict[bytes, int] = {}  # services that start anew, which process 0 may not have read yet

    # --- of a process other than 0

    def wanted(self, queue: LimitedQueue, lane: Lane) -> None:
        if self.first is None:
            return
        more = min(lane.waiting, queue.limits.most()) - lane.permits - lane.asked
        if more > 0:
            lane.asked += more
            self._say(self.first, b"want", queue, lane, more)

    def started(self, queue: LimitedQueue, lane: Lane, count: int = 1) -> None:
        self._report(queue, lane).started += count

    def ended(self, queue: LimitedQueue, lane: Lane) -> None:
        self._report(queue, lane).ended += 1

    def _report(self, queue: LimitedQueue, lane: Lane) -> LaneReport:
        report = self.reports.get(lane)
        if report is None:
            report = self.reports[lane] = LaneReport(queue, lane)
        return report

    def end_turn(self) -> None:
        """Once per turn, if there is something to report."""
        reports = list(self.reports.values())
        self.reports.clear()
        first = self.first
        for report in reports:
            lane, queue = report.lane, report.queue
            if first is None:
                continue
            for word, count in ((b"start", report.started), (b"end", report.ended), (b"back", report.back)):
                if count > 0:
                    self._say(first, word, queue, lane, count)

    def unused(self, queue: LimitedQueue, lane: Lane, count: int) -> None:
        """The requests of some permits were cancelled, or the permits have lapsed."""
        lane.permits -= count
        self._report(queue, lane).back += count

    def held(self, queue: LimitedQueue, lane: Lane) -> None:
        if not self.decides and self.first is not None:
            self._say(self.first, b"hold", queue, lane, 1)

    def greet(self, worker: Worker, queues: "list[LimitedQueue]") -> None:
        """The bridge to process 0 is open: reports what runs here, and asks again."""
        self.first = worker
        self.reports.clear()
        self.resets.clear()
        for queue in queues:
            self.restart(queue)
        worker.session.send_to_sibling(b"LIMIT", [b"ready", b"", b"", b"0"])

    def restart(self, queue: LimitedQueue) -> None:
        """Process 0 forgets what this process has of the service, and learns it again."""
        for lane in list(queue.lanes.values()):
            queue.drop_permits(lane)
        self.reports = {lane: report for lane, report in self.reports.items() if report.queue is not queue}
        if self.first is None:
            return
        self.resets[queue.name] = self.resets.get(queue.name, 0) + 1
        self.first.session.send_to_sibling(b"LIMIT", [b"reset", queue.name, b"", b"0"])
        for lane in list(queue.lanes.values()):
            if lane.running and lane.key != PERMITTED:
                self._say(self.first, b"hold", queue, lane, lane.running)
            queue.offer(lane)

    # --- of process 0

    def give(self, queue: LimitedQueue, lane: Lane) -> bool:
        for worker, share in list((lane.shares or {}).items()):
            if share.wanted:
                share.wanted -= 1
                share.reserved += 1
                share.until = self._state.now + PERMIT_TIME
                lane.reserved += 1
                lane.running += 1
                assert lane.shares is not None
                del lane.shares[worker]  # the next room is another process's
                lane.shares[worker] = share
                until = b"%d" % int(share.until * 1e6)
                worker.session.send_to_sibling(b"LIMIT", [b"grant", queue.name, lane.key, b"1", until])
                return True
        return False

    def lost(self, worker: Worker, queues: "list[LimitedQueue]") -> None:
        """The bridge to another process is gone."""
        if worker is self.first:
            self.first = None
            for queue in queues:
                for lane in list(queue.lanes.values()):
                    queue.drop_permits(lane)
        for queue in queues:
            queue.orphan(worker.session)
        if self.decides:
            # What it has sent to a third process still runs there. That process says so as soon as it misses the sender.
            state = self._state
            state.timers.add(state.now, state.now + PERMIT_TIME, LostProcess(self, worker, queues))
            for queue in queues:
                for lane in list(queue.lanes.values()):
                    share = lane.shares.get(worker) if lane.shares is not None else None
                    if share is not None:
                        share.wanted = 0
                        self._use_up(queue, lane, share)

    def _use_up(self, queue: LimitedQueue, lane: Lane, share: Share) -> None:
        """The permits of another process count as starts: it may have used them, or use them until they lapse."""
        for _ in range(share.reserved if queue.limits.starts else 0):  # they may have started
            queue.note_start(lane, max(share.until, self._state.now))
        lane.reserved -= share.reserved
        share.running += share.reserved
        share.reserved = 0

    def forget_share(self, queue: LimitedQueue, lane: Lane, worker: Worker) -> None:
        share = lane.shares.pop(worker, None) if lane.shares is not None else None
        if share is not None:
            self._use_up(queue, lane, share)
            lane.running -= share.running
            queue.changed(lane)

    # --- messages

    def message(self, worker: Worker, rest: "list[bytes]") -> bool:
        """False if it is malformed."""
        granted = rest[:1] == [b"grant"]
        if len(rest) != 4 + granted or not rest[3].isdigit() or len(rest[3]) > 9 or not rest[-1].isdigit():
            return False
        word, name, key, count = rest[0], rest[1], rest[2], int(rest[3])
        queue = self._make(name) if word in (b"want", b"hold") else self._find(name)
        if word == b"ready":
            self._reported(worker)
        elif word == b"reset":
            self._reset(worker, name)
        elif queue is None:
            return True  # its limits were removed a moment ago
        elif granted:
            self._granted(queue, key, count, int(rest[4][:18]) / 1e6)
        elif self.decides:
            self._heard(worker, word, queue, key, count)
        return True

    def _reset(self, worker: Worker, name: bytes) -> None:
        if not self.decides:
            left = self.resets.pop(name, 1) - 1
            if left > 0:
                self.resets[name] = left
            return
        worker.session.send_to_sibling(b"LIMIT", [b"reset", name, b"", b"0"])
        queue = self._find(name)
        if queue is not None:
            for lane in list(queue.lanes.values()):
                self.forget_share(queue, lane, worker)

    def _granted(self, queue: LimitedQueue, key: bytes, count: int, until: float) -> None:
        if queue.name in self.resets:
            return
        lane = queue.lane_of(key)
        queue.permitted(lane, count, until)
        queue.changed(lane)

    def _heard(self, worker: Worker, word: bytes, queue: LimitedQueue, key: bytes, count: int) -> None:
        lane = queue.lane_of(key)
        share = lane.share_of(worker)
        if word == b"want":
            share.wanted += count
        elif word == b"hold":
            share.running += count
            lane.running += count
        elif word == b"start":
            count = min(count, share.reserved)
            share.reserved -= count
            share.running += count
            lane.reserved -= count
            if queue.limits.starts:
                for _ in range(count):
                    queue.note_start(lane, self._state.now)
        elif word == b"end":
            count = min(count, share.running)
            share.running -= count
            lane.running -= count
        elif word == b"back":
            count = min(count, share.reserved)
            share.reserved -= count
            lane.reserved -= count
            lane.running -= count
        queue.changed(lane)
        if lane.shares is not None and not (share.wanted or share.reserved or share.running):
            lane.shares.pop(worker, None)
            queue.settle(lane)

    def _reported(self, worker: Worker) -> None:
        self.reported.add(self._state.process.bridges.get(worker, -1))
        if not self.complete and len(self.reported) >= self._state.process.count - 1:
            self.complete = True
            if self.on_complete is not None:
                self.on_complete()

    def _say(self, worker: Worker, word: bytes, queue: LimitedQueue, lane: Lane, count: int) -> None:
        worker.session.send_to_sibling(b"LIMIT", [word, queue.name, lane.key, b"%d" % count])


class LostProcess:
    """The timer after which process 0 forgets what a lost process had."""

    __slots__ = ("permits", "queues", "worker")

    def __init__(self, permits: SharedPermits, worker: Worker, queues: "list[LimitedQueue]") -> None:
        self.permits = permits
        self.worker = worker
        self.queues = queues

    def on_timer(self, key: int) -> None:
        for queue in self.queues:
            for lane in list(queue.lanes.values()):
                self.permits.forget_share(queue, lane, self.worker)
