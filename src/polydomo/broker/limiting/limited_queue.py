"""The queue of a service with limits: clients in turn, each client's groups in turn, each group's requests in order.

A request waits in its lane (``lane``). While the lane has no room, its queues are *parked*, and other lanes pass. Room makes as many of its
queues *ready* as may start, so every ready request can be dispatched at once. Taking a request out of the queue (``pop``) is its start;
``returned`` gives the slot back when no worker holds the request any more.
"""

from collections import deque

from polydomo.broker.limiting.job_starts import JobStarts
from polydomo.broker.limiting.lane import ClientTurn, Lane, LaneQueue
from polydomo.broker.state import State
from polydomo.limits import LANES_FORGOTTEN, TIMER_TICK
from polydomo.model.records import LimitedRequests, Request, Session
from polydomo.model.service_limits import GROUP, PRINCIPAL, ServiceLimits

FOREVER = 1e17  # later than any time
PERMITTED = b"\0permitted"  # the lane of requests that another process of this broker has allowed to start; no mark has this text


class Permits:
    """What the queue asks of the other processes (``permits``); nothing in a broker of one process."""

    decides = True  # this process counts for all
    jobs: "JobStarts | None" = None

    def wanted(self, queue: "LimitedQueue", lane: Lane) -> None: ...  # requests wait in a lane without room

    def give(self, queue: "LimitedQueue", lane: Lane) -> bool:
        """Gives one start to another process that waits for it. False if none does."""
        return False

    def started(self, queue: "LimitedQueue", lane: Lane, count: int = 1) -> None: ...
    def ended(self, queue: "LimitedQueue", lane: Lane) -> None: ...
    def unused(self, queue: "LimitedQueue", lane: Lane, count: int) -> None: ...
    def held(self, queue: "LimitedQueue", lane: Lane) -> None: ...


class LimitedQueue(LimitedRequests):
    def __init__(self, state: State, name: bytes, limits: ServiceLimits, permits: Permits) -> None:
        super().__init__()
        self._state = state
        self.name = name
        self.limits = limits
        self.permits = permits
        self.lanes: dict[bytes, Lane] = {}
        self.clients: dict[Session, ClientTurn] = {}
        self.of_jobs: dict[Session, ClientTurn] = {}  # those of them that send attempts of durable jobs
        self.turns: deque[ClientTurn] = deque()  # clients with ready queues, in the order in which they are served
        self.places: dict[Request, LaneQueue] = {}  # waiting requests
        self.held: dict[Request, Lane] = {}  # requests that workers hold
        self.unstarted: dict[Request, Lane] = {}  # ... of them on their way to a worker of another process
        # Lanes that became idle, and were kept for the starts in their window: once for each last start, the first one first.
        self.idle: deque[Lane] = deque()
        self.timer = 0  # key of its timer: when the first of them can be forgotten
        self.start_count = 0  # starts inside the windows of all lanes
        self.leases: deque[tuple[float, Lane]] = deque()  # when the permits of lanes lapse, the first one first
        self.closed_until = 0.0  # what started before this process did is not known: nothing may start before this time

    def key_of(self, request: Request) -> bytes:
        if request.session.is_sibling:
            return PERMITTED
        return request.options.group if self.limits.per == GROUP else self.own_key_of(request)

    def own_key_of(self, request: Request) -> bytes:
        per = self.limits.per
        if per == PRINCIPAL:
            return request.origin.encode("utf-8", "surrogateescape")
        return request.options.group if per == GROUP else b""

    def push(self, request: Request) -> None:
        self._place(request).requests.append(request)

    def push_front(self, request: Request) -> None:
        queue = self._place(request)
        queue.requests.appendleft(request)
        lane = queue.lane
        if queue.is_ready:
            self._unready(queue)
        else:
            lane.unpark(queue)
        lane.park(queue, first=True)
        self.offer(lane, first=True)

    def _place(self, request: Request) -> LaneQueue:
        """The queue of the request's client in its lane, in which the caller puts it."""
        session = request.session
        lane = self.lane_of(self.key_of(request))
        lane.waiting += 1
        queue = lane.by_client.get(session) if lane.by_client is not None else None
        if queue is None:
            client = self.clients.get(session)
            if client is None:
                client = self.clients[session] = ClientTurn(session)
                if self._is_of_jobs(session):
                    self.of_jobs[session] = client
            client.queues += 1
            queue = LaneQueue(lane, client)
            lane.add(queue)
            if not lane.parked and lane.shares is None and lane.ready < self.room(lane):
                self._make_ready(queue, False)  # as ``offer`` would: no other queue waits for this room
            else:
                lane.park(queue)
                self.offer(lane)
        else:
            self.offer(lane)
        queue.client.waiting += 1
        self.places[request] = queue
        return queue

    def lane_of(self, key: bytes) -> Lane:
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(key)
        return lane

    def room(self, lane: Lane) -> int:
        if lane.key == PERMITTED:
            return lane.waiting
        if not self.permits.decides:
            return lane.permits
        if self._state.now < self.closed_until:
            return 0
        limits, starts = self.limits, lane.starts
        found = limits.running - lane.running if limits.running else limits.starts
        if limits.starts:
            if starts and starts[0] <= self._state.now - limits.window:
                self.prune(lane)
            left = limits.starts - lane.reserved - (len(starts) if starts else 0)
            if left < found:
                return left
        return found

    def prune(self, lane: Lane) -> None:
        """Forgets starts outside the window."""
        starts, end = lane.starts, self._state.now - self.limits.window
        while starts and starts[0] <= end:
            starts.popleft()
            self.start_count -= 1

    def note_start(self, lane: Lane, when: float) -> None:
        if lane.starts is None:
            lane.starts = deque()
        lane.starts.append(when)
        self.start_count += 1

    def offer(self, lane: Lane, first: bool = False) -> None:
        """Makes as many queues of the lane ready as may start a request now. Room goes to this process and to the others in turn."""
        room = self.room(lane)
        if lane.ready > max(room, 0):
            self._park(lane)
        while lane.ready < room:
            if lane.shares is not None and (lane.served_here or not lane.parked) and self.permits.give(self, lane):
                lane.served_here = False
                room = self.room(lane)
                continue
            if not lane.parked:
                break
            lane.served_here = True
            self._make_ready(lane.parked.popleft(), first)
        if lane.parked or lane.shares:
            self._wait_for_room(lane)

    def _make_ready(self, queue: LaneQueue, first: bool) -> None:
        client = queue.client
        queue.is_ready = True
        queue.lane.ready += 1
        self.ready += 1
        if first:
            client.ready.appendleft(queue)
            if len(client.ready) > 1:
                self.turns.remove(client)
            self.turns.appendleft(client)
        else:
            client.ready.append(queue)
            if len(client.ready) == 1:
                self.turns.append(client)

    def _unready(self, queue: LaneQueue) -> None:
        """The caller puts the queue elsewhere."""
        client = queue.client
        queue.is_ready = False
        queue.lane.ready -= 1
        self.ready -= 1
        client.ready.remove(queue)
        if not client.ready:
            self.turns.remove(client)

    def _wait_for_room(self, lane: Lane) -> None:
        """Requests wait for room in the lane: asks process 0, or sets the timer for the moment when the window has room."""
        if not self.permits.decides:
            if lane.key != PERMITTED:
                self.permits.wanted(self, lane)
            return
        if lane.timer or lane.key == PERMITTED:
            return
        state, limits, when = self._state, self.limits, 0.0
        if state.now < self.closed_until:
            when = self.closed_until
        elif limits.starts and lane.starts and limits.starts - lane.used() <= lane.ready:
            when = lane.starts[0] + limits.window
        if 0.0 < when < FOREVER:
            lane.timer = state.timers.add(state.now, when, LaneTimer(self, lane))

    def starts_now(self, request: Request) -> bool:
        permits, session = self.permits, request.session
        if self.ready or not permits.decides or session.is_sibling:
            return False
        if self._is_of_jobs(session):
            return False  # it may be another broker's turn to start jobs
        lane = self.lane_of(self.own_key_of(request))
        if lane.waiting or lane.shares is not None or self.room(lane) <= 0:
            return False
        self.held[request] = lane
        lane.running += 1
        if self.limits.starts:
            self.note_start(lane, self._state.now)
        return True

    def _is_of_jobs(self, session: Session) -> bool:
        """Whether its requests are attempts of durable jobs, or runs that such attempts wait for."""
        jobs = self.permits.jobs
        return jobs is not None and session.asked_by() is jobs.session

    def startable(self) -> bool:
        if self.leases and self.leases[0][0] <= self._state.now:
            self._lapse()
        jobs = self.permits.jobs
        if self.ready and self.of_jobs and jobs is not None and not jobs.allowed():
            jobs.withdraw()
        return self.ready > 0

    def pop(self) -> Request:
        """Takes the next request out of the queue: it starts."""
        request, lane = self._take()
        if not self.permits.decides or lane.key == PERMITTED:
            self._starts(request, lane)
            if lane.key != PERMITTED:
                lane.permits -= 1
        elif self.limits.starts:
            self.note_start(lane, self._state.now)
        if lane.waiting or lane.shares is not None:
            self.offer(lane)
        return request

    def pop_across(self) -> Request:
        request, lane = self._take()
        if lane.key == PERMITTED or self.limits.starts:
            self.unstarted[request] = lane
        if lane.key == PERMITTED:
            pass
        elif not self.permits.decides:
            lane.permits -= 1
            if not self.limits.starts:
                self.permits.started(self, lane)
        elif self.limits.starts:
            lane.reserved += 1
        self.offer(lane)
        return request

    def _take(self) -> "tuple[Request, Lane]":
        turns = self.turns
        client = turns.popleft()
        queue = client.ready.popleft()
        if client.ready:
            turns.append(client)
        queue.is_ready = False
        lane = queue.lane
        lane.ready -= 1
        self.ready -= 1
        lane.waiting -= 1
        client.waiting -= 1
        request = queue.requests.popleft()
        del self.places[request]
        self.held[request] = lane
        lane.running += 1
        if queue.requests:
            lane.park(queue)
        else:
            self._forget(queue)
        return request, lane

    def _starts(self, request: Request, lane: Lane) -> None:
        if lane.key == PERMITTED:
            request.session.send_started(request)
        elif not self.permits.decides:
            self.permits.started(self, lane)
        elif self.limits.starts:
            self.note_start(lane, self._state.now)

    def _forget(self, queue: LaneQueue) -> None:
        """The queue is empty, and neither ready nor parked."""
        client = queue.client
        queue.lane.forget(queue)
        client.queues -= 1
        if not client.queues:
            del self.clients[client.session]
            if self.of_jobs:
                self.of_jobs.pop(client.session, None)

    def first(self) -> Request:
        return self.turns[0].ready[0].requests[0]

    def remove(self, request: Request) -> None:
        queue = self.places.pop(request)
        lane, requests = queue.lane, queue.requests
        made_first = request.attempts > 0 and requests[0] is request  # it was requeued, which put its client first
        requests.remove(request)
        lane.waiting -= 1
        queue.client.waiting -= 1
        if not requests or (made_first and not requests[0].attempts):
            was_ready = queue.is_ready
            if was_ready:
                self._unready(queue)
            else:
                lane.unpark(queue)
            if requests:
                lane.park(queue)
            else:
                self._forget(queue)
            if was_ready:
                self.offer(lane)
        self.settle(lane)

    def waiting(self) -> "list[Request]":
        return list(self.places)

    # --- slots

    def returned(self, request: Request) -> None:
        """No worker holds the request any more."""
        lane = self.held.pop(request, None)
        if lane is None:
            return
        if self.unstarted:
            self.started(request)  # if nothing said when it started, it did so now at the latest
        lane.running -= 1
        if lane.key == PERMITTED:
            request.session.send_ended(request)
        elif not self.permits.decides:
            self.permits.ended(self, lane)
        if lane.waiting or lane.shares is not None:
            self.changed(lane)
        else:
            self.settle(lane)

    def runs(self, request: Request) -> bool:
        return request in self.held

    def started(self, request: Request) -> None:
        """The other process has started it."""
        lane = self.unstarted.pop(request, None)
        if lane is None:
            return
        if self.permits.decides and lane.key != PERMITTED:
            lane.reserved -= 1
        self._starts(request, lane)
        if lane.parked:
            self._wait_for_room(lane)

    def changed(self, lane: Lane) -> None:
        """The lane may have room now."""
        if lane.waiting or lane.shares is not None:
            self.offer(lane)
            if self.ready:
                self._state.freed[self.name] = None
        self.settle(lane)

    def settle(self, lane: Lane) -> None:
        """Forgets the lane if nothing uses it, or once its window is empty."""
        if lane.running and not lane.permits:
            return
        if lane.permits > lane.waiting:
            self.permits.unused(self, lane, lane.permits - lane.waiting)
        if lane.is_used():
            return
        lane.timer = 0
        starts, limits = lane.starts, self.limits
        if not starts or not limits.starts or starts[-1] <= self._state.now - limits.window:
            self._drop(lane)
        elif lane.listed != starts[-1]:
            lane.listed = starts[-1]
            lane.listings += 1
            self.idle.append(lane)
            if not self.timer:
                self._forget_later()

    def _drop(self, lane: Lane) -> None:
        if lane.starts:
            self.start_count -= len(lane.starts)
            lane.starts = None
        if self.lanes.get(lane.key) is lane:
            del self.lanes[lane.key]
        if not self.lanes:
            self._state.limits.forget(self.name)

    def _forget_later(self) -> None:
        due = max(self.idle[0].listed + self.limits.window, self._state.now + TIMER_TICK / 1000)
        self.timer = self._state.timers.add(self._state.now, due, LaneTimer(self))

    def on_timer(self) -> None:
        """Forgets lanes whose window has passed: a number of them, so that no turn of the loop is long."""
        self.timer = 0
        end = self._state.now - self.limits.window
        for _ in range(min(len(self.idle), LANES_FORGOTTEN)):
            lane = self.idle[0]
            if lane.listings == 1:
                if lane.listed > end:
                    break
                if not lane.is_used():
                    self._drop(lane)
            lane.listings -= 1
            self.idle.popleft()
        if self.idle:
            self._forget_later()

    # --- changes of the limits

    def change(self, limits: ServiceLimits) -> None:
        """The service has other limits. No request waits: the caller has taken them out, and puts them back."""
        before, self.limits = self.limits, limits
        held = dict(self.held)
        if limits.per != before.per:
            self.lanes.clear()
            self.idle.clear()
            self.start_count = 0
            self.held.clear()
            self.unstarted.clear()
            for request in held:
                self.adopt(request)
            return
        for lane in list(self.lanes.values()):
            lane.timer = 0  # when it is due, it finds that the lane has another one, or none
            self.settle(lane)
        if not limits.starts:
            for request in list(self.unstarted):
                self.started(request)

    def adopt(self, request: Request) -> None:
        """Counts a request that a worker holds already."""
        lane = self.lane_of(self.key_of(request))
        self.held[request] = lane
        lane.running += 1
        if self.limits.starts and self.permits.decides and lane.key != PERMITTED:
            self.note_start(lane, request.dispatched)

    def permitted(self, lane: Lane, count: int, until: float) -> None:
        """Process 0 allows a number of starts until a time on the clock that all processes of a machine share."""
        if not lane.permits:
            lane.until = until
            self.leases.append((until, lane))
        lane.permits += count
        lane.asked = max(0, lane.asked - count)

    def _lapse(self) -> None:
        """Permits that are too old are returned, and asked for again: process 0 may have taken this process for lost meanwhile."""
        now = self._state.now
        while self.leases and self.leases[0][0] <= now:
            until, lane = self.leases.popleft()
            if lane.permits and lane.until <= until:
                self.permits.unused(self, lane, lane.permits)
                self._park(lane)
                self.offer(lane)

    def _park(self, lane: Lane) -> None:
        for queue in lane.queues():
            if queue.is_ready:
                self._unready(queue)
                lane.park(queue)

    def orphan(self, session: Session) -> None:
        """The process that sent these requests is gone. Those that workers hold still run, and count where they run."""
        for request, before in list(self.held.items()):
            if before.key == PERMITTED and request.session is session:
                before.running -= 1
                self.settle(before)
                self.unstarted.pop(request, None)
                lane = self.held[request] = self.lane_of(self.own_key_of(request))
                lane.running += 1
                self.permits.held(self, lane)
                self.offer(lane)

    def drop_permits(self, lane: Lane) -> None:
        """Process 0 is gone, or forgets this process: what it allowed and was not used is used no more."""
        lane.permits = lane.asked = 0
        if lane.key != PERMITTED:
            self._park(lane)
        self.settle(lane)

    def row(self) -> "dict[str, object]":
        return self.limits.to_row()


class LaneTimer:
    """The window of a lane has room again; without a lane: idle lanes may be forgotten."""

    __slots__ = ("lane", "queue")

    def __init__(self, queue: LimitedQueue, lane: Lane | None = None) -> None:
        self.queue = queue
        self.lane = lane

    def on_timer(self, key: int) -> None:
        lane, queue = self.lane, self.queue
        if lane is None:
            if queue.timer == key:
                queue.on_timer()
        elif lane.timer == key:
            lane.timer = 0
            queue.changed(lane)
