"""The turns of requests that have several, and the parts of bridged requests.

A *turn* is one dispatch of a request to a worker, until the worker has ended it or lost it. Most requests have at most one: their record in
the journal says everything about it. The turns of the others are computed from messages. The journal has a row at every level for a turn
that did not end its request (requeued, forwarded). The beginning of a turn is recorded only at level ``messages``, except for the first
and the last turn of a request.

A request that crossed a bridge has a record at each broker: a *part*. The parts belong to the request of the client if that is known and
ended within an hour of them.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.sql import BRIDGE, GATHER, hour_of, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_BRIDGES = 8  # that one request may cross

# What happened to a request between its acceptance and its end: ``ends`` of turns, and ``starts`` of all turns but the first.
STEPS = """
SELECT run, number,
    sort_array(collect_list(IF(event = 'dispatched', NULL, struct(hop, attempt, seq, event, time, service, worker, peer, protocol,
        principal))))
        AS ends,
    sort_array(collect_list(IF(event = 'dispatched', struct(seq, hop, attempt, time, service), NULL))) AS starts
FROM {messages} WHERE event IN ('requeued', 'forwarded') OR (event = 'dispatched' AND (attempt > 1 OR hop > 0))
GROUP BY run, number
"""

_INSIDE = (
    f"{hour_of('x.time')} BETWEEN {hour_of('accepted')} AND {hour_of('time')}"  # events of other hours are of no matter
)
# the first dispatch of the request: a durable job counts its attempts over several requests
_FIRST = "(x.hop = 0 AND x.attempt = 1 OR i = 0 AND client_protocol = 'job')"
_HERE = "s.hop = x.hop AND s.attempt = x.attempt"
TURNS = f"""
WITH joined AS (
    SELECT {{hint}} r.*, coalesce(filter(s.ends, x -> {_INSIDE}), array()) AS ends, coalesce(filter(s.starts, x -> {_INSIDE}), array())
        AS starts
    FROM (SELECT request, broker, run, number, seq, service, last_service, worker, worker_peer, worker_protocol, worker_principal,
        principal,
            client_protocol, accepted, first_dispatched, dispatched, time, attempts, dispatches, hops, outcome, parent, wait_us, run_us
        FROM {{{{records}}}} WHERE dispatches > 0 OR parent != '') r
    LEFT JOIN {{{{steps}}}} s ON s.run = r.run AND s.number = r.number
    WHERE s.run IS NOT NULL OR parent != '' OR worker_protocol = '{BRIDGE}'
),
first AS (SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY run, number, {hour_of("time")} ORDER BY seq) AS place FROM joined)
    WHERE place = 1),
ended AS (
    SELECT *, sort_array(concat(
        transform(ends, x -> struct(int(x.hop) AS hop, int(x.attempt) AS attempt, x.seq AS seq, IF(x.event = 'requeued', x.service, '')
            AS service,
            x.worker AS worker, x.peer AS peer, x.protocol AS protocol, x.principal AS principal, x.time AS ended, x.event AS ending)),
        IF(attempts = 0 OR dispatched IS NULL OR exists(ends, x -> x.event = 'requeued' AND x.hop = hops AND x.attempt = attempts), array(),
            array(struct(int(hops) AS hop, int(attempts) AS attempt, seq, last_service AS service, worker, worker_peer AS peer,
                worker_protocol AS protocol, worker_principal AS principal, time AS ended, IF(outcome = 'ok', 'final', 'failed') AS
                    ending)))
    )) AS t FROM first
),
timed AS (
    SELECT * EXCEPT (t), sort_array(transform(t, (x, i) -> struct(
        coalesce(CASE WHEN x.ending IN ('final', 'failed') THEN dispatched
            ELSE coalesce(try_element_at(filter(starts, s -> {_HERE}), 1).time, IF({_FIRST}, first_dispatched, NULL),
                IF(i = size(t) - 1, dispatched, NULL)) END, x.ended) AS at,
        run, x.hop AS hop, x.attempt AS attempt, x.seq AS seq, broker, number,
        coalesce(nullif(x.service, ''), nullif(try_element_at(filter(starts, s -> {_HERE}), 1).service, ''),
            nullif(try_element_at(filter(ends, s -> s.event = 'forwarded' AND s.hop + 1 = x.hop), -1).service, ''), IF(x.hop = 0,
                service, '')) AS service,
        x.worker AS worker, x.peer AS worker_peer, x.protocol AS worker_protocol, principal, x.principal AS worker_principal,
        IF((x.hop = 0 AND x.attempt = 1) OR i = 0, accepted, t[i - 1].ended) AS arrived,
        CASE WHEN x.ending IN ('final', 'failed') THEN dispatched
            ELSE coalesce(try_element_at(filter(starts, s -> {_HERE}), 1).time, IF({_FIRST}, first_dispatched, NULL),
                IF(i = size(t) - 1, dispatched, NULL)) END AS began,
        x.ended AS ended, x.ending AS ending))) AS turns
    FROM ended
),
counted AS (
    SELECT *, try_element_at(turns, -1) AS last, IF(client_protocol = 'job', size(turns), dispatches) AS own_dispatches FROM timed
)
SELECT request, run, number, seq, broker, parent, {hour_of("time")} AS h, turns, own_dispatches AS dispatches,
    coalesce(last.worker, worker) AS worker, coalesce(last.worker_peer, worker_peer) AS worker_peer,
    coalesce(last.worker_protocol, worker_protocol) AS worker_protocol, coalesce(last.worker_principal, worker_principal) AS
        worker_principal,
    IF(size(turns) = own_dispatches AND size(turns) > 0, coalesce(unix_micros(last.ended) - unix_micros(last.began), 0L), run_us) AS run_us,
    IF(size(turns) = own_dispatches,
        aggregate(turns, 0L, (total, x) -> total + coalesce(unix_micros(x.began) - unix_micros(x.arrived), 0L))
            + greatest(0L, unix_micros(time) - unix_micros(coalesce(array_max(transform(turns, x -> x.ended)), accepted))), wait_us) AS
                wait_us
FROM counted
"""


def several(messages: "DataFrame", records: "DataFrame", broadcast: bool) -> "DataFrame":
    """Requests with events besides their record, and all parts of bridged requests: their turns, and what follows from them."""
    steps = sql(STEPS, messages=messages)
    return sql(TURNS.format(hint="/*+ BROADCAST(s) */" if broadcast else ""), records=records, steps=steps)


# Parts whose client's request is a part as well: it crossed several bridges.
CHAINED = """
SELECT 1 FROM {several} p LEFT SEMI JOIN {several} r ON r.request = p.parent AND p.parent != '' AND r.parent != '' LIMIT 1
"""
# GATHER after an inner join: Spark does not see that the result of one in one partition is in one partition
CROSSING = f"""
SELECT {GATHER} p.request AS part, p.parent, p.h, r.h AS parent_h, p.broker, p.worker_protocol, p.turns
FROM {{several}} p JOIN {{several}} r ON r.request = p.parent AND p.parent != '' WHERE abs(r.h - p.h) <= 1
"""


def _links(bridges: int) -> str:
    """SQL for the client's request of each part, over at most ``bridges`` bridges."""
    made = "SELECT part, parent AS root, 1 AS deep, h, broker, worker_protocol, turns FROM {crossing}"
    for _ in range(1, bridges):
        made = (
            f"SELECT {GATHER} l.part, coalesce(c.parent, l.root) AS root, l.deep + int(c.parent IS NOT NULL) AS deep, l.h, l.broker, "
            f"l.worker_protocol, l.turns FROM ({made}) l LEFT JOIN {{crossing}} c ON c.part = l.root AND abs(c.parent_h - l.h) <= 1"
        )
    return made


# A row for each request of a client that crossed bridges (``whole``), with the turns of its parts, and one for each part.
WHOLE = """
SELECT x.id AS request, IF(x.whole, int(count(*)), 0) AS bridged, IF(x.whole, max(last).broker, '') AS far_broker,
    IF(x.whole, max(last).worker_protocol, '') AS far_protocol, IF(x.whole, flatten(collect_list(turns)), NULL) AS turns,
    IF(x.whole, 'requests', 'far') AS part
FROM (SELECT *, struct(deep, part, broker, worker_protocol) AS last FROM {links})
LATERAL VIEW explode(array(struct(root AS id, true AS whole), struct(part AS id, false AS whole))) v AS x GROUP BY x.id, x.whole
"""


def bridged(several: "DataFrame", brokers: int) -> "DataFrame":
    """What bridges add to requests: for the client's request, the turns at other brokers; and which requests are only parts of one."""
    most = min(MOST_BRIDGES, brokers) if sql(CHAINED, several=several).toArrow().num_rows else 1
    return sql(WHOLE, links=sql(_links(most), crossing=sql(CROSSING, several=several)))
