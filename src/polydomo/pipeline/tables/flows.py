"""``flows`` and ``flow_nodes``: flows that have ended, their nodes, and the critical path of each run.

A flow has a row for each of its ends: after a retry it ends again. Its nodes are taken as they were then, from all rows about it up to that
time, of all runs of brokers.

The critical path goes from the node that ended last to the one that it waited for longest, and so on. The predecessor of each node is found
by one join. To follow them, the nodes of a flow become one array, and a node names its predecessor by the place in it: no iteration over
Spark's jobs, and a path of any length up to ``LONGEST`` in one pass over a row.
"""

from typing import TYPE_CHECKING

from polydomo.pipeline.bronze import ENDED
from polydomo.pipeline.sql import placed, sql
from polydomo.pipeline.tables.table import columns, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST = 10_000  # nodes of a critical path, the last ones; a longer one is cut
_IS_END = "(event = 'node' OR outcome IN ('done', 'dead', 'cancelled') AND nodes = 0)"
_IS_RELEASE = "event = 'job' AND outcome IN ('accepted', 'reopened')"

# ``id`` is the end of a flow: the run and the row that has it.
FLOW_NODES = f"""
WITH ends AS (SELECT flow, broker, run, seq, time AS flow_ended, created, concat(run, ' ', seq) AS id FROM {{messages}} WHERE {ENDED}),
known AS (
    SELECT e.id, e.flow, e.broker, e.run, e.seq, e.flow_ended, e.created, m.node, max(m.name) AS name,
        max_by(struct(m.time AS ended, m.outcome AS state, int(m.attempt) AS attempts, IF(m.event = 'node', m.needs, '') AS replaced),
            struct(m.time, m.run, m.seq)) FILTER (WHERE m.is_end) AS fin,
        max_by(struct(m.time AS released, m.service, m.job, m.needs), struct(m.time, m.run, m.seq)) FILTER (WHERE m.is_release) AS rel
    FROM ends e JOIN (
        SELECT flow, node, name, time, run, seq, event, outcome, attempt, service, job, needs, {_IS_END} AS is_end,
            {_IS_RELEASE} AS is_release
        FROM {{near_messages}} WHERE flow != '' AND event IN ('job', 'node')
    ) m ON m.flow = e.flow AND m.time <= e.flow_ended
    GROUP BY e.id, e.flow, e.broker, e.run, e.seq, e.flow_ended, e.created, m.node
),
numbered AS (
    SELECT *, fin.ended AS ended, coalesce(fin.state, 'open') AS state, row_number() OVER (PARTITION BY id ORDER BY node) AS place,
        IF(coalesce(fin.replaced, '') != '', fin.replaced, coalesce(rel.needs, '')) AS waits_for
    FROM known
),
needed AS (
    SELECT id, place, ended, number FROM (
        SELECT id, place, ended, explode(filter(split(waits_for, ','), one -> one != '...')) AS part
        FROM numbered WHERE waits_for != '' AND ended IS NOT NULL
    ) LATERAL VIEW explode(sequence(int(split(part, '-')[0]), int(element_at(split(part, '-'), -1)))) v AS number
),
latest AS (
    SELECT n.id, n.place, max(struct(p.ended, p.node, p.place)) AS before
    FROM needed n JOIN numbered p ON p.id = n.id AND p.node = n.number AND p.ended <= n.ended AND p.state != 'skipped'
    GROUP BY n.id, n.place
),
linked AS (SELECT n.*, l.before FROM numbered n LEFT JOIN latest l ON l.id = n.id AND l.place = n.place),
paths AS (
    SELECT id, IF(final IS NULL, array(), aggregate(
        IF(size(links) > 1, sequence(2, least(size(links), {LONGEST})), array()), array(final),
        (path, i) -> IF(links[element_at(path, -1) - 1] IS NULL, path, array_append(path, links[element_at(path, -1) - 1]))
    )) AS path FROM (
        SELECT id, transform(array_sort(collect_list(struct(place, before.place AS before))), one -> one.before) AS links,
            max_by(place, struct(ended, node)) FILTER (WHERE ended IS NOT NULL AND state != 'skipped') AS final
        FROM linked GROUP BY id
    )
),
on_path AS (SELECT id, here, size(path) - position AS critical FROM paths LATERAL VIEW posexplode(path) v AS position, here)
SELECT l.flow, l.broker, l.run, l.seq, l.node, l.name, l.rel.service AS service, l.rel.job AS job, l.state,
    l.rel.released AS released, l.ended,
    IF(l.ended > l.rel.released, unix_micros(l.ended) - unix_micros(l.rel.released), IF(l.ended <= l.rel.released, 0L, NULL)) AS open_us,
    l.fin.attempts AS attempts, l.waits_for AS needs,
    l.before.node AS after, c.critical,
    IF(c.critical IS NULL, 0L, greatest(0L, unix_micros(l.ended) - unix_micros(coalesce(l.before.ended, l.created)))) AS critical_us,
    {placed("l.flow_ended")}
FROM linked l LEFT JOIN on_path c ON c.id = l.id AND c.here = l.place
"""
FLOWS = f"""
WITH nodes AS (
    SELECT flow, run, seq, count(*) AS known, sum(int(state = 'done')) AS done, sum(int(state = 'dead')) AS dead,
        sum(int(state = 'skipped')) AS skipped, sum(int(state = 'cancelled')) AS cancelled, sum(open_us) AS open_us,
        count(critical) AS critical_nodes, max_by(name, struct(critical_us, node)) FILTER (WHERE critical IS NOT NULL) AS slowest,
        max(critical_us) AS slowest_us
    FROM {{flow_nodes}} GROUP BY flow, run, seq
)
SELECT m.flow, m.name, m.key, m.principal, m.broker, m.run, m.seq, m.created AS started, m.time AS ended,
    unix_micros(m.time) - unix_micros(m.created) AS total_us, m.outcome AS state, m.reason, m.nodes, coalesce(n.done, 0) AS done,
    coalesce(n.dead, 0) AS dead, coalesce(n.skipped, 0) AS skipped, coalesce(n.cancelled, 0) AS cancelled,
    coalesce(n.open_us, 0) AS open_us, coalesce(n.critical_nodes, 0) AS critical_nodes, coalesce(n.slowest, '') AS slowest,
    coalesce(n.slowest_us, 0) AS slowest_us, {placed("m.time")}
FROM {{messages}} m LEFT JOIN nodes n ON n.flow = m.flow AND n.run = m.run AND n.seq = m.seq WHERE {ENDED.replace("outcome", "m.outcome")}
"""


@table(
    "flow_nodes",
    "one node of a flow that has ended",
    reads=["messages", "near_messages"],
    columns=columns(
        """
        flow STRING -- id of the flow
        broker STRING -- the broker that recorded the end of the flow
        run BIGINT -- that broker's run
        seq BIGINT -- sequence number of the journal row of that end, as in `flows`
        node INT -- number of the node
        name STRING -- its name
        service STRING -- its service; null if it was never released
        job STRING -- id of its job; null if it was never released
        state STRING -- `done`, `dead`, `skipped` or `cancelled`; `open` if the journal has no end of it
        released TIMESTAMP -- when it was released last: all that it needs had ended
        ended TIMESTAMP -- when its outcome was on disk
        open_us BIGINT -- from `released` to `ended`: waiting for a worker, running, and between attempts
        attempts INT -- attempts that a worker began
        needs STRING -- numbers of the nodes that it waited for, with ranges, such as `0-2,7`
        after INT -- the one of them that ended last
        critical INT -- its place on the critical path, from 1; null if it is not on it
        critical_us BIGINT -- its part of the duration: from the end of `after`, or the start of the flow, to its own
        """
    ),
)
def flow_nodes(messages: "DataFrame", near_messages: "DataFrame") -> "DataFrame":
    return sql(FLOW_NODES, messages=messages, near_messages=near_messages)


@table(
    "flows",
    "one end of a flow",
    reads=["messages", "flow_nodes"],
    columns=columns(
        """
        flow STRING -- its id: 26 characters, sorting by the time of its start
        name STRING -- its name
        key STRING -- its idempotency key
        principal STRING -- the principal that started it, by the access file
        broker STRING -- the broker that recorded the end
        run BIGINT -- that broker's run
        seq BIGINT -- sequence number of the journal row of the end
        started TIMESTAMP -- when it was started
        ended TIMESTAMP -- when it ended; a flow that is retried ends again
        total_us BIGINT -- from `started` to `ended`
        state STRING -- `done`, `failed` or `cancelled`
        reason STRING -- why it was cancelled, and its nodes by state
        nodes INT -- its nodes, with those that workers added
        done BIGINT -- nodes that are done
        dead BIGINT -- nodes that are dead
        skipped BIGINT -- nodes that are skipped
        cancelled BIGINT -- nodes that are cancelled
        open_us BIGINT -- sum of the times from release to end of its nodes; by `total_us`: how many were open at a time
        critical_nodes BIGINT -- nodes on the critical path
        slowest STRING -- the node on it that took longest
        slowest_us BIGINT -- how long that was
        """
    ),
)
def flows(messages: "DataFrame", flow_nodes: "DataFrame") -> "DataFrame":
    return sql(FLOWS, messages=messages, flow_nodes=flow_nodes)
