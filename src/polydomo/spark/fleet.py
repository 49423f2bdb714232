"""A fleet of workers as tasks of Spark: started, counted, replaced and asked to leave by the driver.

Workers are the tasks of one long-running Spark job; each time the fleet grows, another job holds the new ones. A task that fails, or whose
executor is lost, is started again by Spark, elsewhere if need be. A job that fails as a whole is started again here.
"""

import asyncio
import json
import logging
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from polydomo.client.aio import AsyncClient
from polydomo.client.retry import Backoff
from polydomo.errors import PolydomoError, SettingError
from polydomo.limits import FLEET_BACKOFF, FLEET_HELLO, FLEET_LEAVE, FLEET_LOOK
from polydomo.spark.fleet_task import LEAVE, READY, Plan, check_code
from polydomo.spark.scaling import Scaling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polydomo.spark")

LOOPBACK = "127.0.0.1"


@dataclass
class Seat:
    """One worker of the fleet, whichever task and executor it has at the moment."""

    number: int
    attempt: int = -1  # of its task; a higher one has replaced it
    writer: asyncio.StreamWriter | None = None  # to the worker; None: its task does not run at the moment
    serves: bool = False  # it has registered at the broker
    leaving: bool = False


class Fleet:
    """Runs on an event loop of the driver. ``stop`` lets the workers finish what they hold."""

    def __init__(self, spark: "SparkSession", plan: Plan, scaling: Scaling, start: int) -> None:
        self._context = spark.sparkContext
        self._plan = plan
        self._scaling = scaling
        self._start = start
        self._seats: dict[int, Seat] = {}
        self._jobs: set[str] = set()  # groups of Spark jobs that run
        self._numbers = 0
        self._stop = asyncio.Event()
        self._change = asyncio.Event()
        self._shown = (-1, -1)

    @property
    def serving(self) -> int:
        """Workers that have registered at the broker."""
        return sum(seat.serves for seat in self._seats.values())

    @property
    def size(self) -> int:
        """Workers that there should be."""
        return sum(not seat.leaving for seat in self._seats.values())

    def stop(self) -> None:
        """From another thread: ``loop.call_soon_threadsafe(fleet.stop)``."""
        self._stop.set()
        self._change.set()

    def cancel(self) -> None:
        """Ends every worker at once: the broker requeues what they hold."""
        for group in list(self._jobs):
            self._context.cancelJobGroup(group)

    async def run(self) -> None:
        """Serves until ``stop``. Raises SettingError if executors cannot import the function."""
        host = str(self._context.getConf().get("spark.driver.host") or LOOPBACK)
        server = await asyncio.start_server(
            self._joined, LOOPBACK if host in (LOOPBACK, "localhost") else None, self._plan.driver[1]
        )
        port = server.sockets[0].getsockname()[1]
        self._plan = replace(self._plan, driver=(host, port), secret=secrets.token_hex(32))
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._check)
            self._launch(self._start)
            await self._supervise()
            await self._drain()
        finally:
            self.cancel()
            server.close()

    # --- tasks

    def _check(self) -> None:
        """Imports the function in one task: a mistake is reported here, and not by every worker again and again."""
        plan = self._plan

        def check(rows: "Iterable[Any]") -> "Iterator[str]":
            yield check_code(plan)

        for problem in self._context.parallelize([0], 1).mapPartitions(check).collect():
            if problem:
                raise SettingError(
                    f"an executor cannot load the function ({problem}); ship its code with --py-files or --archives"
                )

    def _launch(self, count: int) -> None:
        if count > 0:
            numbers = list(range(self._numbers, self._numbers + count))
            self._numbers += count
            self._seats |= {number: Seat(number) for number in numbers}
            self._start_job(numbers, Backoff(*FLEET_BACKOFF))

    def _start_job(self, numbers: list[int], backoff: Backoff) -> None:
        """A thread waits for the job: Spark's own call does not return before."""
        plan, context, loop = self._plan, self._context, asyncio.get_running_loop()
        group = f"polydomo-fleet-{plan.service}-{secrets.token_hex(4)}"
        self._jobs.add(group)

        def serve(rows: "Iterable[int]") -> "Iterator[int]":
            from pyspark import TaskContext

            from polydomo.spark.fleet_task import run_worker  # by name, so that executors use what is installed there

            task = TaskContext.get()
            for number in rows:
                run_worker(plan, number, task.attemptNumber() if task is not None else 0)
                yield number

        def wait() -> None:
            problem = ""
            try:
                context.setJobGroup(group, f"polydomo workers of {plan.service}", interruptOnCancel=True)
                context.parallelize(numbers, len(numbers)).mapPartitions(serve).collect()
            except Exception as error:  # py4j raises many classes
                problem = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._job_ended, group, numbers, problem, backoff)

        threading.Thread(target=wait, name=group, daemon=True).start()

    def _job_ended(self, group: str, numbers: list[int], problem: str, backoff: Backoff) -> None:
        self._jobs.discard(group)
        left = [number for number in numbers if number in self._seats and not self._seats[number].leaving]
        for number in numbers:
            if number not in left:
                self._seats.pop(number, None)
        if left and not self._stop.is_set():
            log.warning("the Spark job of %d workers failed: %s; starting it again", len(left), problem or "it ended")
            asyncio.get_running_loop().call_later(backoff.next(), self._again, left, backoff)
        self._change.set()

    def _again(self, numbers: list[int], backoff: Backoff) -> None:
        left = [self._seats[number] for number in numbers if number in self._seats]
        for seat in left:
            seat.attempt = -1  # a new job counts its attempts from 0
        if left and not self._stop.is_set():
            self._start_job([seat.number for seat in left], backoff)

    # --- the connections of workers

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = json.loads(await reader.readline())
            known = isinstance(hello, dict) and secrets.compare_digest(str(hello.get("secret")), self._plan.secret)
        except (ValueError, OSError):
            known = False
        seat = self._seats.get(hello.get("number", -1)) if known else None
        if seat is None or (seat.attempt > hello["attempt"] and seat.writer is not None):
            if known:
                writer.write(LEAVE)  # Spark has started it again elsewhere, or it is not wanted any more
            writer.close()
            return
        if seat.writer is not None:
            seat.writer.write(LEAVE)
        seat.attempt, seat.writer, seat.serves = hello["attempt"], writer, False
        if seat.leaving:
            writer.write(LEAVE)
        self._change.set()
        try:
            while await reader.readline() == READY:  # until it leaves or is lost
                seat.serves = seat.writer is writer
                self._change.set()
        except OSError:
            pass
        writer.close()
        if seat.writer is writer:
            seat.writer, seat.serves = None, False
            if seat.leaving:
                self._seats.pop(seat.number, None)
            else:
                log.warning(
                    "worker %d on %s is lost: Spark starts it again", seat.number, str(hello.get("host", "unknown"))
                )
            self._change.set()

    def _dismiss(self, count: int) -> None:
        """Asks that many workers to leave, those that do not serve yet first."""
        staying = [seat for seat in self._seats.values() if not seat.leaving]
        staying.sort(key=lambda seat: (seat.serves, -seat.number))
        for seat in staying[:count]:
            seat.leaving = True
            if seat.writer is not None:
                seat.writer.write(LEAVE)

    # --- the size of the fleet

    async def _supervise(self) -> None:
        async with AsyncClient(self._plan.to, **self._plan.options) as client:
            while not self._stop.is_set():
                self._show()
                self._change.clear()
                try:
                    async with asyncio.timeout(FLEET_LOOK):
                        await self._change.wait()
                except TimeoutError:
                    if self._context._jsc is None:
                        raise PolydomoError("the Spark session has ended") from None
                    if not self._scaling.fixed:
                        await self._scale(client)

    async def _scale(self, client: AsyncClient) -> None:
        try:
            rows = (await client.call("polydomo.services", timeout=FLEET_HELLO)).json()
        except (PolydomoError, ValueError) as error:
            log.debug("the length of the queue is not known: %s", error)
            return
        row = next((row for row in rows if row["name"] == self._plan.service), {"idle": 0, "queued": 0})
        size = self.size
        starting = sum(not seat.serves and not seat.leaving for seat in self._seats.values())
        wanted = self._scaling.decide(
            time.monotonic(), workers=size, starting=starting, idle=row["idle"], queued=row["queued"]
        )
        if wanted != size:
            log.info("%d workers instead of %d: %d requests are queued", wanted, size, row["queued"])
        if wanted > size:
            self._launch(wanted - size)
        elif wanted < size:
            self._dismiss(size - wanted)

    def _show(self) -> None:
        now = (self.serving, self.size)
        if now != self._shown and now[0] >= now[1]:
            log.info("%d workers offer %s at %s", now[0], self._plan.service, self._plan.to)
        elif now != self._shown and self._shown[0] != now[0]:
            log.info("%d of %d workers offer %s; the others wait for a free core", *now, self._plan.service)
        self._shown = now

    async def _drain(self) -> None:
        """Every worker finishes what it holds. Those that take longer than the grace time are ended."""
        log.info("stopping: %d workers finish the calls that they hold", self.serving)
        self._dismiss(len(self._seats))
        end = time.monotonic() + self._plan.grace + FLEET_LEAVE
        while self._jobs and time.monotonic() < end:
            if self._seats and all(seat.writer is None for seat in self._seats.values()):
                self.cancel()  # the others have left; these wait for a core
            self._change.clear()
            try:
                async with asyncio.timeout(FLEET_LOOK):
                    await self._change.wait()
            except TimeoutError:
                pass
