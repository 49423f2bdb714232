"""``requests``: one row per request, with its turns. The parts of a bridged request on other brokers belong to the client's row.

This is the silver table: the others are computed from it and from the journal.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import bucket, hour_of, placed, sql
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TURN = (
    "ARRAY<STRUCT<broker: STRING, run: BIGINT, number: BIGINT, service: STRING, hop: INT, attempt: INT, seq: BIGINT, worker: INT, "
    "worker_peer: STRING, worker_protocol: STRING, principal: STRING, worker_principal: STRING, arrived: TIMESTAMP, began: TIMESTAMP, "
    "ended: TIMESTAMP, ending: STRING>>"
)
COLUMNS = columns(
    f"""
    request STRING -- its id: 26 characters, sorting by the time of acceptance
    broker STRING -- the broker that accepted it from the client
    run BIGINT -- that broker's run
    number BIGINT -- its number in the run
    seq BIGINT -- sequence number of the journal row that records it
    service STRING -- the service that the client asked for
    last_service STRING -- the service at which it ended, if a worker forwarded it
    client INT -- number of the client's connection in the run
    client_peer STRING -- the client's address
    client_protocol STRING -- the client's protocol
    worker INT -- number of the last worker it was dispatched to; 0 if none
    worker_peer STRING -- that worker's address
    worker_protocol STRING -- that worker's protocol
    accepted TIMESTAMP -- when the broker accepted it
    first_dispatched TIMESTAMP -- when it was first dispatched to a worker
    dispatched TIMESTAMP -- when it was last dispatched
    first_partial TIMESTAMP -- when the first partial reply came
    ended TIMESTAMP -- when it ended
    wait_us BIGINT -- time in queues: before the first worker, and after each requeue or forward
    run_us BIGINT -- time the last worker had it
    total_us BIGINT -- from `accepted` to `ended`
    wait_bucket INT -- logarithmic bucket of `wait_us`
    run_bucket INT -- logarithmic bucket of `run_us`
    total_bucket INT -- logarithmic bucket of `total_us`
    attempts INT -- dispatches at its last hop; of a durable job, counted over all its attempts
    max_attempts INT -- how many were allowed; 0 is any number
    dispatches INT -- dispatches over all hops; of an attempt of a durable job, those of this attempt
    hops INT -- how often it was forwarded
    partials INT -- partial replies that reached the client
    request_bytes BIGINT -- size of its body as framed
    reply_bytes BIGINT -- size of all replies that reached the client, as framed
    outcome STRING -- `ok`, or the kind of failure
    reason STRING -- why it failed
    trace STRING -- W3C trace context it came with
    parent STRING -- id of the request it continues on another broker, if these tables have no row of that request
    bridged INT -- how many other brokers it went through
    far_broker STRING -- the last of them; empty if none
    far_protocol STRING -- protocol of the worker that had it there
    principal STRING -- the client's principal, by the access file
    worker_principal STRING -- that worker's principal
    job STRING -- the durable job that it is an attempt of (`client_protocol` is `job`), or whose outcome its client waited for
    memo STRING -- for a memoised service: `hit` (answered with a stored reply), `miss` (a worker ran it) or `joined` (answered with the
        reply to an identical request that was running); else empty
    keyed STRING -- with an idempotency key: `joined` (an open request had the key) or, at level `messages`, `first` (it ran)
    key STRING -- that idempotency key
    client_id STRING -- the client's own id of the request: MDX's request id, eMQP's MSGID, DCP's metadata; HTTP's `traceparent` is in
        `trace`
    turns {TURN} -- its dispatches in order, with those at other brokers, if there were several or one did not end it; null if the row
        itself describes its only one
    """
)

# Records of the same request in the same hour: the first one counts.
REPEATED = f"""
SELECT run, number, h, min(seq) AS seq FROM (SELECT run, number, seq, {hour_of("time")} AS h FROM {{records}})
GROUP BY run, number, h HAVING count(*) > 1
"""
# How requests share runs: those for memoised services, and those with a key. The event comes with the request, perhaps in an earlier hour.
SHARED = """
SELECT run, number, min(IF(event = 'memo', struct(seq, outcome), NULL)).outcome AS memo,
    min(IF(event = 'keyed', struct(seq, outcome), NULL)).outcome AS keyed, min(IF(event = 'keyed', struct(seq, key), NULL)).key AS key
FROM {messages} WHERE event IN ('memo', 'keyed') GROUP BY run, number
"""

_TURN = ", ".join(f"x.{part.split(': ')[0]}" for part in TURN[13:-2].split(", "))
_COMPUTED = frozenset(
    "ended total_us wait_bucket run_bucket total_bucket bridged far_broker far_protocol memo keyed key turns worker worker_peer "
    "worker_protocol worker_principal dispatches wait_us run_us hour date".split()
)
_SAME = [column.name for column in COLUMNS if column.name not in _COMPUTED]

# A request that was dispatched once is described by its record alone. ``several`` has the others: Spark interprets functions over arrays,
# and so the whole step of a plan that has one.
SILVER = f"""
WITH own AS (
    SELECT r.*, IF(client_protocol = 'job', int(dispatched IS NOT NULL), int(dispatches)) AS own_dispatches
    FROM {{records}} r LEFT ANTI JOIN {{repeated}} d ON d.run = r.run AND d.number = r.number AND d.h = {hour_of("r.time")} AND r.seq >
        d.seq
),
more AS (
    SELECT s.* EXCEPT (turns), b.bridged, b.far_broker, b.far_protocol, b.part,
        transform(coalesce(sort_array(concat(b.turns, s.turns)), s.turns), x -> struct({_TURN})) AS turns
    FROM {{several}} s LEFT JOIN {{bridged}} b ON b.request = s.request
),
alone AS (SELECT *, own_dispatches = 1 AND attempts > 0 AND dispatched IS NOT NULL AS alone FROM own),
joined AS (
    SELECT hint {", ".join(f"r.{name}" for name in _SAME)}, r.time AS ended, unix_micros(r.time) - unix_micros(r.accepted) AS total_us,
        {", ".join(f"coalesce(s.{name}, r.{name}) AS {name}" for name in ("worker", "worker_peer", "worker_protocol", "worker_principal"))},
        coalesce(s.dispatches, r.own_dispatches) AS dispatches,
        coalesce(s.wait_us, CASE WHEN r.own_dispatches = 0 THEN unix_micros(r.time) - unix_micros(r.accepted)
            WHEN r.alone THEN unix_micros(r.dispatched) - unix_micros(r.accepted) ELSE r.wait_us END) AS wait_us,
        coalesce(s.run_us, IF(r.alone, unix_micros(r.time) - unix_micros(r.dispatched), r.run_us)) AS run_us,
        coalesce(s.bridged, 0) AS bridged, coalesce(s.far_broker, '') AS far_broker, coalesce(s.far_protocol, '') AS far_protocol,
        coalesce(m.memo, '') AS memo, coalesce(m.keyed, '') AS keyed, coalesce(m.key, '') AS key,
        coalesce(s.part, 'requests') AS part, s.turns
    FROM alone r LEFT JOIN more s ON s.run = r.run AND s.number = r.number AND s.seq = r.seq
        LEFT JOIN {{shared}} m ON m.run = r.run AND m.number = r.number
)
SELECT *, {bucket("wait_us")} AS wait_bucket, {bucket("run_us")} AS run_bucket, {bucket("total_us")} AS total_bucket,
    {placed("ended")} FROM joined
"""


def silver(
    records: "DataFrame",
    repeated: "DataFrame",
    several: "DataFrame",
    bridged: "DataFrame",
    shared: "DataFrame",
    broadcast: bool,
) -> "DataFrame":
    """The rows of ``requests`` (``part`` is ``requests``) and the parts of bridged requests at other brokers (``far``)."""
    text = SILVER.replace("SELECT hint", "SELECT /*+ BROADCASTJOIN(s, m) */" if broadcast else "SELECT")
    return sql(text, records=records, repeated=repeated, several=several, bridged=bridged, shared=shared)


@table(
    "requests",
    "one request, from the broker that accepted it from its client",
    reads=["parts"],
    columns=COLUMNS,
)
def requests(parts: "DataFrame") -> "DataFrame":
    return parts.where("part = 'requests'").drop("part")
