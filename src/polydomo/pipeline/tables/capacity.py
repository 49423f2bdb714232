"""``capacity``: the load at which the mean wait of a service would exceed its objective, and the used error budget.

The method. A service with *c* workers is a queue with *c* servers. The turns of its hour (dispatches of requests to its workers, forwarded
ones included) give the mean *m* and the squared coefficient of variation *cs* of the service times. Its arrivals
(requests accepted, forwarded to it or requeued), in order, give the rate and the squared coefficient of variation
*ca* of the times between arrivals: 1 for independent callers, more for bursts. Gaps of more than 10 seconds are
idle time and do not count. The mean wait at utilisation *r* is then, after Allen and Cunneen with Sakasegawa's
closed form of Erlang C,

    wait(r) = m * (ca + cs) / 2 * r ** (sqrt(2 * (c + 1)) - 1) / (c * (1 - r))

which rises with *r*: the greatest *r* of a thousand steps at which it is within the objective gives the load the service can take,
``r * c / m``. It is a forecast for more of the same work, not for other work. An hour with under 100 turns gives none (null).

The objective: a share ``target`` of all requests ends with ``ok`` within ``objective_us``. The error budget is the
rest; ``budget_used`` over 1 means that the objective was missed.
"""

from dataclasses import dataclass

from polydomo.pipeline.tables.table import UNIT, Column, Table

LEAST_TURNS = 100
STEPS = 1000
IDLE_SECONDS = 10  # a longer gap between two arrivals is idle time


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
        Column("requests", "BIGINT", "requests of clients for it that ended in the hour"),
        Column("turns", "BIGINT", "turns of its workers that ended in the hour"),
        Column("span_s", "DOUBLE", "seconds of the hour in which requests arrived, idle time left out"),
        Column("rate", "DOUBLE", "arrivals a second over that span"),
        Column("workers", "BIGINT", "workers that took part, on average over the time that any of them was present"),
        Column("service_us", "DOUBLE", "mean service time of a turn"),
        Column("service_scv", "DOUBLE", "squared coefficient of variation of the service times"),
        Column("arrival_scv", "DOUBLE", "squared coefficient of variation of the times between arrivals"),
        Column("utilisation", "DOUBLE", "rate by what the workers could do at that service time"),
        Column("objective_us", "BIGINT", "the objective"),
        Column("target", "DOUBLE", "the share of requests that should end within it"),
        Column("measured_wait_us", "DOUBLE", "mean wait of the turns, as far as it is recorded"),
        Column("wait_us", "DOUBLE", "mean wait that the model gives for the recorded load"),
        Column("capacity", "DOUBLE", "turns a second at which the mean wait would exceed the objective"),
        Column("headroom", "DOUBLE", "`capacity` by `rate`"),
        Column(
            "within",
            "BIGINT",
            "requests that ended within the objective, to the nearest bucket, less those that failed",
        ),
        Column("budget_used", "DOUBLE", "used share of the error budget; null if no client asked for the service"),
        *UNIT,
    ),
)
