"""Workers as tasks of Spark: the driver starts, counts, replaces and stops them.

Workers are the tasks of one long-running Spark job; each time the fleet grows, another job holds the new ones. If a task fails or its
executor is lost, Spark starts it again, possibly on another executor. If a whole job fails, this module starts it again.
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
from polydomo.client.retry import ReconnectDelay
from polydomo.errors import PolydomoError, SettingError
from polydomo.limits import FLEET_BACKOFF, FLEET_HELLO, FLEET_LEAVE, FLEET_LOOK
from polydomo.spark.fleet_task import LEAVE, READY, WorkerPlan, check_code
from polydomo.spark.scaling import Scaling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polydomo.spark")

LOOPBACK = "127.0.0.1"


@dataclass
class FleetWorker:
    """One worker of the fleet. Its task and its executor may change."""

    number: int
    attempt: int = -1  # of its task; a higher number replaces a lower one
    writer: asyncio.StreamWriter | None = None  # to the worker; None: its task is not running
    serves: bool = False  # it is registered at the broker
    leaving: bool = False


class Fleet:
    """Runs on an event loop of the driver. ``stop`` lets the workers finish the requests that they hold."""

    def __init__(self, spark: "SparkSession", plan: WorkerPlan, scaling: Scaling, start: int) -> None:
        self._context = spark.sparkContext
        self._plan = plan
        self._scaling = scaling
        self._start = start
        self._workers: dict[int, FleetWorker] = {}
        self._jobs: set[str] = set()  # running groups of Spark jobs
        self._numbers = 0
        self._stop = asyncio.Event()
        self._change = asyncio.Event()
        self._shown = (-1, -1)

    @property
    def serving(self) -> int:
        """Number of workers that are registered at the broker."""
        return sum(worker.serves for worker in self._workers.values())

    @property
    def size(self) -> int:
        """The target number of workers."""
        return sum(not worker.leaving for worker in self._workers.values())

    def stop(self) -> None:
        """From another thread: ``loop.call_soon_threadsafe(fleet.stop)``."""
        self._stop.set()
        self._change.set()

    def cancel(self) -> None:
        """Stops every worker at once: the broker requeues the requests that they hold."""
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
        """Imports the function in one task, so that an error is reported once and not by every worker."""
        plan = self._plan

        def check(rows: "Iterable[Any]") -> "Iterator[str]":
            yield check_code(plan)

        for problem in self._context.parallelize([0], 1).mapPartitions(check).collect():
            if problem:
                raise SettingError(
                    f"an executor cannot load the function ({problem}); add its code with --py-files or --archives"
                )

    def _launch(self, count: int) -> None:
        if count > 0:
            numbers = list(range(self._numbers, self._numbers + count))
            self._numbers += count
            self._workers |= {number: FleetWorker(number) for number in numbers}
            self._start_job(numbers, ReconnectDelay(*FLEET_BACKOFF))

    def _start_job(self, numbers: list[int], backoff: ReconnectDelay) -> None:
        """Waits for the job in a thread, because Spark's call blocks."""
        plan, context, loop = self._plan, self._context, asyncio.get_running_loop()
        group = f"polydomo-fleet-{plan.service}-{secrets.token_hex(4)}"
        self._jobs.add(group)

        def serve(rows: "Iterable[int]") -> "Iterator[int]":
            from pyspark import TaskContext

            from polydomo.spark.fleet_task import run_worker  # by name, so that executors use their installed version

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

    def _job_ended(self, group: str, numbers: list[int], problem: str, backoff: ReconnectDelay) -> None:
        self._jobs.discard(group)
        left = [number for number in numbers if number in self._workers and not self._workers[number].leaving]
        for number in numbers:
            if number not in left:
                self._workers.pop(number, None)
        if left and not self._stop.is_set():
            log.warning("the Spark job of %d workers failed: %s; restarting it", len(left), problem or "it ended")
            asyncio.get_running_loop().call_later(backoff.next(), self._again, left, backoff)
        self._change.set()

    def _again(self, numbers: list[int], backoff: ReconnectDelay) -> None:
        left = [self._workers[number] for number in numbers if number in self._workers]
        for worker in left:
            worker.attempt = -1  # a new job counts its attempts from 0
        if left and not self._stop.is_set():
            self._start_job([worker.number for worker in left], backoff)

    # --- the connections of workers

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = json.loads(await reader.readline())
            known = isinstance(hello, dict) and secrets.compare_digest(str(hello.get("secret")), self._plan.secret)
        except (ValueError, OSError):
            known = False
        worker = self._workers.get(hello.get("number", -1)) if known else None
        if worker is None or (worker.attempt > hello["attempt"] and worker.writer is not None):
            if known:
                writer.write(LEAVE)  # Spark has restarted it elsewhere, or it is no longer needed
            writer.close()
            return
        if worker.writer is not None:
            worker.writer.write(LEAVE)
        worker.attempt, worker.writer, worker.serves = hello["attempt"], writer, False
        if worker.leaving:
            writer.write(LEAVE)
        self._change.set()
        try:
            while await reader.readline() == READY:  # until it leaves or is lost
                worker.serves = worker.writer is writer
                self._change.set()
        except OSError:
            pass
        writer.close()
        if worker.writer is writer:
            worker.writer, worker.serves = None, False
            if worker.leaving:
                self._workers.pop(worker.number, None)
            else:
                log.warning(
                    "worker %d on %s is lost; Spark restarts it", worker.number, str(hello.get("host", "unknown"))
                )
            self._change.set()

    def _dismiss(self, count: int) -> None:
        """Asks this many workers to leave, starting with those that are not registered yet."""
        staying = [worker for worker in self._workers.values() if not worker.leaving]
        staying.sort(key=lambda worker: (worker.serves, -worker.number))
        for worker in staying[:count]:
            worker.leaving = True
            if worker.writer is not None:
                worker.writer.write(LEAVE)

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
            log.debug("cannot read the length of the queue: %s", error)
            return
        row = next((row for row in rows if row["name"] == self._plan.service), {"idle": 0, "queued": 0})
        size = self.size
        starting = sum(not worker.serves and not worker.leaving for worker in self._workers.values())
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
        """Lets every worker finish the requests that it holds. Workers that take longer than the grace time are stopped."""
        log.info("stopping: %d workers finish their calls", self.serving)
        self._dismiss(len(self._workers))
        end = time.monotonic() + self._plan.grace + FLEET_LEAVE
        while self._jobs and time.monotonic() < end:
            if self._workers and all(worker.writer is None for worker in self._workers.values()):
                self.cancel()  # the others have left; these wait for a core
            self._change.clear()
            try:
                async with asyncio.timeout(FLEET_LOOK):
                    await self._change.wait()
            except TimeoutError:
                pass
