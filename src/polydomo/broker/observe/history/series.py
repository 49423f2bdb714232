"""The history of one service, or of the whole broker: a ring of the last hour, one of the last day, and sums of the last five minutes."""

from polydomo.broker.observe.history.ring import Ring, Sample
from polydomo.limits import (
    HISTORY_COARSE,
    HISTORY_COARSE_STEPS,
    HISTORY_STEP,
    HISTORY_STEPS,
    RECENT_SLOT,
    RECENT_SLOTS,
)

PER_COARSE = HISTORY_COARSE // HISTORY_STEP


class Series:
    __slots__ = ("coarse", "failed", "fine", "queues", "requests", "slot")

    def __init__(self) -> None:
        self.fine = Ring(HISTORY_STEPS)
        self.coarse = Ring(HISTORY_COARSE_STEPS)
        # The last minutes, the newest at the end.
        self.slot = 0  # number of the newest
        self.requests = [0] * RECENT_SLOTS
        self.failed = [0] * RECENT_SLOTS
        self.queues = [0] * RECENT_SLOTS  # the shortest queue

    def size(self) -> int:
        return len(self.fine.data) + len(self.coarse.data)

    def add(self, step: int, sample: Sample, always: bool = False) -> None:
        """Adds the sample of a step. Unless ``always``, one that says nothing new is left out."""
        if always or self.fine.is_news(sample):
            self.fine.append(step, sample)
        self._turn(step * HISTORY_STEP // RECENT_SLOT, sample.queue)
        self.requests[-1] += sample.requests
        self.failed[-1] += sample.failed

    def _turn(self, slot: int, queue: int) -> None:
        if slot == self.slot:
            self.queues[-1] = min(self.queues[-1], queue)
            return
        for _ in range(min(max(slot - self.slot, 1), RECENT_SLOTS)):
            for sums in (self.requests, self.failed, self.queues):
                del sums[0]
                sums.append(0)
        self.slot = slot
        self.queues[-1] = queue

    def close_coarse(self, step: int, always: bool = False) -> None:
        """Makes one sample of the last day from those of the last hour, and drops what is too old."""
        merged = Sample(workers=self.fine.workers)
        for number, sample in self.fine.samples(step * PER_COARSE):
            if number >= (step + 1) * PER_COARSE:
                break
            merged.add_later(sample)
        if always or self.coarse.is_news(merged):
            self.coarse.append(step, merged)
        self.fine.drop_before((step + 1) * PER_COARSE - HISTORY_STEPS)
        self.coarse.drop_before(step + 1 - HISTORY_COARSE_STEPS)

    def is_over(self) -> bool:
        """Whether it has nothing to show: the service is gone for a day."""
        return not self.fine.data and not self.coarse.data and not self.fine.workers

    def shorten(self, added: int) -> None:
        """Drops the oldest samples, so that the new ones take no more memory."""
        for ring in (self.fine, self.coarse):
            target = len(ring.data) - added
            while ring.data and len(ring.data) > target and ring.first != ring.last:
                ring.drop_first()
