"""``polydomo spark serve``: a worker that offers SQL on a Spark session."""

from typing import TYPE_CHECKING

from polydomo.spark.sql_query import Limits
from polydomo.spark.sql_service import SqlService
from polydomo.worker.blocking import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def serve(
    spark: "SparkSession",
    to: str,
    service: str = "spark.sql",
    concurrency: int = 4,
    limits: Limits | None = None,
    writable: bool = False,
) -> None:
    """Warms up Spark, offers the service, and serves until SIGTERM or SIGINT."""
    function = SqlService(spark, limits, writable, concurrency)
    function.warm_up()
    worker = Worker(to, concurrency=concurrency)
    worker.add(service, function.__call__, schema=function.schema)
    worker.run()
