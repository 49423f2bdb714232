"""Simulated time: a queue of events, and the processes that they belong to."""

from collections.abc import Callable
from heapq import heappop, heappush


class Event:
    """A scheduled event, which can be cancelled."""

    __slots__ = ("action", "cancelled", "when")

    def __init__(self, when: float, action: Callable[[], None]) -> None:
        self.when = when
        self.cancelled = False
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.cancelled = True
        self.action = None


class Scheduler:
    """The clock of the world. Events at the same time run in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0  # number of events that have run
        self._line: list[tuple[float, int, Event]] = []  # tuples are compared without a call into Python
        self._order = 0

    def at(self, when: float, action: Callable[[], None]) -> Event:
        self._order += 1
        event = Event(max(when, self.now), action)
        heappush(self._line, (event.when, self._order, event))
        return event

    def step(self, until: float) -> bool:
        """Runs the next event if it is due by ``until``, and returns True. Otherwise sets the time to ``until``."""
        line = self._line
        while line:
            if line[0][0] > until:
                break
            event = heappop(line)[2]
            if event.action is not None:
                self.now = event.when
                self.done += 1
                event.action()
                return True
        self.now = max(self.now, until)
        return False


class Process:
    """A program that can freeze (its events run when it thaws) and crash (its events are dropped)."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.up = True
        self.frozen = False
        self.life = 0  # incremented by every crash, so that events of an earlier run are dropped
        self.deferred: list[Callable[[], None]] = []

    @property
    def now(self) -> float:
        return self.scheduler.now

    def later(self, seconds: float, action: Callable[[], None]) -> Event:
        life = self.life

        def happen() -> None:
            if self.life == life and not event.cancelled:
                if self.frozen:
                    self.deferred.append(happen)
                else:
                    action()

        event = self.scheduler.at(self.scheduler.now + seconds, happen)
        return event

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            deferred, self.deferred = self.deferred, []
            for action in deferred:
                self.scheduler.at(self.scheduler.now, action)

    def die(self) -> None:
        """Ends the process and drops its events."""
        self.up = False
        self.frozen = False
        self.life += 1
        self.deferred = []
