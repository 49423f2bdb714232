"""The history: samples of the figures of every service, and of the broker, taken from the counts that the broker keeps anyway.

Every ``HISTORY_STEP`` seconds, ``tick`` takes what was counted since the last sample. ``end_turn`` encodes some samples per turn of the
loop, so that no turn is long with many services. Requests themselves cost nothing.
"""

from polydomo.broker.observe.histogram import add
from polydomo.broker.observe.history.ring import Sample
from polydomo.broker.observe.history.series import PER_COARSE, Series
from polydomo.broker.observe.tallies import STANDING_IN
from polydomo.broker.state import State
from polydomo.limits import (
    COST_SERIES,
    HISTORY_BYTES,
    HISTORY_MEMORY,
    HISTORY_SERVICES,
    HISTORY_STEP,
    HISTORY_TURN,
)

BROKER = b""  # the name of the broker's own series


class PendingSample:
    """A sample that is not encoded yet."""

    __slots__ = ("close", "name", "sample", "step")

    def __init__(self, name: bytes, step: int, sample: Sample, close: int) -> None:
        self.name = name
        self.step = step
        self.sample = sample
        self.close = close  # the step of the last day that ends with it; -1: none


class FigureHistory:
    def __init__(self, state: State, max_memory: int) -> None:
        self._state = state
        self.max_bytes = min(HISTORY_BYTES, int(max_memory * HISTORY_MEMORY)) if max_memory else HISTORY_BYTES
        self.max_services = HISTORY_SERVICES
        self.broker = Series()
        self.series: dict[bytes, Series] = {}
        self.bytes = 0  # of all samples
        self.step = int((state.wall + state.now) // HISTORY_STEP)  # the current one
        self.pending: list[PendingSample] = []

    def memory(self) -> int:
        return self.bytes + (self.bytes >> 3) + COST_SERIES * (len(self.series) + 1)

    # --- taking samples

    def tick(self) -> None:
        """Called once a second, after the tallies were folded."""
        step = int((self._state.wall + self._state.now) // HISTORY_STEP)
        if step != self.step:
            self.sample(step)

    def fold(self) -> None:
        """Includes the requests of the last second in the next sample."""
        for tally in self._state.tallies.table.values():
            tally.turn_over()

    def sample(self, following: int) -> None:
        """Takes the sample of the current step; the one that follows begins."""
        self.finish()
        state = self._state
        step, self.step = self.step, following
        close = step // PER_COARSE if step // PER_COARSE != following // PER_COARSE else -1
        everything = Sample(workers=sum(not worker.session.is_sibling for worker in state.workers))
        found: dict[bytes, Sample] = {}
        for (name, protocol), tally in state.tallies.table.items():
            if not tally.window and not tally.window_failures:
                continue
            failed = tally.window_failures
            counts = tally.take_window()
            if protocol in STANDING_IN:
                continue
            requests = sum(counts.values()) + failed
            everything.requests += requests
            everything.failed += failed
            add(everything.counts, counts)
            if name:
                sample = found.setdefault(name, Sample())
                sample.requests += requests
                sample.failed += failed
                if sample.counts:
                    add(sample.counts, counts)
                else:
                    sample.counts = counts
        series = self.series
        for name, service in state.services.items():
            queue = service.queue_length + (len(state.paused[name]) if service.paused and name in state.paused else 0)
            everything.queue += queue
            if not queue and not service.workers and name not in found:
                continue
            if name not in series and name in state.builtin.offered and not service.workers:
                continue
            sample = found.setdefault(name, Sample())
            sample.queue = queue
            sample.workers = len(service.workers)
        known = set(series)
        for name in known - set(found):
            found[name] = Sample()
        pending = self.pending
        for name, sample in found.items():
            old = series.get(name)
            if old is None or close >= 0 or old.fine.is_news(sample) or any(old.requests) or any(old.queues):
                pending.append(PendingSample(name, step, sample, close))
        pending.append(PendingSample(BROKER, step, everything, close))
        pending.reverse()  # the broker's first, and the others from the end

    def finish(self) -> None:
        """Encodes all pending samples."""
        while self.pending:
            self.end_turn()

    def end_turn(self) -> None:
        """Encodes some of the pending samples."""
        room = HISTORY_TURN
        while self.pending and room > 0:
            taken = self.pending.pop()
            room -= 1 if taken.close < 0 else 8  # to close a step of the last day, the samples of that time are read
            self._put(taken)

    def _put(self, taken: PendingSample) -> None:
        name = taken.name
        own = name == BROKER
        found = self.broker if own else self.series.get(name)
        if found is None:
            found = self._new(name)
            if found is None:
                return
        before = found.size()
        found.add(taken.step, taken.sample, always=own)
        if taken.close >= 0:
            found.close_coarse(taken.close, always=own)
        added = found.size() - before
        if added > 0 and not own and self.bytes + added > self.max_bytes:
            found.shorten(added)
        self.bytes += found.size() - before
        if not own and found.is_over():
            del self.series[name]

    def _new(self, name: bytes) -> Series | None:
        """A series for a new service; None if there is no room. Services that are gone make room, the longest silent first."""
        if len(self.series) >= self.max_services:
            services = self._state.services
            gone = [other for other in self.series if other not in services or not services[other].workers]
            if not gone:
                return None
            oldest = min(gone, key=self._last_step)
            self.bytes -= self.series.pop(oldest).size()
        made = self.series[name] = Series()
        return made

    def _last_step(self, name: bytes) -> int:
        return self.series[name].fine.last

    # --- the last minutes

    def recent(self, name: bytes) -> "tuple[int, int]":
        """Requests of a service that ended in the last five minutes, and those of them that failed."""
        series = self.series.get(name)
        if series is None:
            return 0, 0
        return sum(series.requests), sum(series.failed)

    # --- between two runs

    def adopt(self, name: bytes, series: Series) -> None:
        """Takes the history that an earlier run saved."""
        if name == BROKER:
            self.broker = series
        elif len(self.series) < self.max_services:
            self.series[name] = series
        else:
            return
        self.bytes += series.size()

    def check_invariants(self) -> None:
        assert self.bytes == self.broker.size() + sum(series.size() for series in self.series.values())
        assert BROKER not in self.series
