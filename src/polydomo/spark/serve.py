"""``polydomo spark serve``: a worker that offers SQL on a Spark session, and a new session if Spark's JVM ends."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.client.retry import ReconnectDelay
from polydomo.limits import SQL_RESTART
from polydomo.spark.spark_errors import jvm_process, said
from polydomo.spark.sql_query import QueryLimits
from polydomo.spark.sql_service import SqlService
from polydomo.worker.blocking import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("polydomo.spark")


def serve(
    open_session: "Callable[[], SparkSession]",
    close_session: "Callable[[SparkSession], None]",
    to: str,
    service: str = "spark.sql",
    concurrency: int = 4,
    limits: QueryLimits | None = None,
    writable: bool = False,
) -> None:
    """Warms up Spark, offers the service, and serves until SIGTERM or SIGINT.

    If Spark's JVM ends, for example because a query needed too much memory or could not be cancelled, the worker leaves the broker, so that
    requests are queued or go to another worker. It returns with a new session.
    """
    spark = open_session()
    backoff = ReconnectDelay(*SQL_RESTART)
    while True:
        began = time.monotonic()
        try:
            ended = _serve_session(spark, to, service, concurrency, limits, writable)
        finally:
            close_session(spark)
        if not ended:
            return
        log.error("Spark's JVM has ended; %s leaves the broker until a new session is open", service)
        if time.monotonic() - began > backoff.most:
            backoff.reset()
        spark = _reopened(open_session, backoff)


def _serve_session(
    spark: "SparkSession", to: str, service: str, concurrency: int, limits: QueryLimits | None, writable: bool
) -> bool:
    """Returns whether the JVM ended; False after a signal."""
    function = SqlService(spark, limits, writable, concurrency, ends_jvm=True)
    function.warm_up()
    worker = Worker(to, concurrency=concurrency)
    worker.add(service, function.__call__, schema=function.schema)
    process = jvm_process()
    ended = threading.Event()

    def watch() -> None:
        if process is not None:
            process.wait()
            ended.set()
            worker.stop()

    threading.Thread(target=watch, name="polydomo-jvm-watch", daemon=True).start()
    worker.run()
    return ended.is_set()


def _reopened(open_session: "Callable[[], SparkSession]", backoff: ReconnectDelay) -> "SparkSession":
    while True:
        time.sleep(backoff.next())
        try:
            return open_session()
        except Exception as error:
            log.error("no new Spark session: %s; trying again", said(error))
