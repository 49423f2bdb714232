"""``polydomo spark serve``: a worker that offers SQL on a Spark session, and a new session if Spark's JVM ends."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from polydomo.client.background import new_event_loop
from polydomo.client.retry import ReconnectDelay
from polydomo.limits import SQL_RESTART, SQL_STOP
from polydomo.spark.spark_errors import jvm_process, said
from polydomo.spark.sql_query import QueryLimits
from polydomo.spark.sql_service import SqlService
from polydomo.worker.aio import AsyncWorker
from polydomo.worker.blocking import handled_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polydomo.spark")

T = TypeVar("T")


def serve(
    open_session: "Callable[[], SparkSession]",
    close_session: "Callable[[SparkSession], None]",
    to: str,
    service: str = "spark.sql",
    concurrency: int = 4,
    limits: QueryLimits | None = None,
    writable: bool = False,
) -> None:
    """Warms up Spark, offers the service, and serves until SIGTERM or SIGINT. A second signal ends running queries.

    If Spark's JVM ends, for example because a query needed too much memory or could not be cancelled, the worker leaves the broker, so that
    requests are queued or go to another worker. It returns with a new session.
    """

    def make_worker(spark: "SparkSession") -> AsyncWorker:
        function = SqlService(spark, limits, writable, concurrency, ends_jvm=True)
        function.warm_up()
        worker = AsyncWorker(to, concurrency=concurrency)
        worker.add(service, function.__call__, schema=function.schema)
        return worker

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_serve(open_session, close_session, make_worker, service))
        except asyncio.CancelledError:
            pass  # the second signal


async def _serve(
    open_session: "Callable[[], SparkSession]",
    close_session: "Callable[[SparkSession], None]",
    make_worker: "Callable[[SparkSession], AsyncWorker]",
    service: str,
) -> None:
    """What blocks runs in threads, so that a signal is handled at every moment."""
    stop = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None

    def leave() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    backoff = ReconnectDelay(*SQL_RESTART)
    with handled_signals(leave):
        spark = await _opened(open_session, stop)
        while spark is not None:
            began = time.monotonic()
            try:
                await _serve_session(await _in_thread(make_worker, spark), stop)
            finally:
                await _in_thread(close_session, spark)
            if stop.is_set():
                return
            log.error("Spark's JVM has ended; %s leaves the broker until a new session is open", service)
            if time.monotonic() - began > backoff.most:
                backoff.reset()
            spark = await _reopened(open_session, backoff, stop)


async def _serve_session(worker: AsyncWorker, stop: asyncio.Event) -> None:
    """Serves until the JVM ends, or a signal."""
    process = jvm_process()
    if process is not None:
        _in_thread(process.wait).add_done_callback(lambda _: worker.stop())
    stopping = asyncio.ensure_future(stop.wait())
    stopping.add_done_callback(lambda _: worker.stop())
    try:
        await worker.run()
    finally:
        stopping.cancel()


async def _reopened(
    open_session: "Callable[[], SparkSession]", backoff: ReconnectDelay, stop: asyncio.Event
) -> "SparkSession | None":
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), backoff.next())
        try:
            return await _opened(open_session, stop)
        except Exception as error:
            log.error("no new Spark session: %s; trying again", said(error))


async def _opened(open_session: "Callable[[], SparkSession]", stop: asyncio.Event) -> "SparkSession | None":
    """None if it was not opened, because of a signal. A JVM that is starting ends with this process, at the end of its input."""
    if stop.is_set():
        return None
    opening, stopping = _in_thread(open_session), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            log.info("stopping as soon as the session is open")
            await asyncio.wait((opening,), timeout=SQL_STOP)
    finally:
        stopping.cancel()
    return opening.result() if opening.done() else None


def _in_thread(function: Callable[..., T], *arguments: object) -> "asyncio.Future[T]":
    """Runs a function that blocks, in a thread that the process does not wait for when it exits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def end(result: "Callable[[], None]") -> None:
        if not future.done():
            result()

    def run() -> None:
        try:
            found = function(*arguments)
        except Exception as error:
            settle = partial(future.set_exception, error)
        else:
            settle = partial(future.set_result, found)
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(end, settle)

    threading.Thread(target=run, name="polydomo-spark", daemon=True).start()
    return future
