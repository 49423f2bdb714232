"""Batches of a simulated worker: it collects calls, runs them together, and answers each. What the worker library decides is the library's
own code (``Gathering``, ``outcomes_of``), and its rules are checked here: they cannot be seen from the broker.
"""

from typing import TYPE_CHECKING
from zlib import crc32

from polydomo.protocols.ends import Delivery
from polydomo.worker import batches
from polydomo.worker.batches import BatchSize, Outcome
from polydomo.worker.gathering import NEVER, Gathering

if TYPE_CHECKING:
    from sim.peers import Line, NngSocket
    from sim.workers import Execution, Worker

PROTOCOLS = ("mdp1", "mdp2", "mdx", "dcp", "emqp", "memo")  # a DBP service runs one call at a time
ROUNDING = 1e-6  # seconds


class SimulatedFailure(Exception):
    """The outcome of a call that fails alone."""


class Waiting:
    """A call that waits for its batch."""

    def __init__(self, delivery: Delivery, arrived: float) -> None:
        self.delivery = delivery
        self.arrived = arrived
        self.left = ""  # why it left its batch


class Batches:
    """One batch runs at a time. Calls of one connection are served: those of an earlier one belong to the broker again."""

    def __init__(self, worker: "Worker", size: BatchSize) -> None:
        self.worker = worker
        self.size = size
        self.gathering: Gathering[Waiting] = Gathering(size)
        self.waiting: list[Waiting] = []  # the same calls, counted by the simulator itself
        self.batch: list[Execution] = []  # the calls that run
        self.free_since = 0.0

    def came(self, line: "Line | NngSocket", delivery: Delivery) -> None:
        call = Waiting(delivery, self.worker.now)
        self.gathering.add(call, self.worker.now)
        self.waiting.append(call)
        self._look(line)

    def leave(self, line: "Line | NngSocket", delivery: Delivery, why: str) -> bool:
        """The call is cancelled, or the broker wants it back. False if its batch has begun."""
        for call in self.waiting:
            if call.delivery is delivery:
                call.left = why
                self.gathering.leave(call)
                self.waiting.remove(call)
                self._look(line)
                return True
        return False

    def withdraw(self) -> list[Delivery]:
        """The worker stops: the calls whose batch has not begun."""
        found = [call.delivery for call in self.waiting]
        self._forget()
        return found

    def drop(self) -> None:
        """The connection is lost, with all of its calls."""
        if self.batch:
            self.worker.world.count("batch lost")
        self._forget()
        self.batch = []
        self.free_since = self.worker.now

    def _forget(self) -> None:
        self.gathering = Gathering(self.size)
        self.waiting = []

    def _look(self, line: "Line | NngSocket") -> None:
        """Begins a batch if it is time, and otherwise looks again when it is."""
        worker = self.worker
        if worker.line is not line or self.batch or not self.gathering:
            return
        wait = self.gathering.due() - worker.now
        if wait > ROUNDING:
            worker.later(wait, lambda: self._look(line))
            return
        calls = self.gathering.take()
        self._check(calls)
        self.waiting = [call for call in self.waiting if call not in calls]
        self.batch = [worker.begin(line, call.delivery, partials=0) for call in calls]
        worker.world.count("batch" if len(calls) > 1 else "batch of one")
        done = self.batch
        worker.later(worker.job_time(), lambda: self._finish(line, done))

    def hurry(self, line: "Line | NngSocket") -> None:
        """The batch that runs ends now."""
        self._finish(line, self.batch)

    def _check(self, calls: list[Waiting]) -> None:
        worker, now = self.worker, self.worker.now
        if not 1 <= len(calls) <= self.size.most:
            self._breach(f"a batch of {len(calls)} calls began; {self.size.most} may")
        for call in calls:
            if call.left:
                self._breach(f"a call was in a batch that began after it had been {call.left}")
        if len(calls) < min(len(self.waiting), self.size.most):
            self._breach(f"a batch of {len(calls)} calls began while {len(self.waiting)} waited")
        first = self.waiting[0]
        if first not in calls:
            self._breach("a batch began without the call that had waited longest")
        full = self.waiting[self.size.most - 1].arrived if len(self.waiting) >= self.size.most else NEVER
        due = max(self.free_since, min(full, first.arrived + self.size.wait))
        if now < due - ROUNDING:
            self._breach(f"a batch of {len(calls)} calls began {due - now:.4f} s too soon")
        if now > due + 2 * ROUNDING and not worker.options.worker_freeze:
            self._breach(f"a batch began {now - due:.4f} s late")

    def _breach(self, text: str) -> None:
        self.worker.world.breach("batch", f"{self.worker.name}: {text}")

    def _finish(self, line: "Line | NngSocket", done: "list[Execution]") -> None:
        """The function returns: each call that still wants one gets its outcome, in one write."""
        worker = self.worker
        if worker.line is not line or not done or self.batch is not done:
            return
        self.batch = []
        self.free_since = worker.now
        answered = 0
        for execution, outcome in zip(done, self._outcomes(done), strict=True):
            if worker.line is line and not execution.over:
                answered += worker.finish(line, execution, outcome)
        if worker.line is not line:
            return  # a protocol that has no failures: the worker disconnects for one
        line.flush()
        if answered:
            worker.leave_at_times()
        self._look(line)

    def _outcomes(self, done: "list[Execution]") -> list[Outcome]:
        value: list[object] = []
        for execution in done:
            fails = self.worker.world.troubled and self.worker.rng.random() < self.worker.options.failing
            value.append(SimulatedFailure() if fails else execution.result())
        return batches.outcomes_of(value, len(done))


def batch_size(worker: "Worker") -> BatchSize | None:
    """The batches of this worker, if it is one of those with batches: about half, chosen by name. A function that gets batches has one
    service."""
    options = worker.options
    chosen = worker.protocol in PROTOCOLS and len(worker.services) == 1 and crc32(b"batch" + worker.name.encode()) % 2
    return BatchSize(options.batch, options.batch_wait) if options.batch and chosen else None
