"""``logs``: log records of services, joined to the requests for which they were written."""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import GATHER, hour_of, placed, sql
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A log record is written during its request, which ends in the same hour or the next.
LOGS = f"""
WITH written AS (SELECT *, {hour_of("time")} AS h FROM {{messages}} WHERE event = 'log'),
known AS (
    SELECT {GATHER} l.run, l.seq, min(struct(e.h, e.seq, e.request, e.outcome)) AS found
    FROM (SELECT run, seq, number, h FROM written WHERE number != 0) l
    JOIN {{ended}} e ON e.run = l.run AND e.number = l.number AND e.h - l.h BETWEEN 0 AND 1 GROUP BY l.run, l.seq
)
SELECT w.time, w.broker, w.run, w.seq, w.service, w.outcome AS level, w.reason AS message, w.peer, w.number,
    coalesce(k.found.request, '') AS request, coalesce(k.found.outcome, '') AS outcome, {placed("w.time")}
FROM written w LEFT JOIN known k ON k.run = w.run AND k.seq = w.seq
"""


@table(
    "logs",
    "one log record",
    reads=["messages", "ended"],
    columns=columns(
        """
        time TIMESTAMP -- when the broker received it
        broker STRING -- the broker
        run BIGINT -- its run
        seq BIGINT -- sequence number of the journal row
        service STRING -- the service that wrote it
        level STRING -- its level
        message STRING -- its text
        peer STRING -- address of the worker that sent it
        number BIGINT -- number of the request in the run; 0 if it was written for none
        request STRING -- id of the request, if it ended in this hour or the next; run and number find any
        outcome STRING -- how that request ended
        """
    ),
)
def logs(messages: "DataFrame", ended: "DataFrame") -> "DataFrame":
    return sql(LOGS, messages=messages, ended=ended)
