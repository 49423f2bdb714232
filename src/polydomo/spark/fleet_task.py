"""One worker of a fleet, in a task of Spark: it serves until the driver asks it to leave, or until the driver is lost.

The worker keeps a connection to the driver, over which it sends its name and reports that it serves. When the driver sends a line, the
worker finishes the calls that it holds, and the task ends.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from polydomo.client.background import new_event_loop
from polydomo.errors import PolydomoError
from polydomo.limits import FLEET_BACKOFF, FLEET_HELLO
from polydomo.worker.aio import AsyncWorker
from polydomo.worker.loading import load

READY = b"ready\n"  # from the worker: it is registered at the broker
LEAVE = b"leave\n"  # from the driver


class DriverGone(PolydomoError):
    """The connection to the driver of the fleet was lost."""


@dataclass(frozen=True)
class WorkerPlan:
    """The configuration of a worker. It is sent to executors, so it has only plain values."""

    to: str
    service: str
    function: str  # module:function
    driver: tuple[str, int]  # where the driver of the fleet listens
    secret: str  # secret that authenticates a worker to the driver
    protocol: str = "mdx"
    concurrency: int = 1
    grace: float = 10.0
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of the worker, such as security

    def worker(self, number: int, function: Callable[..., Any]) -> AsyncWorker:
        name = f"{self.service[:60]}-{number}"
        made = AsyncWorker(
            self.to, self.protocol, concurrency=self.concurrency, grace=self.grace, name=name, **self.options
        )
        made.add(self.service, function)
        return made


def check_code(plan: WorkerPlan) -> str:
    """In a task, before the fleet starts: the error if the function cannot be imported there, otherwise ''."""
    try:
        plan.worker(0, load(plan.function))
    except PolydomoError as error:
        return f"{socket.gethostname()}: {error}"
    return ""


def run_worker(plan: WorkerPlan, number: int, attempt: int) -> None:
    """In a task: serves until the worker is asked to leave. Raises if it must be restarted."""
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(plan, number, attempt))
    except Exception:
        first, most = FLEET_BACKOFF
        time.sleep(min(most, first * 2.0 ** min(attempt, 10)))  # Spark restarts it at once
        raise


async def _serve(plan: WorkerPlan, number: int, attempt: int) -> None:
    worker = plan.worker(number, load(plan.function))
    try:
        async with asyncio.timeout(FLEET_HELLO):
            reader, writer = await asyncio.open_connection(*plan.driver)
    except (OSError, TimeoutError) as error:
        raise DriverGone(
            f"cannot reach the driver of the fleet at {plan.driver[0]}:{plan.driver[1]}: {error}"
        ) from None
    hello = {
        "secret": plan.secret,
        "number": number,
        "attempt": attempt,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    writer.write(json.dumps(hello).encode() + b"\n")
    asked = asyncio.ensure_future(reader.readline())
    serving = asyncio.ensure_future(worker.run())
    ready = asyncio.ensure_future(worker.ready())
    try:
        await asyncio.wait([serving, ready, asked], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            writer.write(READY)
        await asyncio.wait([serving, asked], return_when=asyncio.FIRST_COMPLETED)
        worker.stop()
        await serving
        if not asked.done() or asked.result() != LEAVE:
            raise DriverGone("the connection to the driver of the fleet was lost")
    finally:
        for task in (ready, asked, serving):
            task.cancel()
        writer.close()
