"""Loads the report's figures from the tables with pyarrow: local tables need no Spark.

Memory does not grow with the tables: they are read in batches, services and edges beyond the most used are summed up, and only the most
frequent failures and the slowest requests are kept.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds

from polydomo.journal import ids
from polydomo.journal.histogram import percentile
from polydomo.journal.reading.reader import Reader
from polydomo.pipeline.report import stories
from polydomo.pipeline.report.data import Audit, BrokenRule, Edge, FailureView, Report, Slow, WorkerView
from polydomo.pipeline.report.flows import flows_view
from polydomo.pipeline.report.jobs import jobs_view
from polydomo.pipeline.report.reasons import most_frequent
from polydomo.pipeline.report.services import service_views
from polydomo.pipeline.report.tables import Row, Tables

FAILURES = 20
SLOWEST = 10
WORKERS = 200
NODES = 14  # in each column of the flow diagram


def load(tables: Tables, journal: Path | None = None) -> Report:
    since, until, outcomes = spans(tables)
    services, service_count = service_views(tables, (since, until))
    workers, worker_count = worker_views(tables)
    reader = Reader([journal] if journal is not None else [])
    return Report(
        since=since,
        until=until,
        brokers=brokers(tables),
        requests=sum(outcomes.values()),
        outcomes=dict(outcomes.most_common()),
        audit=audit(tables),
        services=services,
        workers=workers,
        edges=edges(tables),
        failures=failures(tables, reader),
        slowest=slowest(tables),
        jobs=jobs_view(tables),
        flows=flows_view(tables),
        notes=reader.problems,
        service_count=service_count,
        worker_count=worker_count,
        own_tables=tables.own(),
    )


# --- totals ----------------------------------------------------------------------------------------------------------


def spans(tables: Tables) -> tuple[float, float, Counter[str]]:
    """The time of the first and the last request, and the number of requests by outcome."""
    first: datetime | None = None
    last: datetime | None = None
    outcomes: Counter[str] = Counter()
    for batch in tables.batches("requests", ["accepted", "ended", "outcome"]):
        low, high = pc.min(batch["accepted"]).as_py(), pc.max(batch["ended"]).as_py()
        first = min(first or low, low)
        last = max(last or high, high)
        for pair in pc.value_counts(batch["outcome"]).to_pylist():
            outcomes[pair["values"]] += pair["counts"]
    return first.timestamp() if first else 0.0, last.timestamp() if last else 0.0, outcomes


def brokers(tables: Tables) -> list[str]:
    names: set[str] = set()
    for name in ("requests", "audit_rules"):
        for batch in tables.batches(name, ["broker"]):
            names.update(pc.unique(batch["broker"]).to_pylist())
    return sorted(names - {""})  # rules about all brokers have none


def audit(tables: Tables) -> Audit:
    columns = ["rule", "says", "broker", "run", "number", "worker", "connection", "service", "seq", "time", "detail"]
    counts: Counter[str] = Counter()
    first: dict[str, Row] = {}
    for batch in tables.batches("audit", columns):
        for row in batch.to_pylist():
            rule = row["rule"]
            counts[rule] += 1
            if rule not in first or (row["time"], row["seq"]) < (first[rule]["time"], first[rule]["seq"]):
                first[rule] = row
    rules: dict[str, bool] = {}
    for row in tables.rows("audit_rules", ["rule", "checkable"]):
        rules[row["rule"]] = rules.get(row["rule"], True) and row["checkable"]
    breaches = [
        BrokenRule(rule, first[rule]["says"], number, _where(first[rule])) for rule, number in counts.most_common()
    ]
    return Audit(sum(rules.values()), breaches, sorted(rule for rule, checkable in rules.items() if not checkable))


def _where(row: Row) -> str:
    """The place of a breach, as text."""
    parts = (
        f"{row['time']:%Y-%m-%d %H:%M:%S}",
        f"broker {row['broker'] or '-'}, run {ids.run_name(row['run'])}, row {row['seq']}",
        f"request {row['number']}" if row["number"] else "",
        f"worker w{row['worker']}" if row["worker"] else "",
        f"connection c{row['connection']}" if row["connection"] else "",
        row["service"],
        row["detail"],
    )
    return ", ".join(filter(None, parts))


# --- workers and topology -------------------------------------------------------------------------------------------


def worker_views(tables: Tables) -> tuple[list[WorkerView], int]:
    """The busiest workers, outliers first; and the number of all workers."""
    summed: dict[tuple[str, int, int, str], Row] = {}
    for row in tables.rows("workers"):
        key = (row["broker"], row["run"], row["worker"], row["service"])
        new = {**dict.fromkeys(_SUMMED, 0), "histogram": Counter(), "fellows": 0.0, "outlier": ""}
        known = summed.setdefault(key, new)
        for name in _SUMMED:
            known[name] += row[name]
        known["histogram"].update(dict(row["run_histogram"]))
        known["fellows"] = row["fellows_p50_us"] or known["fellows"]
        known["outlier"] = row["outlier"] or known["outlier"]
        known["protocol"] = row["protocol"]
    runs = {run for _, run, _, _ in summed}
    several = len({broker for broker, *_ in summed}) > 1
    views = []
    for (broker, run, worker, service), row in summed.items():
        name = f"w{worker}" + (f" of {broker}" if several else "")
        name += f" {ids.run_name(run)[-4:]}" if len(runs) > 1 else ""
        used = min(row["run_us"] / row["present_us"], 1.0) if row["present_us"] else 0.0
        times = percentile(row["histogram"], 0.5), row["fellows"]
        faults = row["lost"], row["stale"], row["outlier"]
        views.append(WorkerView(name, service, row["protocol"], row["finals"], used, *times, *faults))
    views.sort(key=lambda view: (not view.outlier, -view.utilisation, -view.answered, view.service, view.name))
    return views[:WORKERS], len({(run, worker) for _, run, worker, _ in summed})


_SUMMED = ("finals", "run_us", "present_us", "lost", "stale")


def edges(tables: Tables) -> list[Edge]:
    """The edges between the most used clients, services and workers. The others are merged."""
    summed: dict[_Ends, list[float]] = {}
    for batch in tables.batches("topology", ["kind", "source", "target", "requests", "failed", "p50_us"]):
        for row in batch.to_pylist():
            unnamed = _UNNAMED[row["kind"]]
            ends = row["kind"], row["source"].strip() or unnamed[0], row["target"].strip() or unnamed[1]
            # A weighted mean of the hourly medians: the table has no histograms.
            _add(summed, ends, [row["requests"], row["failed"], row["requests"] * row["p50_us"]])
    clients, services, workers = Counter[str](), Counter[str](), Counter[str]()
    for (kind, source, target), (number, *_) in summed.items():
        if kind == "asks":
            clients[source] += int(number)
            services[target] += int(number)
        elif kind == "serves":
            services[source] += 0
            workers[target] += int(number)
    middle = _short(services, "services")
    short = {
        "asks": (_short(clients, "clients"), middle),
        "serves": (middle, _short(workers, "workers")),
        "passes": (middle, middle),
    }
    joined: dict[_Ends, list[float]] = {}
    for (kind, source, target), cell in summed.items():
        names = short.get(kind, ({}, {}))
        _add(joined, (kind, names[0].get(source, source), names[1].get(target, target)), cell)
    made = [
        Edge(*key, int(number), int(failed), p50 / number if number else 0.0)
        for key, (number, failed, p50) in joined.items()
    ]
    return sorted(made, key=lambda edge: (-edge.count, edge.kind, edge.source, edge.target))


# An end without a name: a client that disconnected before its protocol was known, a broker whose journal is not in the tables.
_UNNAMED = {
    "asks": ("unknown client", "unnamed service"),
    "serves": ("unnamed service", "unknown worker"),
    "passes": ("unnamed service", "unnamed service"),
    "bridges": ("unknown broker", "unknown broker"),
}
_Ends = tuple[str, str, str]  # kind, source, target


def _add(cells: dict[_Ends, list[float]], ends: _Ends, values: list[float]) -> None:
    cells[ends] = [a + b for a, b in zip(cells.get(ends, [0, 0, 0.0]), values, strict=True)]


def _short(names: Counter[str], what: str) -> dict[str, str]:
    """The label of each name in the diagram: its own, or that of the merged rest."""
    if len(names) <= NODES:
        return {name: name for name in names}
    kept = [name for name, _ in names.most_common(NODES - 1)]
    rest = f"{len(names) - len(kept)} other {what}"
    return {name: name if name in kept else rest for name in names}


# --- failures and slow requests ------------------------------------------------------------------------------------------


def failures(tables: Tables, reader: Reader) -> list[FailureView]:
    found = most_frequent(tables, "requests", "request", ds.field("outcome") != "ok", FAILURES)
    known = _by_request(tables, [reason.example for reason in found])
    return [FailureView(reason, stories.story(*known[reason.example], reader)) for reason in found]


def slowest(tables: Tables) -> list[Slow]:
    top: list[tuple[int, str]] = []
    for batch in tables.batches("requests", ["total_us", "request"]):
        best = batch.take(
            pc.select_k_unstable(batch, k=min(SLOWEST, batch.num_rows), sort_keys=[("total_us", "descending")])
        )
        top = heapq.nlargest(SLOWEST, [*top, *((row["total_us"], row["request"]) for row in best.to_pylist())])
    known = _by_request(tables, [request for _, request in top])
    return [
        Slow(request, _service(row), float(total), row["outcome"], stories.parts(row, hops))
        for total, request in top
        for row, hops in [known[request]]
    ]


def _service(row: Row) -> str:
    return str(row["service"] if row["service"] == row["last_service"] else f"{row['service']} → {row['last_service']}")


def _by_request(tables: Tables, requests: Iterable[str]) -> dict[str, tuple[Row, list[Row]]]:
    """The rows of these requests, and their hops in order."""
    wanted = sorted(set(requests))
    if not wanted:
        return {}
    where = ds.field("request").isin(wanted)
    found: dict[str, tuple[Row, list[Row]]] = {
        row["request"]: (row, []) for row in tables.rows("requests", None, where)
    }
    for hop in sorted(tables.rows("hops", None, where), key=lambda hop: int(hop["position"])):
        found[hop["request"]][1].append(hop)
    return found
