"""Which calls wait for their batch, and when it begins. It reads no clock, so the simulator's workers decide with it, too."""

from typing import Generic, TypeVar

from polydomo.worker.batches import BatchSize

C = TypeVar("C")

NEVER = float("inf")


class Gathering(Generic[C]):
    """A batch begins when ``size.most`` calls wait, or ``size.wait`` seconds after its first call arrived."""

    def __init__(self, size: BatchSize) -> None:
        self.size = size
        self._arrived: dict[C, float] = {}  # in the order of their arrival

    def __len__(self) -> int:
        return len(self._arrived)

    def add(self, call: C, now: float) -> None:
        self._arrived[call] = now

    def leave(self, call: C) -> bool:
        """The call will not be served. False if it does not wait, such as when its batch has begun."""
        return self._arrived.pop(call, None) is not None

    def due(self) -> float:
        """The time when the next batch begins, if it may: a time that has passed for a full one."""
        if not self._arrived:
            return NEVER
        first = next(iter(self._arrived.values()))
        return first if len(self._arrived) >= self.size.most else first + self.size.wait

    def take(self) -> list[C]:
        """The calls of the next batch. They do not wait any more."""
        batch = list(self._arrived)[: self.size.most]
        for call in batch:
            del self._arrived[call]
        return batch
