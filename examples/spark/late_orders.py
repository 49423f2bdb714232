"""Tables of your own: the services with slow requests in each hour, and how much of their time is spent in the queue.

polydomo pipeline run --journal polydomo-data/journal --tables tables --with examples/spark/late_orders.py
polydomo query --tables tables "SELECT * FROM slow_services ORDER BY slow DESC"
"""

from typing import TYPE_CHECKING

from polydomo.pipeline import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLOW_US = 2_000_000


@table("late_orders", reads=["requests"], by="hour")
def late_orders(requests: "DataFrame") -> "DataFrame":
    """one request for an orders service that took longer than 2 s"""
    late = requests.where(f"service LIKE 'orders.%' AND total_us > {SLOW_US}")
    return late.select("request", "service", "ended", "wait_us", "run_us", "total_us", "outcome", "date", "hour")


@table("slow_services", reads=["late_orders", "services"], by="hour")
def slow_services(late_orders: "DataFrame", services: "DataFrame") -> "DataFrame":
    """one orders service in one hour: its slow requests, and the share of them among all"""
    slow = late_orders.groupBy("date", "hour", "service").count().withColumnRenamed("count", "slow")
    hours = services.where("seconds = 3600").groupBy("date", "hour", "service").sum("requests")
    hours = hours.withColumnRenamed("sum(requests)", "requests")
    return slow.join(hours, ["date", "hour", "service"]).selectExpr("*", "slow / requests AS share")
