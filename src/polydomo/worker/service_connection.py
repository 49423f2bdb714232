"""A connection over which a worker offers services. It holds several jobs at a time and reconnects whenever it is lost.

A worker with concurrency N has one connection per offer, if the protocol and the broker allow N jobs on one connection. Otherwise the
first connection opens as many more as needed (``siblings``).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Any

from polydomo.client.connection import connect
from polydomo.client.retry import ReconnectDelay
from polydomo.client.suspension import wait_running
from polydomo.errors import CallFailed, NotConnected, ProtocolViolation
from polydomo.limits import CLOSE_TIME, CONNECT_TIME, LISTED, REJECTED, SETTLED
from polydomo.model.outcomes import FAILED
from polydomo.protocols.ends import Cancelled, Delivery, Revoked, WorkerEnd
from polydomo.wire.address import Address
from polydomo.worker.batcher import Batcher, BatchFailed
from polydomo.worker.call import RUNNING, Call, Forward, Running
from polydomo.worker.functions import (
    Abandoned,
    Function,
    FunctionFailed,
    Threads,
    error_text,
    execute,
    from_the_function,
    runs_on_loop,
)
from polydomo.worker.progress import LoopReporter
from polydomo.worker.registration import Registration

log = logging.getLogger("polydomo.worker")

GOODBYE = "the worker disconnects"
CALL_FAILED = "a call of %s failed: %s"
CALL_RAISED = "a call of %s failed"
CALL_RAISED_THERE = "a call of %s failed\n%s"  # in another process
FAILURES = (CALL_FAILED, CALL_RAISED, CALL_RAISED_THERE)


class Work:
    """One request that the worker has received."""

    __slots__ = ("arrived", "call", "delivery", "registration", "released", "stoppable", "task")

    def __init__(self, registration: Registration, delivery: Delivery) -> None:
        self.registration = registration
        self.delivery = delivery
        self.arrived = time.monotonic()
        self.call: Call | None = None  # set once it runs
        self.stoppable = False  # it runs on the event loop, where it can be cancelled
        self.released = False  # it was returned to the broker, so the outcome is ignored
        self.task: asyncio.Task[None] | None = None


def listed(names: Iterable[bytes]) -> str:
    """
    >>> listed([b"a", b"b"]), listed([b"%d" % n for n in range(9)])
    ('a, b', '0, 1, 2, 3, 4 and 4 more')
    """
    shown = [name.decode(errors="replace") for name in names]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return ", ".join(shown[:LISTED]) + more


class ServiceConnection:
    """Stays registered until ``stop``."""

    def __init__(
        self,
        address: Address,
        make_end: Callable[[], WorkerEnd],
        functions: "Mapping[bytes, Function | Batcher]",
        threads: Threads,
        turns: asyncio.Semaphore,
        share: tuple[int, int],
        on_registered: Callable[[Registration, list[bytes]], None] = lambda registration, names: None,
    ) -> None:
        self.on_registered = on_registered  # called with the names after each registration
        self.address = address
        self.turns = turns  # limits running functions; shared with the other connections of the same offer
        # maximum number of running jobs, and of jobs held in addition
        self.slots, self.prefetch = share
        self.make_end = make_end
        self.functions = functions
        self.threads = threads
        self.name = listed(functions)  # for log lines
        self.ready = asyncio.Event()  # set after the first registration
        self.stopping = False
        self.refused = False  # no program listens at the address, as far as the last attempt shows
        self.accepted = False  # a program accepted the last attempt; it may not be a broker
        self.siblings: list[ServiceConnection] = []  # for jobs that do not fit on this connection
        self._registration: Registration | None = None
        self._work: dict[int, Work] = {}  # by the identity of the job; functions may outlive their connection
        self._rejections = 0  # registrations in a row that ended at once
        self._left_over = 0  # functions of an earlier connection that still run
        self._task: asyncio.Task[None] | None = None
        self._sibling_tasks: list[asyncio.Task[None]] = []

    def start(self) -> "asyncio.Task[None]":
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def registered(self) -> None:
        """Waits until this connection and its siblings have registered once."""
        await self.ready.wait()
        for sibling in self.siblings:
            await sibling.registered()

    async def stop(self, grace: float) -> None:
        """Lets running functions finish within ``grace`` seconds, returns jobs that were not started, disconnects, and ends."""
        self.stopping = True
        await asyncio.gather(self._stop(grace), *(sibling.stop(grace) for sibling in self.siblings))

    async def _stop(self, grace: float) -> None:
        registration = self._registration
        if registration is not None and self._work:
            registration.drain()
        for work in list(self._work.values()):
            if work.call is None and not work.released:
                self._withdraw(work)
        running = [work.task for work in self._work.values() if work.task is not None and work.call is not None]
        if running:
            await wait_running(running, grace)
        registration = self._registration
        if registration is not None:
            registration.leave(GOODBYE)
            await wait_running([registration.connection.gone], CLOSE_TIME)
            registration.connection.close(GOODBYE, abort=True)
        if any(work.call is not None for work in self._work.values()):
            log.warning("left %s while a call was running: the broker requeues it for another worker", self.name)
        self.drop()

    def drop(self) -> None:
        """Ends at once, without waiting. Does nothing after ``stop``."""
        self.stopping = True
        if self._registration is not None:
            self._registration.leave(GOODBYE)
        for task in (*(work.task for work in self._work.values()), self._task):
            if task is not None:
                task.cancel()
        for sibling in self.siblings:
            sibling.drop()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = ReconnectDelay()
        complained = False
        while not self.stopping:
            while len(self._work) >= self.slots:
                # Functions of the last connection may still run, and a worker that registers must be able to start a job.
                tasks = [work.task for work in self._work.values() if work.task is not None]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            try:
                registration = await self._register()
            except (NotConnected, ProtocolViolation) as error:
                self.refused = isinstance(error, NotConnected) and error.refused
                log.log(
                    logging.DEBUG if complained else logging.WARNING,
                    "cannot offer %s: %s; trying again",
                    self.name,
                    error,
                )
                complained = True
                await asyncio.sleep(backoff.next())
                continue
            complained = self.refused = False
            ends: list[asyncio.Future[Any]] = [registration.ended, *self._sibling_tasks]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for sibling in self._sibling_tasks:
                if sibling.done():
                    await sibling  # raises if it ended because of a bug
                    return
            self._registration = None
            for work in list(self._work.values()):
                if work.call is None and work.task is not None:
                    work.task.cancel()  # the broker dispatches requests that were not started to another worker
            if registration.worked or loop.time() - registration.since > SETTLED:
                backoff.reset()
                self._rejections = 0
            else:
                self._rejections += 1
            if not registration.failed and not self.stopping:
                self._report_end(registration.ended.result())
                await asyncio.sleep(backoff.next())

    def _report_end(self, why: str) -> None:
        """Logs the end of a registration. If registrations end at once, the broker rejects them: that is logged once, not at each try."""
        if self._rejections < REJECTED:
            log.warning("no longer registered for %s: %s; registering again", self.name, why)
        elif self._rejections == REJECTED:
            log.warning(
                "the broker rejects the registration for %s: %s; see the broker's log for the reason; trying again",
                self.name,
                why,
            )
        else:
            log.debug("the broker rejects the registration for %s: %s; trying again", self.name, why)

    def _was_accepted(self) -> None:
        self.accepted = True

    async def _register(self) -> Registration:
        registration = Registration(self.make_end(), self._on_job, self._on_unwanted)
        self.accepted = False
        registration.connection = await connect(
            self.address,
            registration.end,
            registration.on_event,
            registration.on_lost,
            CONNECT_TIME,
            self._was_accepted,
        )
        if not registration.connection.alive:
            raise NotConnected(f"{self.address}: the broker closed the connection")
        self._fit(registration.end.capacity())
        self._left_over = len(self._work)
        registration.register(list(self.functions), max(1, self.slots - self._left_over), self.prefetch)
        self._registration = registration
        if self.ready.is_set() and self._rejections < REJECTED:
            log.info("offering %s again at %s", self.name, self.address)
        self.ready.set()
        self.on_registered(registration, list(self.functions))
        return registration

    def _fit(self, capacity: int) -> None:
        """The broker allows ``capacity`` jobs on one connection. Opens more connections for the rest."""
        if self.slots + self.prefetch <= capacity:
            return
        if self.slots <= capacity:
            self.prefetch = capacity - self.slots
            return
        for share in shares(self.slots - capacity, 0, capacity):
            sibling = ServiceConnection(
                self.address, self.make_end, self.functions, self.threads, self.turns, share, self.on_registered
            )
            self.siblings.append(sibling)
            self._sibling_tasks.append(sibling.start())
        self.slots, self.prefetch = capacity, 0

    def _on_job(self, registration: Registration, delivery: Delivery) -> None:
        if self.stopping:
            registration.release(delivery)
            return  # without such a message, the connection is closed next, which requeues the job
        work = Work(registration, delivery)
        self._work[id(delivery)] = work
        work.task = asyncio.get_running_loop().create_task(self._take(work))
        # Not at the end of ``_take``: a task that is cancelled before its first step runs nothing.
        work.task.add_done_callback(lambda _: self._forget(work))

    def _on_unwanted(self, registration: Registration, event: Cancelled | Revoked) -> None:
        work = self._work.get(id(event.delivery))
        if work is None:
            return
        if work.call is None:
            self._withdraw(work)
        elif isinstance(event, Revoked):
            registration.keep(event.delivery)
        else:
            work.call.cancelled = True
            if work.stoppable and work.task is not None:
                work.task.cancel()

    def _withdraw(self, work: Work) -> None:
        """The job was not started, and will not be."""
        # A worker that stops and cannot return its job closes the connection next, which requeues the job.
        if work.registration.release(work.delivery) or self.stopping:
            work.released = True
            if work.task is not None:
                work.task.cancel()

    async def _take(self, work: Work) -> None:
        """Waits for its turn, and runs."""
        try:
            async with self.turns:
                if not work.registration.ended.done() and not work.released and not self.stopping:
                    await self._execute(work)
        except asyncio.CancelledError:
            if work.call is not None and not work.call.cancelled:
                raise  # the worker is dropped

    def _forget(self, work: Work) -> None:
        """Its task has ended."""
        del self._work[id(work.delivery)]
        if self._left_over and work.registration is not self._registration:
            self._left_over -= 1
            if self._registration is not None:
                self._registration.grow(1)

    async def _execute(self, work: Work) -> None:
        registration, delivery = work.registration, work.delivery
        name = delivery.service.decode(errors="replace")

        async def send(body: list[bytes]) -> None:
            await registration.connection.writable()
            if registration.connection.must_ask(body):
                await registration.connection.ask_limit()
            if registration.ended.done() or call.cancelled:
                raise Abandoned
            registration.partial(delivery, body)

        call = Call(delivery, work.arrived)

        def begin() -> None:
            work.call = call

        def report(share: float, text: str) -> None:
            if not call.cancelled:
                registration.progress(delivery, share, text)

        reporter = LoopReporter(report)
        call.on_progress = reporter.report
        mark = RUNNING.set(Running(name, delivery.attempt.decode(errors="replace")))
        try:
            # An eMQP broker gives requests for a queue that no worker serves to a worker of "default".
            function = self.functions.get(delivery.service) or self.functions.get(b"default")
            if isinstance(function, Batcher):
                work.stoppable = True
                outcome = await function.serve(call, begin)
            else:
                begin()
                if function is None:
                    raise CallFailed(FAILED, f"this worker does not offer {name}")
                work.stoppable = runs_on_loop(function)
                outcome = await execute(function, call, send, self.threads)
            body = outcome.body if isinstance(outcome, Forward) else outcome
            reporter.finish()
            if registration.connection.must_ask(body):
                await registration.connection.ask_limit()
            work.stoppable = False
            if registration.ended.done():
                raise Abandoned
            if call.cancelled:
                registration.release(delivery)
            elif isinstance(outcome, Forward):
                registration.forward(delivery, outcome)
            else:
                registration.final(delivery, body)
        except Abandoned:
            self._abandoned(work, name)
        except BatchFailed as error:
            if not registration.ended.done() and not call.cancelled:
                registration.fail(delivery, error.code, error.text)
        except CallFailed as error:
            if call.cancelled:
                self._abandoned(work, name)
                return
            # The function reported the failure itself: a traceback would not help.
            log.warning(CALL_FAILED, name, error)
            if not registration.ended.done():
                registration.fail(delivery, error.code, error.text)
        except FunctionFailed as error:
            if call.cancelled:
                self._abandoned(work, name)
                return
            log.warning(CALL_RAISED_THERE, name, error.traceback)
            if not registration.ended.done():
                registration.fail(delivery, FAILED, str(error))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                if not call.cancelled or self.stopping:
                    raise  # the worker is dropped; otherwise it came from within, as SystemExit does, and is the function's own failure
                task.uncancel()
            if call.cancelled:
                self._abandoned(work, name)
                return
            log.warning(CALL_RAISED, name, exc_info=from_the_function(error))
            if not registration.ended.done():
                registration.fail(delivery, FAILED, error_text(error))
        finally:
            call.on_progress = None
            RUNNING.reset(mark)

    def _abandoned(self, work: Work, name: str) -> None:
        """Logs that a result is discarded: it is not wanted, or its connection is gone."""
        if work.registration.ended.done():
            log.warning("the result of a call of %s was discarded: its connection is gone", name)
        else:
            log.debug("a call of %s was cancelled", name)
            work.registration.release(work.delivery)


def shares(slots: int, prefetch: int, most: int, least: int = 1) -> "list[tuple[int, int]]":
    """Divides an offer among as few connections as possible, but at least ``least``. Each may hold ``most`` jobs.

    >>> shares(1000, 0, 10_000), shares(3, 9, 1), shares(20, 4, 8), shares(20, 0, 10_000, 2)
    ([(1000, 0)], [(1, 0), (1, 0), (1, 0)], [(7, 1), (7, 1), (6, 2)], [(10, 0), (10, 0)])
    """
    count = min(slots, max(least, ceil((slots + prefetch) / most)))
    found = []
    for i in range(count):
        own = slots // count + (i < slots % count)
        found.append((own, min(most - own, prefetch // count + (i >= count - prefetch % count))))
    return found
