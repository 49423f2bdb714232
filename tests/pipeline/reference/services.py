"""``services``: requests by window, broker and service."""

from collections import Counter, defaultdict

from polydomo.journal import schema
from polydomo.journal.histogram import percentile
from tests.pipeline.reference.basics import OWN, Row, moment, us
from tests.pipeline.reference.journal import Journal


def services(journal: Journal) -> list[Row]:
    cells: dict[tuple[int, int, str, str], list[Row]] = defaultdict(list)
    queues: dict[tuple[int, int, str, str], list[Row]] = defaultdict(list)
    for seconds in (10, 60, 3600):
        for part in journal.parts:
            cells[us(part["time"]) // (seconds * 10**6) * seconds, seconds, part["broker"], part["service"]].append(
                part
            )
        for row in journal.messages:
            if row["event"] in (schema.QUEUED, schema.REQUEUED, schema.FORWARDED):
                queues[us(row["time"]) // (seconds * 10**6) * seconds, seconds, row["broker"], row["service"]].append(
                    row
                )
    made = []
    for key, parts in cells.items():
        at, seconds, broker, service = key
        waits, totals = (Counter(part[name] for part in parts) for name in ("wait_bucket", "total_bucket"))
        waiting = queues.get(key, [])
        run = [part for part in parts if part["worker_protocol"] not in OWN]
        memo = Counter(part["memo"] for part in parts)
        made.append({
            "window": moment(at * 10**6), "seconds": seconds, "broker": broker, "service": service, "requests": len(parts),
            "ok": sum(part["outcome"] == "ok" for part in parts), "outcomes": Counter(part["outcome"] for part in parts),
            "retried": sum(part["dispatches"] > part["hops"] + 1 for part in parts),
            "passed_on": sum(part["hops"] > 0 for part in parts),
            **{name: sum(part[name] for part in parts) for name in ("request_bytes", "reply_bytes", "wait_us", "total_us")},
            "run_us": sum(part["run_us"] for part in run),
            "run_us2": float(sum(part["run_us"] ** 2 for part in run)), "worked": sum(part["dispatches"] > 0 for part in run),
            "busy": sum(part["run_us"] for part in run) / (seconds * 1e6), "queued": len(waiting),
            **{f"memo_{name}": memo[how] for name, how in (("hits", "hit"), ("misses", "miss"), ("joined", "joined"))},
            "key_joined": sum(part["keyed"] == "joined" for part in parts),
            "queue_max": max((row["queue"] for row in waiting), default=0),
            "workers_max": max((row["workers"] for row in waiting), default=0),
            "wait_histogram": waits, "total_histogram": totals,
            "wait_p50_us": percentile(waits, 0.5), "wait_p99_us": percentile(waits, 0.99),
            **{f"total_p{name}_us": percentile(totals, share) for name, share in (("50", 0.5), ("90", 0.9),
            ("99", 0.99), ("999", 0.999))},
        })  # fmt: skip
    return made
