"""A lane: the requests of one service that share a limit, because they have the same key (a group, a principal, or none).

A lane counts its running requests, and has the times of the starts inside the window. ``reserved`` are slots that were given away and
whose start is not known yet: to another process of the broker, or to a request on its way to a worker of another process. They count as
running, and against the rate, until they have started. So a start is never counted before it happens, only later, and

    starts inside the window + reserved <= count of the rate        running <= limit

hold at all times, whatever is lost on the way.
"""

from collections import deque

from polydomo.model.records import Request, Session, Worker


class LaneQueue:
    """The waiting requests of one client in one lane."""

    __slots__ = ("client", "is_ready", "lane", "requests")

    def __init__(self, lane: "Lane", client: "ClientTurn") -> None:
        self.lane = lane
        self.client = client
        self.requests: deque[Request] = deque()
        self.is_ready = False  # it is in ``client.ready``: its first request may start


class ClientTurn:
    """A client with waiting requests, and those of its lanes that have room, in the order in which they are served."""

    __slots__ = ("queues", "ready", "session", "waiting")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.queues = 0
        self.waiting = 0  # requests
        self.ready: deque[LaneQueue] = deque()


class Share:
    """What another process has of a lane, seen by process 0."""

    __slots__ = ("reserved", "running", "until", "wanted")

    def __init__(self) -> None:
        self.wanted = 0  # permits that it waits for
        self.reserved = 0  # permits that it has, and whose requests have not started
        self.until = 0.0  # when the last of them lapses
        self.running = 0


class Lane:
    __slots__ = (
        "asked", "by_client", "key", "listed", "listings", "parked", "permits", "ready", "reserved", "running", "served_here", "shares",
        "starts", "timer", "until", "waiting",
    )  # fmt: skip

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.running = 0
        self.reserved = 0
        self.starts: deque[float] | None = None  # inside the window, the oldest first
        # There may be 100,000 lanes, most of them with a single start: what few lanes need is made when they need it.
        self.by_client: dict[Session, LaneQueue] | None = None
        self.parked: deque[LaneQueue] | None = None  # queues that wait for room, in the order in which they get it
        self.ready = 0  # queues whose first request may start: never more than there is room
        self.waiting = 0  # requests
        self.timer = 0  # key of its timer: when the window has room again
        self.listed = 0.0  # the last start when it became idle, and joined the lanes that can be forgotten later
        self.listings = 0  # how often it is among these
        self.permits = 0  # of a process other than 0: starts that process 0 has allowed and that were not used
        self.until = 0.0  # ... when the first of them lapses
        self.asked = 0  # ... and that it was asked for
        self.shares: dict[Worker, Share] | None = None  # of process 0: the other processes that use the lane
        self.served_here = False  # the last room went to a request of this process: it is the others' turn

    def add(self, queue: LaneQueue) -> None:
        if self.by_client is None:
            self.by_client = {}
        self.by_client[queue.client.session] = queue

    def forget(self, queue: LaneQueue) -> None:
        """The queue is empty."""
        by_client = self.by_client
        if by_client is not None:
            del by_client[queue.client.session]
            if not by_client:
                self.by_client = None

    def queues(self) -> "list[LaneQueue]":
        return list(self.by_client.values()) if self.by_client is not None else []

    def park(self, queue: LaneQueue, first: bool = False) -> None:
        if self.parked is None:
            self.parked = deque()
        if first:
            self.parked.appendleft(queue)
        else:
            self.parked.append(queue)

    def unpark(self, queue: LaneQueue) -> None:
        if self.parked is not None:
            self.parked.remove(queue)

    def used(self) -> int:
        """Starts that count against the rate. Those outside the window are forgotten already (``LimitedQueue.prune``)."""
        return self.reserved + (len(self.starts) if self.starts is not None else 0)

    def share_of(self, worker: Worker) -> Share:
        if self.shares is None:
            self.shares = {}
        share = self.shares.get(worker)
        if share is None:
            share = self.shares[worker] = Share()
        return share

    def is_used(self) -> bool:
        return bool(self.waiting or self.running or self.permits or self.asked or self.shares)
