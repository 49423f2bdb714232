"""A slot of a worker: a connection to the broker that holds one job at a time and is made again whenever it is lost.

A worker of concurrency N has N slots, even if the protocol allows several jobs per connection: in most protocols the only way to report a
failure is to leave, and a slot that leaves must not take the jobs of other slots with it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from polydomo.client.connection import Connection, connect
from polydomo.client.retry import Backoff
from polydomo.errors import CallFailed, NotConnected, PolydomoError, ProtocolViolation
from polydomo.limits import CLOSE_TIME, CONNECT_TIME, SETTLED
from polydomo.protocols.ends import Dismissed, Event, Job, WorkerEnd
from polydomo.protocols.request import FAILED
from polydomo.wire.address import Address
from polydomo.worker.call import Call
from polydomo.worker.context import RUNNING, Running
from polydomo.worker.functions import Abandoned, Function, Threads, error_text, execute, from_the_function

log = logging.getLogger("polydomo.worker")

GOODBYE = "the worker leaves"
CALL_FAILED = "a call of %s failed: %s"


class Registration:
    """A slot's registration on one connection, from its READY to its end."""

    connection: Connection
    worked = False  # it was given a job
    failed = False  # it left because a job failed; the broker is not at fault
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, end: WorkerEnd, on_job: "Callable[[Registration, Job], None]") -> None:
        self.end = end
        self.on_job = on_job
        self.loop = asyncio.get_running_loop()
        self.since = self.loop.time()
        self.said = self.since  # when it last answered
        self.ended: asyncio.Future[str] = self.loop.create_future()  # why

    def register(self, services: list[bytes]) -> None:
        self.end.open(services, 1)
        self.connection.flush_soon()
        self._timer = self.loop.call_later(self.end.interval, self._beat)

    def leave(self, reason: str) -> None:
        """Sends the protocol's goodbye and closes the connection."""
        if self.connection.alive:
            self.end.close()
            self.connection.close(reason)
        self._over(reason)

    def partial(self, job: Job, body: list[bytes]) -> None:
        self.end.partial(job, body)
        self.said = self.loop.time()
        self.connection.flush_soon()

    def final(self, job: Job, body: list[bytes]) -> None:
        self.end.final(job, body)
        self.said = self.loop.time()
        self.connection.flush_soon()

    def fail(self, job: Job, code: str, text: str) -> None:
        if self.end.fail(job, code, text):
            self.failed = True
            self.connection.close("a job failed, and the protocol can only tell by leaving")
            self._over("a job failed")
        else:
            self.said = self.loop.time()
            self.connection.flush_soon()

    def on_event(self, event: Event) -> None:
        if isinstance(event, Job):
            self.worked = True
            self.on_job(self, event)
        elif isinstance(event, Dismissed):
            self.connection.close(f"the broker said {event.why}")
            self._over(f"the broker said {event.why}")

    def on_lost(self, error: PolydomoError) -> None:
        self._over(str(error))

    def _over(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(reason)

    def _beat(self) -> None:
        now = self.loop.time()
        silence = now - self.connection.heard
        if self.end.patience and silence > self.end.patience:
            self.connection.close(f"the broker has been silent for {silence:.1f} s", abort=True)
            return
        waiting = len(self.end.out)
        self.end.beat()
        self.connection.flush_soon()
        wait = self.end.interval
        if len(self.end.out) == waiting and now < self.said + wait:
            # An MDX worker that has just answered need not beat. The next beat is due one interval after that answer, not after
            # this moment: otherwise the broker would consider the worker late.
            wait = self.said + wait - now
        self._timer = self.loop.call_later(wait, self._beat)


class Slot:
    """Stays registered until ``stop``."""

    def __init__(
        self,
        address: Address,
        make_end: Callable[[], WorkerEnd],
        functions: dict[bytes, Function],
        threads: Threads,
        turn: asyncio.Lock,
        on_registered: Callable[[list[bytes]], None] = lambda names: None,
    ) -> None:
        self.on_registered = on_registered  # told the names each time they were registered
        self.address = address
        self.turn = turn  # held while a function runs; shared with the same slot at other brokers
        self.make_end = make_end
        self.functions = functions
        self.threads = threads
        self.name = ", ".join(name.decode(errors="replace") for name in functions)
        self.ready = asyncio.Event()  # registered once
        self.stopping = False
        self._registration: Registration | None = None
        self._running: asyncio.Task[None] | None = None  # the function, which may outlive its connection
        self._waiting: deque[tuple[Registration, Job]] = (
            deque()
        )  # a DCP heartbeat asks for one more, even from a busy worker
        self._task: asyncio.Task[None] | None = None

    def start(self) -> "asyncio.Task[None]":
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    async def stop(self, grace: float) -> None:
        """Lets the function that runs finish within ``grace`` seconds, says goodbye, and ends."""
        self.stopping = True
        if self._running is not None:
            if self._registration is not None:
                self._registration.end.drain()
            await asyncio.wait([self._running], timeout=grace)
        registration = self._registration
        if registration is not None:
            registration.leave(GOODBYE)
            await asyncio.wait([registration.connection.gone], timeout=CLOSE_TIME)
            registration.connection.close(GOODBYE, abort=True)
        if self._running is not None:
            log.warning("left %s while a call was running: the broker requeues it for another worker", self.name)
        self.drop()

    def drop(self) -> None:
        """Ends without waiting for anything; after ``stop``, does nothing."""
        self.stopping = True
        if self._registration is not None:
            self._registration.leave(GOODBYE)
        for task in (self._running, self._task):
            if task is not None:
                task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        complained = False
        while not self.stopping:
            if self._running is not None:
                # One function at a time, also across connections: a worker that registers must be free.
                await asyncio.wait([self._running])
            try:
                registration = await self._register()
            except (NotConnected, ProtocolViolation) as error:
                log.log(
                    logging.DEBUG if complained else logging.WARNING,
                    "cannot offer %s: %s; trying again",
                    self.name,
                    error,
                )
                complained = True
                await asyncio.sleep(backoff.next())
                continue
            complained = False
            reason = await registration.ended
            self._registration = None
            if registration.worked or loop.time() - registration.since > SETTLED:
                backoff.reset()
            if not registration.failed and not self.stopping:
                log.warning("no longer registered for %s: %s; registering again", self.name, reason)
                await asyncio.sleep(backoff.next())

    async def _register(self) -> Registration:
        registration = Registration(self.make_end(), self._on_job)
        registration.connection = await connect(
            self.address, registration.end, registration.on_event, registration.on_lost, CONNECT_TIME
        )
        if not registration.connection.alive:
            raise NotConnected(f"{self.address}: the broker closed the connection")
        registration.register(list(self.functions))
        self._registration = registration
        if self.ready.is_set():
            log.info("offering %s again at %s", self.name, self.address)
        self.ready.set()
        self.on_registered(list(self.functions))
        return registration

    def _on_job(self, registration: Registration, job: Job) -> None:
        if self.stopping:
            return  # the slot leaves next, which requeues the job
        self._waiting.append((registration, job))
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._work_through())

    async def _work_through(self) -> None:
        """Runs the waiting jobs, one after the other."""
        try:
            while self._waiting:
                registration, job = self._waiting.popleft()
                if not registration.ended.done():
                    async with self.turn:
                        await self._work(registration, job)
        finally:
            self._running = None

    async def _work(self, registration: Registration, job: Job) -> None:
        name = job.service.decode(errors="replace")

        async def send(body: list[bytes]) -> None:
            await registration.connection.writable()
            if registration.ended.done():
                raise Abandoned
            registration.partial(job, body)

        mark = RUNNING.set(Running(name, job.attempt.decode(errors="replace")))
        try:
            # An eMQP broker gives requests for a queue that nobody serves to a worker of "default".
            function = self.functions.get(job.service) or self.functions.get(b"default")
            if function is None:
                raise CallFailed(FAILED, f"this worker does not offer {name}")
            body = await execute(function, Call(job), send, self.threads)
            if registration.ended.done():
                raise Abandoned
            registration.final(job, body)
        except Abandoned:
            log.warning("the result of a call of %s was discarded: its connection is gone", name)
        except CallFailed as error:
            log.warning(
                CALL_FAILED, name, error
            )  # the function reported the failure itself: a traceback would not help
            if not registration.ended.done():
                registration.fail(job, error.code, error.text)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the slot is dropped; otherwise it came from within, as SystemExit does, and is the function's own failure
            log.warning("a call of %s failed", name, exc_info=from_the_function(error))
            if not registration.ended.done():
                registration.fail(job, FAILED, error_text(error))
        finally:
            RUNNING.reset(mark)
