"""Stage 2: joins the parts of bridged requests of one hour. The parts are from several brokers, and may end in the hour before or after."""

from collections.abc import Iterator, Sequence

from polydomo.pipeline.engine.duck import HOUR_US, connected, micros
from polydomo.pipeline.engine.hour import EDGES, HOST, PASSES
from polydomo.pipeline.engine.messages import Message, joined, note, to_unit
from polydomo.pipeline.engine.plan import Plan
from polydomo.pipeline.segments import begin_of
from polydomo.pipeline.tables import hops, requests

MOST_BRIDGES = 8  # that one request may cross

# A part belongs to the client's request (``root``) if that is known here; otherwise the part is a request of its own.
LINKS = f"""
CREATE TEMP TABLE crossing AS SELECT request AS part, parent, broker, worker_protocol FROM parts
    WHERE parent != '' AND parent IN (SELECT request FROM parts);
CREATE TEMP TABLE links AS WITH RECURSIVE up AS (
    SELECT part, parent AS root, 1 AS deep FROM crossing UNION ALL
    SELECT up.part, crossing.parent, deep + 1 FROM up JOIN crossing ON crossing.part = up.root WHERE deep < {MOST_BRIDGES}
) SELECT part, arg_max(root, deep) AS root, max(deep) AS deep FROM up GROUP BY part;
CREATE TEMP TABLE made AS
WITH far AS (
    SELECT root AS request, count(*) AS bridged, max(struct_pack(deep := deep, part := part, broker := broker,
        protocol := worker_protocol)) AS last
    FROM links JOIN crossing USING (part) GROUP BY root
)
SELECT parts.*, time AS ended, coalesce(bridged, 0) AS bridged, coalesce(last.broker, '') AS far_broker,
    coalesce(last.protocol, '') AS far_protocol
FROM parts LEFT JOIN far USING (request)
WHERE request NOT IN (SELECT part FROM links) AND epoch_us(time) // {HOUR_US} = getvariable('here');
CREATE TEMP TABLE placed AS
SELECT coalesce(root, t.request) AS whole, t.* EXCLUDE (position, total_us, total_bucket, outcome), m.broker AS root_broker,
    m.total_us, m.total_bucket,
    m.outcome, row_number() OVER (PARTITION BY whole ORDER BY coalesce(began, t.ended), t.run, hop, attempt, t.seq) AS position
FROM turns t LEFT JOIN links ON links.part = t.request JOIN made m ON m.request = coalesce(root, t.request);
"""
ACROSS = """
SELECT 'bridges' AS kind, broker, '' AS protocol, far_broker AS peer, broker AS name, total_bucket, outcome, total_us
    FROM made WHERE bridged > 0
"""


def bridges(plan: Plan, unit: str, inbox: Sequence[Message]) -> Iterator[Message]:
    parts, turns = joined(inbox, "parts"), joined(inbox, "turns")
    if parts is None or turns is None:
        return
    with connected(plan) as duck:
        duck.load("parts", parts)
        duck.load("turns", turns)
        duck.run(LINKS, here=micros(begin_of(unit)) // HOUR_US)
        made = {
            "requests": duck.stage(requests.TABLE, unit, "bridged", "FROM made"),
            "hops": duck.stage(hops.TABLE, unit, "bridged", "SELECT * REPLACE (whole AS request) FROM placed"),
        }
        for name, count in made.items():
            yield note(what="rows", table=name, count=count)
        passes = PASSES.format(turns="placed", key="whole", broker="a.root_broker")
        edges = EDGES.format(rows="made", more=f"{ACROSS} UNION ALL {passes}")
        host = f"if(kind IN ('asks', 'serves'), {HOST.format(peer='peer')}, peer)"
        found = duck.table(f"SELECT * REPLACE ({host} AS peer) FROM ({edges})")
        if found.num_rows:
            yield Message(3, to_unit(unit), "edges", found)
