"""``topology``: the edges between clients, services, workers and brokers."""

from collections import Counter, defaultdict

from polydomo.journal import schema
from polydomo.journal.histogram import percentile
from tests.pipeline.reference.basics import HOUR, Row, host, hour_of, moment


def topology(requests: list[Row], hops: list[Row]) -> list[Row]:
    edges: dict[tuple[int, str, str, str, str], list[Row]] = defaultdict(list)
    known = {row["request"]: row for row in requests}
    for row in known.values():
        hour = hour_of(row["ended"])
        edges[
            hour, "asks", row["broker"], f"{row['client_protocol']} {host(row['client_peer'])}", row["service"]
        ].append(row)
        if row["worker"]:
            edges[
                hour,
                "serves",
                row["broker"],
                row["last_service"],
                f"{row['worker_protocol']} {host(row['worker_peer'])}",
            ].append(row)
        if row["bridged"]:
            edges[hour, "bridges", row["broker"], row["broker"], row["far_broker"]].append(row)
    places = {(hop["request"], hop["position"]): hop for hop in hops}
    for (request, position), hop in places.items():
        then = places.get((request, position + 1))
        if hop["ending"] == schema.FORWARDED and then is not None:
            row = known[request]
            edges[hour_of(row["ended"]), "passes", row["broker"], hop["service"], then["service"]].append(row)
    made = []
    for (hour, kind, broker, source, target), rows in edges.items():
        counts = Counter(row["total_bucket"] for row in rows)
        made.append({"window": moment(hour * HOUR), "kind": kind, "broker": broker, "source": source, "target": target,
                     "requests": len(rows),
                     "failed": sum(row["outcome"] != "ok" for row in rows), "total_us": sum(row["total_us"] for row in rows),
                     "p50_us": percentile(counts, 0.5), "p99_us": percentile(counts, 0.99)})  # fmt: skip
    return made
