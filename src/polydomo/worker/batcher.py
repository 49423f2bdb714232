"""Collects the calls of one service in batches, and runs the service's function with each batch.

A call that waits for its batch has not started: until then the broker may take it back, cancel it, or give it to another worker.
"""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable

from polydomo.errors import CallFailed
from polydomo.model.outcomes import FAILED
from polydomo.worker.batches import BatchFunction, BatchSize, Outcome, outcomes_of
from polydomo.worker.call import RUNNING, Call, Forward, Running
from polydomo.worker.functions import FunctionFailed, Threads, error_text, from_the_function, runs_on_loop
from polydomo.worker.gathering import Gathering

log = logging.getLogger("polydomo.worker")

RunBatch = Callable[[list[Call]], Awaitable[list[Outcome]]]  # runs the function, in a process, a thread or on the loop

BATCH_FAILED = "a batch of %d calls of %s failed: %s"
BATCH_RAISED = "a batch of %d calls of %s failed"
BATCH_RAISED_THERE = "a batch of %d calls of %s failed\n%s"  # in another process


class BatchFailed(Exception):
    """The batch of a call failed as a whole, which has been logged."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Waiting:
    """A call, from its arrival to its outcome."""

    __slots__ = ("begin", "call", "outcome")

    def __init__(self, call: Call, begin: Callable[[], None], outcome: "asyncio.Future[Outcome]") -> None:
        self.call = call
        self.begin = begin  # called when its batch starts
        self.outcome = outcome


class Batcher:
    """``turns`` limits the batches that run at once."""

    def __init__(self, name: bytes, size: BatchSize, run: RunBatch, turns: asyncio.Semaphore) -> None:
        self.name = name.decode(errors="replace")
        self._run = run
        self._turns = turns
        self._waiting: Gathering[Waiting] = Gathering(size)
        self._next: asyncio.Task[None] | None = None  # waits for a turn for the next batch
        self._running: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def serve(self, call: Call, begin: Callable[[], None]) -> list[bytes] | Forward:
        """The outcome of the call. If this is cancelled, the call leaves its batch."""
        loop = asyncio.get_running_loop()
        waiting = Waiting(call, begin, loop.create_future())
        self._waiting.add(waiting, loop.time())
        self._look()
        try:
            outcome = await waiting.outcome
        finally:
            self._waiting.leave(waiting)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _look(self) -> None:
        """Starts a batch if one is complete or due, and otherwise looks again when it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._next is not None or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        due = self._waiting.due()
        if loop.time() >= due:
            context = contextvars.copy_context()
            context.run(RUNNING.set, Running(self.name, ""))  # what the function logs belongs to all calls of the batch
            self._next = loop.create_task(self._take_turn(), context=context)
        else:
            self._timer = loop.call_at(due, self._look)

    async def _take_turn(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        async with self._turns:
            self._next = None
            batch = self._waiting.take()
            self._look()
            if batch:
                await self._serve(batch, task)

    async def _serve(self, batch: list[Waiting], task: "asyncio.Task[None]") -> None:
        left = 0

        def on_settled(outcome: "asyncio.Future[Outcome]") -> None:
            nonlocal left
            if outcome.cancelled():
                left += 1
                if left == len(batch):
                    task.cancel()  # no caller wants an outcome any more

        self._running.add(task)
        try:
            for waiting in batch:
                waiting.begin()
                waiting.outcome.add_done_callback(on_settled)
            outcomes = await self._outcomes([waiting.call for waiting in batch])
            for waiting, outcome in zip(batch, outcomes, strict=True):
                if not waiting.outcome.done():
                    waiting.outcome.set_result(outcome)
        finally:
            self._running.discard(task)
            for waiting in batch:
                waiting.outcome.cancel()

    async def _outcomes(self, calls: list[Call]) -> list[Outcome]:
        """Logs a failure of the whole batch once."""
        count, code, text = len(calls), FAILED, ""
        try:
            return await self._run(calls)
        except CallFailed as error:
            log.warning(BATCH_FAILED, count, self.name, error)
            code, text = error.code, error.text
        except FunctionFailed as error:
            log.warning(BATCH_RAISED_THERE, count, self.name, error.traceback)
            text = str(error)
        except (Exception, SystemExit) as error:
            log.warning(BATCH_RAISED, count, self.name, exc_info=from_the_function(error))
            text = error_text(error)
        return [BatchFailed(code, text) for _ in calls]


def run_here(function: BatchFunction, threads: Threads) -> RunBatch:
    """Runs the function on the loop, or in a thread."""

    async def run(calls: list[Call]) -> list[Outcome]:
        if runs_on_loop(function):
            value = function(calls)
        else:
            value = await threads.run(asyncio.get_running_loop(), lambda: function(calls))
        if inspect.isawaitable(value):
            value = await value
        return outcomes_of(value, len(calls))

    return run
