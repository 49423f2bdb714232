"""Small tables, written by hand, as the pipeline would compute them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from polydomo.journal.histogram import bucket
from polydomo.journal.ids import RequestId
from polydomo.pipeline.tables import TABLES
from polydomo.pipeline.tables.table import arrow_type

Row = dict[str, Any]

BEGIN = datetime(2026, 1, 31, 7, 30, tzinfo=UTC)
RUN = 77
EVIL = "<script>alert(1)</script>&\"'"

_PLAIN = {
    "STRING": (pa.string(), ""),
    "BIGINT": (pa.int64(), 0),
    "INT": (pa.int32(), 0),
    "DOUBLE": (pa.float64(), 0.0),
    "BOOLEAN": (pa.bool_(), False),
    "BINARY": (pa.binary(), b""),
    "DATE": (pa.date32(), None),
    "TIMESTAMP": (pa.timestamp("us", tz="UTC"), None),
}


def arrow(kind: str) -> tuple[Any, Any]:
    """Arrow's type for one of Spark's types, and its default value."""
    if kind.startswith("ARRAY<STRUCT<"):
        return arrow_type(kind), None
    if kind.startswith(("MAP<", "ARRAY<")):
        return arrow_type(kind), []
    return _PLAIN[kind]


MEMO = {"hit": "memo_hits", "miss": "memo_misses", "joined": "memo_joined"}


def write(directory: Path, table: str, rows: Iterable[Row]) -> None:
    """Writes a table with these rows; missing columns get their default value."""
    columns = TABLES[table].stored
    made = [{column.name: row.get(column.name, arrow(column.type)[1]) for column in columns} for row in rows]
    place = directory / table / f"date={BEGIN:%Y-%m-%d}" / f"hour={BEGIN:%H}"
    place.mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist(made, pa.schema([(column.name, arrow(column.type)[0]) for column in columns])),
        place / "0.parquet",
    )


def request(
    number: int, at: float, wait: float, run: float, service: str = "resize", outcome: str = "ok", **more: Any
) -> Row:
    """A request accepted ``at`` seconds after the beginning."""
    accepted = BEGIN + timedelta(seconds=at)
    dispatched = accepted + timedelta(seconds=wait)
    ended = dispatched + timedelta(seconds=run)
    made: Row = {
        "request": str(RequestId(int(accepted.timestamp() * 1000), RUN, number)),
        "broker": "b1",
        "run": RUN,
        "number": number,
        "service": service,
        "last_service": service,
        "client": 3,
        "client_peer": "tcp://10.0.0.9:4000",
        "client_protocol": "mdp2",
        "worker": 1,
        "worker_peer": "tcp://10.0.0.7:5000",
        "worker_protocol": "dcp",
        "accepted": accepted,
        "first_dispatched": dispatched,
        "dispatched": dispatched,
        "ended": ended,
        "wait_us": round(wait * 1e6),
        "run_us": round(run * 1e6),
        "total_us": round((wait + run) * 1e6),
        "attempts": 1,
        "dispatches": 1,
        "request_bytes": 120,
        "reply_bytes": 2048,
        "outcome": outcome,
        "hour": 7,
    }
    return {**made, **more}


def hop(row: Row, position: int, began: float, ended: float, worker: int, ending: str = "final", **more: Any) -> Row:
    """A turn at a request, in seconds from its acceptance."""
    made = {
        "request": row["request"],
        "position": position,
        "broker": "b1",
        "run": RUN,
        "number": row["number"],
        "service": row["service"],
        "attempt": position,
        "worker": worker,
        "worker_peer": f"tcp://10.0.0.{worker}:5000",
        "worker_protocol": "mdp1",
        "began": row["accepted"] + timedelta(seconds=began),
        "ended": row["accepted"] + timedelta(seconds=ended),
        "run_us": round((ended - began) * 1e6),
        "ending": ending,
        "hour": 7,
    }
    return {**made, **more}


def windows(rows: list[Row]) -> list[Row]:
    """The rows of `services` for these requests."""
    made: dict[tuple[datetime, int, str], Row] = {}
    for row in rows:
        for seconds in (10, 60, 3600):
            begin = datetime.fromtimestamp(row["ended"].timestamp() // seconds * seconds, UTC)
            cell = made.setdefault(
                (begin, seconds, row["service"]),
                {
                    "window": begin,
                    "seconds": seconds,
                    "broker": "b1",
                    "service": row["service"],
                    "requests": 0,
                    "outcomes": {},
                    "waits": {},
                    "totals": {},
                    "hour": 7,
                },
            )
            cell["requests"] += 1
            if row.get("memo"):
                cell[MEMO[row["memo"]]] = cell.get(MEMO[row["memo"]], 0) + 1
            for name, key in (
                ("outcomes", row["outcome"]),
                ("waits", bucket(row["wait_us"])),
                ("totals", bucket(row["total_us"])),
            ):
                cell[name][key] = cell[name].get(key, 0) + 1
    for cell in made.values():
        cell["outcomes"] = list(cell["outcomes"].items())
        cell["wait_histogram"] = list(cell["waits"].items())
        cell["total_histogram"] = list(cell["totals"].items())
    return list(made.values())


def tables(directory: Path, services: int = 3) -> list[Row]:
    """A quarter of an hour of a broker with ``services`` services, failures, a lost worker, a chain and a breach. Returns its requests."""
    rows: list[Row] = []
    for i in range(900):
        service = "resize" if i % 3 else f"service-{i // 3 % (services - 1):02d}"
        slow = 40 if i % 97 == 0 else 1
        rows.append(request(i + 1, i, 0.0004 * (1 + i % 7), 0.012 * slow * (1 + (i * 7919) % 13 / 9), service))
        if service == "service-01":
            rows[-1]["memo"] = ("hit", "hit", "hit", "miss", "joined")[len(rows) % 5]
    for i in range(0, 900, 50):
        rows[i] |= {"outcome": "timeout", "reason": f"no reply within {i}.5 s", "reply_bytes": 0}
    rows[20] |= {
        "service": EVIL,
        "last_service": EVIL,
        "outcome": "failed",
        "reason": f"Traceback: {EVIL}",
        "client_protocol": EVIL,
    }
    slowest = request(
        901, 300, 0.5, 4.0, attempts=2, dispatches=2, worker=2, first_partial=BEGIN + timedelta(seconds=303)
    )
    chain = request(902, 420, 0.1, 3.0, last_service="store", hops=1, dispatches=2, worker=3)
    rows += [slowest, chain]
    hops = [
        hop(row, 1, row["wait_us"] / 1e6, row["total_us"] / 1e6, 1, "final" if row["outcome"] == "ok" else "failed")
        for row in rows[:900]
    ]
    hops += [hop(slowest, 1, 0.5, 1.5, 1, "requeued"), hop(slowest, 2, 1.7, 4.5, 2)]
    hops += [hop(chain, 1, 0.1, 1.1, 1, "forwarded"), hop(chain, 2, 1.1, 3.1, 3, service="store", attempt=1)]
    write(directory, "requests", rows)
    write(directory, "hops", hops)
    write(directory, "services", windows(rows))
    hour = BEGIN.replace(minute=0)
    write(
        directory,
        "workers",
        [
            {
                "window": hour,
                "broker": "b1",
                "run": RUN,
                "worker": n,
                "service": "resize",
                "protocol": EVIL if n == 3 else "mdp1",
                "turns": 300,
                "finals": 290,
                "run_us": n * 10**8,
                "present_us": 9 * 10**8,
                "run_histogram": [(bucket(12000 * n), 300)],
                "fellows_p50_us": 24000.0,
                "lost": int(n == 1),
                "stale": int(n == 1),
                "outlier": "slow" if n == 5 else "",
            }
            for n in range(1, 6)
        ],
    )
    write(
        directory,
        "topology",
        [
            {
                "window": hour,
                "kind": kind,
                "broker": "b1",
                "source": source,
                "target": target,
                "requests": n,
                "failed": n // 50,
                "p50_us": 15000.0,
            }
            for kind, source, target, n in [
                ("asks", "mdp2 tcp://10.0.0.9", "resize", 600),
                ("asks", "emqp tcp://10.0.0.8", "service-00", 150),
                ("asks", EVIL, EVIL, 1),
                ("asks", "mdp2 tcp://10.0.0.9", "service-01", 150),
                ("serves", "resize", "mdp1 tcp://10.0.0.1", 500),
                ("serves", "service-00", "dcp tcp://10.0.0.7", 150),
                ("serves", "service-01", "dcp tcp://10.0.0.7", 150),
                ("passes", "resize", "store", 1),
                ("serves", "store", "dcp tcp://10.0.0.7", 1),
                ("bridges", "b1", "b2", 3),
            ]
        ],
    )
    breach = {
        "rule": "one-outcome",
        "says": "A request has one outcome.",
        "broker": "b1",
        "run": RUN,
        "number": 5,
        "seq": 1234,
        "time": BEGIN,
        "detail": EVIL,
    }
    write(directory, "audit", [breach])
    checks = [("one-outcome", True), ("no-hole", True), ("fenced", False)]
    write(
        directory,
        "audit_rules",
        [{"run": RUN, "broker": "b1", "rule": rule, "checkable": able, "breaches": 0} for rule, able in checks],
    )
    write(
        directory,
        "capacity",
        [
            {
                "window": hour,
                "broker": "b1",
                "service": "resize",
                "requests": 600,
                "workers": 5,
                "capacity": 250.0,
                "headroom": 12.5,
                "objective_us": 1_000_000,
                "budget_used": 0.4,
            }
        ],
    )
    jobs(directory)
    flows(directory)
    return rows


def jobs(directory: Path) -> None:
    """Durable jobs: some done after a retry, one dead, one open, and a schedule that skipped a run."""
    ids = [f"01M7H5ZN0ERVYDRHP9ZPD80J{n:02d}" for n in range(8)]
    common: Row = {"broker": "b1", "run": RUN, "service": "billing.invoices", "submitted": BEGIN}
    ended = [
        {**common, "job": job, "seq": n, "state": "dead" if n == 6 else "done", "outcome": "failed" if n == 6 else "ok", "attempts": 2,
         "reason": f"{EVIL}: no such customer 17" if n == 6 else "", "backoff_us": 1_500_000, "total_us": 2_000_000,
         "ended": BEGIN + timedelta(seconds=n)}
        for n, job in enumerate(ids[:7])
    ]  # fmt: skip
    write(directory, "jobs", ended)
    events: list[Row] = [{**common, "job": job, "event": "accepted", "time": BEGIN} for job in ids]
    events += [
        {**common, "job": job, "event": "retry", "wait_us": 1_500_000, "outcome": "failed", "time": BEGIN}
        for job in ids[:7]
    ]
    events += [
        {"broker": "b1", "run": RUN, "schedule": EVIL, "event": event, "time": BEGIN} for event in ("fired", "skipped")
    ]
    write(directory, "job_events", events)


def flows(directory: Path) -> None:
    """Three runs of a flow of three nodes: the one after the other determines how long they take. The last run failed."""
    runs, nodes = [], []
    for n in range(3):
        about: Row = {"flow": f"01M7H5ZN0ERVYDRHP9ZPD80F{n:02d}", "broker": "b1", "run": RUN, "seq": 1000 + n}
        state = "failed" if n == 2 else "done"
        runs.append(
            {
                **about,
                "name": EVIL,
                "state": state,
                "nodes": 3,
                "total_us": 4_000_000 + n,
                "open_us": 6_000_000,
                "ended": BEGIN,
            }
        )
        for node, (service, place, us) in enumerate([("ocr", 1, 3_000_000), ("ocr", None, 0), ("join", 2, 1_000_000)]):
            nodes.append(
                {
                    **about,
                    "node": node,
                    "name": f"{EVIL}-{node}",
                    "service": service,
                    "critical": place,
                    "critical_us": us,
                    "state": "done",
                }
            )
    write(directory, "flows", runs)
    write(directory, "flow_nodes", nodes)
