"""Loads the report's figures from the tables with pyarrow: local tables need no Spark.

Memory does not grow with the tables: they are read in batches, services and edges beyond the most used are summed up, and only the most
frequent failures and the slowest requests are kept.
"""

import heapq
import re
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
from polydomo.pipeline.report.services import service_views
from polydomo.pipeline.report.tables import Row, Tables, seconds

FAILURES = 20
SLOWEST = 10
WORKERS = 200
NODES = 14  # in each column of the flow diagram
REASONS = 10_000  # counted at a time


def load(tables: Tables, journal: Path | None = None) -> Report:
    since, until, outcomes = spans(tables)
    services, service_count = service_views(tables, (since, until))
    workers, worker_count = worker_views(tables)
    reader = Reader([journal]) if journal is not None else None
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
        notes=[*(reader.problems if reader is not None else ())],
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
    return (seconds(first) if first else 0.0), (seconds(last) if last else 0.0), outcomes


def brokers(tables: Tables) -> list[str]:
    names: set[str] = set()
    for name in ("requests", "audit_rules"):
        for batch in tables.batches(name, ["broker"]):
            names.update(pc.unique(batch["broker"]).to_pylist())
    return sorted(names - {""})  # rules about all brokers have none


def audit(tables: Tables) -> Audit:
    columns = ["rule", "says", "broker", "run", "number", "worker", "connection", "service", "seq", "time", "detail"]
    counts: Counter[str] = Counter()
    says: dict[str, str] = {}
    first: dict[str, Row] = {}
    for batch in tables.batches("audit", columns):
        for row in batch.to_pylist():
            rule = row["rule"]
            counts[rule] += 1
            says[rule] = row["says"]
            if rule not in first or (row["time"], row["seq"]) < (first[rule]["time"], first[rule]["seq"]):
                first[rule] = row
    rules: dict[str, bool] = {}
    for row in tables.rows("audit_rules", ["rule", "checkable"]):
        rules[row["rule"]] = rules.get(row["rule"], True) and row["checkable"]
    breaches = [BrokenRule(rule, says[rule], number, _where(first[rule])) for rule, number in counts.most_common()]
    return Audit(sum(rules.values()), breaches, sorted(rule for rule, checkable in rules.items() if not checkable))


def _where(row: Row) -> str:
    """The place of a breach, as text."""
    parts = [
        f"{row['time']:%Y-%m-%d %H:%M:%S}",
        f"broker {row['broker'] or '-'}, run {ids.run_name(row['run'])}, row {row['seq']}",
    ]
    if row["number"]:
        parts.append(f"request {row['number']}")
    if row["worker"]:
        parts.append(f"worker w{row['worker']}")
    if row["connection"]:
        parts.append(f"connection c{row['connection']}")
    parts += [text for text in (row["service"], row["detail"]) if text]
    return ", ".join(parts)


# --- workers and topology -------------------------------------------------------------------------------------------


def worker_views(tables: Tables) -> tuple[list[WorkerView], int]:
    """The busiest workers, outliers first; and the number of all workers."""
    summed: dict[tuple[str, int, int, str], Row] = {}
    everyone: set[tuple[int, int]] = set()
    for row in tables.rows("workers"):
        everyone.add((row["run"], row["worker"]))
        key = (row["broker"], row["run"], row["worker"], row["service"])
        known = summed.setdefault(
            key, {**dict.fromkeys(_SUMMED, 0), "histogram": Counter(), "fellows": 0.0, "outlier": ""}
        )
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
        name = (
            f"w{worker}"
            + (f" of {broker}" if several else "")
            + (f" {ids.run_name(run)[-4:]}" if len(runs) > 1 else "")
        )
        used = min(row["run_us"] / row["present_us"], 1.0) if row["present_us"] else 0.0
        middle = percentile(row["histogram"], 0.5)
        views.append(
            WorkerView(
                name,
                service,
                row["protocol"],
                row["finals"],
                used,
                middle,
                row["fellows"],
                row["lost"],
                row["stale"],
                row["outlier"],
            )
        )
    views.sort(key=lambda view: (not view.outlier, -view.utilisation, -view.answered, view.service, view.name))
    return views[:WORKERS], len(everyone)


_SUMMED = ("finals", "run_us", "present_us", "lost", "stale")


def edges(tables: Tables) -> list[Edge]:
    """The edges between the most used clients, services and workers. The others are merged."""
    summed: dict[tuple[str, str, str], list[float]] = {}
    for batch in tables.batches("topology", ["kind", "source", "target", "requests", "failed", "p50_us"]):
        for row in batch.to_pylist():
            cell = summed.setdefault((row["kind"], row["source"], row["target"]), [0, 0, 0.0])
            cell[0] += row["requests"]
            cell[1] += row["failed"]
            # A weighted mean of the hourly medians: the table has no histograms.
            cell[2] += row["requests"] * row["p50_us"]
    summed = _named(summed)
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
    joined: dict[tuple[str, str, str], list[float]] = {}
    for (kind, source, target), cell in summed.items():
        names = short.get(kind, ({}, {}))
        total = joined.setdefault((kind, names[0].get(source, source), names[1].get(target, target)), [0, 0, 0.0])
        for i, value in enumerate(cell):
            total[i] += value
    made = [
        Edge(*key, int(number), int(failed), p50 / number if number else 0.0)
        for key, (number, failed, p50) in joined.items()
    ]
    return sorted(made, key=lambda edge: (-edge.count, edge.kind, edge.source, edge.target))


_UNNAMED = {
    "asks": ("unknown client", "unnamed service"),
    "serves": ("unnamed service", "unknown worker"),
    "passes": ("unnamed service", "unnamed service"),
    "bridges": ("unknown broker", "unknown broker"),
}


def _named(edges: dict[tuple[str, str, str], list[float]]) -> dict[tuple[str, str, str], list[float]]:
    """Names the unnamed ends: a client that disconnected before its protocol was known, a broker whose journal is not in the tables."""
    made: dict[tuple[str, str, str], list[float]] = {}
    for (kind, source, target), cell in edges.items():
        unnamed = _UNNAMED.get(kind, ("unknown", "unknown"))
        key = (kind, source.strip() or unnamed[0], target.strip() or unnamed[1])
        total = made.setdefault(key, [0, 0, 0.0])
        for i, value in enumerate(cell):
            total[i] += value
    return made


def _short(names: Counter[str], what: str) -> dict[str, str]:
    """The label of each name in the diagram: its own, or that of the merged rest."""
    if len(names) <= NODES:
        return {name: name for name in names}
    kept = [name for name, _ in names.most_common(NODES - 1)]
    rest = f"{len(names) - len(kept)} other {what}"
    return {name: name if name in kept else rest for name in names}


# --- failures and slow requests ------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"\d+(\.\d+)?")


def failures(tables: Tables, reader: Reader | None = None) -> list[FailureView]:
    """Failures by outcome, service and reason, most frequent first. Reasons that differ only in numbers are merged."""
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], tuple[str, str]] = {}
    keys = ["outcome", "service", "reason"]
    for batch in tables.batches("requests", [*keys, "request"], ds.field("outcome") != "ok"):
        for row in batch.group_by(keys).aggregate([("request", "min"), ("request", "count")]).to_pylist():
            key = (row["outcome"], row["service"], _NUMBER.sub("N", row["reason"]))
            counts[key] += row["request_count"]
            examples[key] = min(examples.get(key, ("~", "")), (row["request_min"], row["reason"]))
        if len(counts) > REASONS:
            counts = Counter(dict(counts.most_common(REASONS // 2)))
            examples = {key: examples[key] for key in counts}
    found = counts.most_common(FAILURES)
    known = _by_request(tables, [examples[key][0] for key, _ in found])
    views = []
    for key, number in found:
        outcome, service, _ = key
        example, reason = examples[key]
        row, hops = known[example]
        views.append(FailureView(outcome, reason, service, number, example, stories.story(row, hops, reader)))
    return views


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
    where = ds.field("request").isin(wanted)
    found: dict[str, tuple[Row, list[Row]]] = (
        {row["request"]: (row, []) for row in tables.rows("requests", None, where)} if wanted else {}
    )
    if wanted:
        for hop in sorted(tables.rows("hops", None, where), key=lambda hop: int(hop["position"])):
            found[hop["request"]][1].append(hop)
    return found
