"""Simulated time: a line of events in order, and processes that live by it."""

from collections.abc import Callable
from heapq import heappop, heappush


class Event:
    """Something that will happen, unless it is called off."""

    __slots__ = ("action", "cancelled", "when")

    def __init__(self, when: float, action: Callable[[], None]) -> None:
        self.when = when
        self.cancelled = False
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.cancelled = True
        self.action = None


class Scheduler:
    """The only clock there is. Events at the same moment happen in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done = 0  # events that have happened
        self._line: list[tuple[float, int, Event]] = []  # tuples are compared without a call into Python
        self._order = 0

    def at(self, when: float, action: Callable[[], None]) -> Event:
        self._order += 1
        event = Event(max(when, self.now), action)
        heappush(self._line, (event.when, self._order, event))
        return event

    def step(self, until: float) -> bool:
        """Lets the next event happen, if it is due by ``until``. Otherwise it is ``until`` now."""
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
    """A program that may be frozen (what should have happened meanwhile happens when it thaws) and may crash (nothing of it is left)."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.up = True
        self.frozen = False
        self.life = 0  # counts up with every crash, so that what belonged to an earlier life does not happen
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
        """Everything the process had planned is forgotten."""
        self.up = False
        self.frozen = False
        self.life += 1
        self.deferred = []
