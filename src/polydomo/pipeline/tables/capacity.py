"""``capacity``: for each service and hour, the load at which its wait would pass an objective, and how much of the
objective's budget is used.

The method. A service with *c* workers is a queue with *c* servers. Its hour gives the arrival rate, the mean *m* and
the squared coefficient of variation *cs* of the service times, and from the counts of its windows of 10 seconds the
variability *ca* of arrivals (variance by mean: 1 for independent callers, more for bursts). The mean wait at
utilisation *r* is then, after Allen and Cunneen with Sakasegawa's closed form of Erlang C,

    wait(r) = m * (ca + cs) / 2 * r ** (sqrt(2 * (c + 1)) - 1) / (c * (1 - r))

which rises with *r*: the greatest *r* of a thousand steps at which it is within the objective gives the load the
service can take, ``r * c / m``. It is a forecast for more of the same work, not for other work; an hour with under
100 requests gives none (null).

The objective: a share ``target`` of all requests ends well and within ``objective_us``. The budget is the rest;
``budget_used`` over 1 is a breach.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from polydomo.journal import histogram
from polydomo.pipeline.tables.table import UNIT, Column, Table, hour_of, quoted

LEAST_REQUESTS = 100
STEPS = 1000


@dataclass(frozen=True)
class Objective:
    seconds: float = 1.0
    target: float = 0.99


TABLE = Table(
    "capacity",
    "one service at one broker in one hour",
    (
        Column("window", "TIMESTAMP", "when the hour begins"),
        Column("broker", "STRING", "the broker"),
        Column("service", "STRING", "the service"),
        Column("requests", "BIGINT", "requests that ended in the hour"),
        Column("span_s", "DOUBLE", "seconds of the hour in which there were any: its windows of 10 s"),
        Column("rate", "DOUBLE", "requests a second over that span"),
        Column("workers", "BIGINT", "workers that had any of them"),
        Column("service_us", "DOUBLE", "mean service time"),
        Column("service_scv", "DOUBLE", "squared coefficient of variation of the service times"),
        Column("arrival_scv", "DOUBLE", "variability of arrivals: variance by mean of the counts of 10 s"),
        Column("utilisation", "DOUBLE", "share of the workers' time that was used"),
        Column("objective_us", "BIGINT", "the objective"),
        Column("target", "DOUBLE", "the share of requests that are to be within it"),
        Column("wait_us", "DOUBLE", "mean wait that the method gives for the load as it was"),
        Column("capacity", "DOUBLE", "requests a second at which the mean wait would pass the objective"),
        Column("headroom", "DOUBLE", "that by the load as it was"),
        Column(
            "within",
            "BIGINT",
            "requests that ended well or ill within the objective, to the nearest bucket, less those that failed",
        ),
        Column("budget_used", "DOUBLE", "share of the budget of requests outside the objective that is used up"),
        *UNIT,
    ),
)


def build(services: DataFrame, workers: DataFrame, objectives: Mapping[str, Objective] | None = None) -> DataFrame:
    given = dict(objectives or {})
    default = given.pop("*", Objective())

    def chosen(of: str) -> str:
        cases = "".join(f" WHEN {quoted(name)} THEN {getattr(objective, of)}D" for name, objective in given.items())
        return f"CASE service{cases} ELSE {getattr(default, of)}D END" if cases else f"{getattr(default, of)}D"

    key = ["window", "broker", "service"]
    hours = services.where("seconds = 3600")
    tens = services.where("seconds = 10").withColumn("window", f.expr(hour_of("window"))).groupBy(*key).agg(
        f.count("*").alias("tens"), f.avg("requests").alias("per_ten"), f.var_pop("requests").alias("spread"),
    )  # fmt: skip
    had = workers.where("turns > 0").groupBy(*key).agg(f.count("*").alias("workers"))
    wait = (
        "service_us * (arrival_scv + service_scv) / 2 * pow({r}, sqrt(2 * (workers + 1)) - 1) / (workers * (1 - {r}))"
    )
    steps = f"transform(sequence(1, {STEPS - 1}), i -> i / {STEPS}.0D)"
    able = f"requests >= {LEAST_REQUESTS} AND workers > 0 AND service_us > 0"
    limit = f"CAST(floor(ln(greatest(objective_us, 1)) / ln({histogram.RATIO}D)) AS INT)"
    within = f"aggregate(map_values(map_filter(total_histogram, (b, n) -> b <= {limit})), 0L, (sum, n) -> sum + n) - (requests - ok)"
    return (
        hours.join(tens, key)
        .join(had, key, "left")
        .na.fill(0, ["workers"])
        .withColumn("span_s", f.expr("tens * 10.0D"))
        .withColumn("rate", f.expr("requests / span_s"))
        .withColumn("service_us", f.expr("IF(worked > 0, run_us / CAST(worked AS DOUBLE), 0.0D)"))
        .withColumn(
            "service_scv",
            f.expr("IF(service_us > 0, greatest(0.0D, run_us2 / worked / (service_us * service_us) - 1), 0.0D)"),
        )
        .withColumn("arrival_scv", f.expr("IF(tens > 1 AND per_ten > 0, spread / per_ten, 1.0D)"))
        .withColumn("utilisation", f.expr("IF(workers > 0, least(1.0D, run_us / (span_s * 1e6D * workers)), 0.0D)"))
        .withColumn("objective_us", f.expr(f"CAST(round(({chosen('seconds')}) * 1e6D) AS BIGINT)"))
        .withColumn("target", f.expr(chosen("target")))
        .withColumn("wait_us", f.expr(f"IF({able} AND utilisation < 1, {wait.format(r='utilisation')}, NULL)"))
        .withColumn(
            "best", f.expr(f"IF({able}, array_max(filter({steps}, r -> {wait.format(r='r')} <= objective_us)), NULL)")
        )
        .withColumn("capacity", f.expr("best * workers * 1e6D / service_us"))
        .withColumn("headroom", f.expr("capacity / rate"))
        .withColumn("within", f.expr(f"greatest(0L, {within})"))
        .withColumn(
            "budget_used",
            f.expr(
                "IF(target < 1, (requests - within) / (requests * (1 - target)), CAST(requests - within AS DOUBLE))"
            ),
        )
        .transform(TABLE.contract)
    )
