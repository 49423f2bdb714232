"""Loads the report's figures from the tables with pyarrow: local tables need no Spark.

Memory does not grow with the tables: they are read in batches, services and edges beyond the most used are summed up, and only the most
frequent failures and the slowest requests are kept.
"""

import heapq
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from polydomo.errors import PolydomoError, SettingError
from polydomo.journal import ids
from polydomo.journal.histogram import percentile
from polydomo.journal.reader import Reader
from polydomo.pipeline.report import stories
from polydomo.pipeline.report.data import Audit, Breach, Edge, FailureView, Report, ServiceView, Slow, WorkerView
from polydomo.pipeline.report.svg import duration, full, percent

Row = dict[str, Any]

SERVICES = 12  # shown one by one; a page with more is not looked at
FAILURES = 20
SLOWEST = 10
WORKERS = 200
NODES = 14  # of each column of the drawing of who calls what
BINS = 120  # columns of a chart: more than that are finer than the eye
REASONS = 10_000  # kept while counting
SHORT = 300  # seconds, of which windows of 10 s would make too few columns
WINDOWS = (10, 60, 3600)  # seconds, as in the table `services`
IDLE = 0.2  # of the whole time: a longer time without requests is cut out of the charts


class NoTables(PolydomoError):
    """There are no tables where they were said to be."""


class Tables:
    """The tables of a directory; one that is not there is empty."""

    def __init__(self, directory: str | Path) -> None:
        if "://" in str(directory):
            raise SettingError(f"--tables: {directory} is not a local directory; copy what is wanted of it here first")
        self.directory = Path(directory)
        if not (self.directory / "requests").is_dir():
            raise NoTables(f"there are no tables in {directory}; `polydomo pipeline run` makes them")

    def dataset(self, name: str) -> Any:
        if not (self.directory / name).is_dir():
            return None
        found = ds.dataset(self.directory / name, format="parquet", partitioning="hive")
        return found if found.files else None

    def batches(self, name: str, columns: Sequence[str], where: Any = None) -> Iterator[pa.Table]:
        found = self.dataset(name)
        if found is None:
            return
        for batch in found.to_batches(columns=list(columns), filter=where, batch_readahead=2, fragment_readahead=1):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    def rows(self, name: str, columns: Sequence[str] | None = None, where: Any = None) -> list[Row]:
        found = self.dataset(name)
        made: list[Row] = (
            found.to_table(columns=columns and list(columns), filter=where).to_pylist() if found is not None else []
        )
        return made


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
        notes=[*(reader.problems if reader is not None else ())],
        service_count=service_count,
        worker_count=worker_count,
    )


# --- the whole ----------------------------------------------------------------------------------------------------------


def spans(tables: Tables) -> tuple[float, float, Counter[str]]:
    """From when to when the requests are, and how many there are of each outcome."""
    first: datetime | None = None
    last: datetime | None = None
    outcomes: Counter[str] = Counter()
    for batch in tables.batches("requests", ["accepted", "ended", "outcome"]):
        low, high = pc.min(batch["accepted"]).as_py(), pc.max(batch["ended"]).as_py()
        first = min(first or low, low)
        last = max(last or high, high)
        for pair in pc.value_counts(batch["outcome"]).to_pylist():
            outcomes[pair["values"]] += pair["counts"]
    return (_seconds(first) if first else 0.0), (_seconds(last) if last else 0.0), outcomes


def brokers(tables: Tables) -> list[str]:
    names: set[str] = set()
    for name in ("requests", "audit_rules"):
        for batch in tables.batches(name, ["broker"]):
            names.update(pc.unique(batch["broker"]).to_pylist())
    return sorted(names)


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
    breaches = [Breach(rule, says[rule], number, _where(first[rule])) for rule, number in counts.most_common()]
    return Audit(sum(rules.values()), breaches, sorted(rule for rule, checkable in rules.items() if not checkable))


def _where(row: Row) -> str:
    """Where a breach was, in words."""
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


# --- services -----------------------------------------------------------------------------------------------------------


class _Cell:
    """What a service did in one column of the charts."""

    __slots__ = ("latency", "outcomes", "retried", "waits")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.retried = 0
        self.waits: Counter[int] = Counter()
        self.latency: Counter[int] = Counter()

    def count(self, row: Row) -> None:
        """One request."""
        self.outcomes[row["outcome"]] += 1
        self.retried += row["dispatches"] > row["hops"] + 1
        self.waits[row["wait_bucket"]] += 1
        self.latency[row["total_bucket"]] += 1

    def add(self, row: Row) -> None:
        """A window of `services`."""
        self.outcomes.update(dict(row["outcomes"]))
        self.retried += row["retried"]
        self.waits.update(dict(row["wait_histogram"]))
        self.latency.update(dict(row["total_histogram"]))


def service_views(tables: Tables, span: tuple[float, float]) -> tuple[list[ServiceView], int]:
    """The most used services and, as one more, all others together; and how many there are."""
    asked: Counter[str] = Counter()
    begin, end = 0.0, 0.0
    for batch in tables.batches("services", ["service", "requests", "window"], ds.field("seconds") == WINDOWS[0]):
        summed = batch.group_by("service").aggregate([("requests", "sum"), ("window", "min"), ("window", "max")])
        for row in summed.to_pylist():
            asked[row["service"]] += row["requests_sum"]
            begin = min(begin or _seconds(row["window_min"]), _seconds(row["window_min"]))
            end = max(end, _seconds(row["window_max"]) + WINDOWS[0])
    if not asked:
        return [], 0
    shown = [name for name, _ in asked.most_common(SERVICES)]
    rest = f"{len(asked) - len(shown)} other services"
    if span[1] - span[0] <= SHORT:
        stretches = [span]
    else:
        stretches = active(tables, begin, end)
    window, step = _step(sum(last - first for first, last in stretches))
    times = _columns(stretches, step)
    cells: dict[str, dict[int, _Cell]] = {}

    def at(service: str, moment: datetime) -> _Cell:
        place = max(bisect_right(times, _seconds(moment)) - 1, 0)
        return cells.setdefault(service if service in shown else rest, {}).setdefault(place, _Cell())

    if window:
        columns = ["window", "service", "outcomes", "retried", "wait_histogram", "total_histogram"]
        for batch in tables.batches("services", columns, ds.field("seconds") == window):
            for row in batch.to_pylist():
                at(row["service"], row["window"]).add(row)
    else:
        columns = ["ended", "service", "outcome", "dispatches", "hops", "wait_bucket", "total_bucket"]
        for batch in tables.batches("requests", columns):
            for row in batch.to_pylist():
                at(row["service"], row["ended"]).count(row)
    capacity = capacities(tables)
    order = [*shown, *([rest] if rest in cells and rest not in shown else [])]
    return [_view(name, times, step, cells.get(name, {}), capacity.get(name, "")) for name in order], len(asked)


def active(tables: Tables, begin: float, end: float) -> list[tuple[float, float]]:
    """The stretches of time in which there were requests. Idle time between them is long, so that the charts cut it out."""
    unit = WINDOWS[1] if end - begin <= 3 * 86_400 else WINDOWS[2]
    busy: set[float] = set()
    for batch in tables.batches("services", ["window"], ds.field("seconds") == unit):
        busy.update(_seconds(moment) for moment in pc.unique(batch["window"]).to_pylist())
    if not busy:
        return [(begin, end)]
    least = max(5 * unit, (end - begin) * IDLE)
    found: list[tuple[float, float]] = []
    for moment in sorted(busy):
        if found and moment - found[-1][1] < least:
            found[-1] = (found[-1][0], moment + unit)
        else:
            found.append((moment, moment + unit))
    return found


def _columns(stretches: Sequence[tuple[float, float]], step: float) -> list[float]:
    """When each column of the charts begins."""
    times: list[float] = []
    for first, last in stretches:
        base = first - first % step
        made = [base + step * i for i in range(max(1, math.ceil((last - base) / step)))]
        times += [moment for moment in made if not times or moment > times[-1]]
    return times


def _step(span: float) -> tuple[int, float]:
    """Which of the table's windows to read, and how long a column of the charts is: at most ``BINS`` of them.

    Window 0 is none: a time so short is counted anew from its requests.
    """
    if span <= SHORT:
        return 0, next(step for step in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if span / step <= BINS)
    for seconds in WINDOWS:
        for times in (1, 2, 3, 6, 12, 24):
            if span / (seconds * times) <= BINS and (seconds == WINDOWS[-1] or seconds * times <= 60 * WINDOWS[0]):
                return seconds, float(seconds * times)
    return WINDOWS[-1], 86_400.0 * max(1, -(-span // (86_400 * BINS)))


def _view(name: str, times: list[float], step: float, cells: dict[int, _Cell], capacity: str) -> ServiceView:
    empty = _Cell()
    row = [cells.get(i, empty) for i in range(len(times))]
    kinds: Counter[str] = Counter()
    waits: Counter[int] = Counter()
    latency: Counter[int] = Counter()
    for cell in cells.values():
        kinds.update(cell.outcomes)
        waits.update(cell.waits)
        latency.update(cell.latency)
    order = sorted(kinds, key=lambda kind: (kind != "ok", -kinds[kind]))
    return ServiceView(
        name=name,
        times=times,
        step=step,
        outcomes={kind: [float(cell.outcomes[kind]) for cell in row] for kind in order},
        latency={f"p{p:g}": [percentile(cell.latency, p / 100) for cell in row] for p in (50, 90, 99)},
        waits={f"p{p:g}": [percentile(cell.waits, p / 100) for cell in row] for p in (50, 99)},
        heat={(i, bucket): float(n) for i, cell in cells.items() for bucket, n in cell.latency.items()},
        requests=kinds.total(),
        failed=kinds.total() - kinds["ok"] - kinds["cancelled"],
        retries=sum(cell.retried for cell in cells.values()),
        p50=percentile(latency, 0.5),
        p99=percentile(latency, 0.99),
        capacity=capacity,
    )


def capacities(tables: Tables) -> dict[str, str]:
    """Capacity and objective of each service, in words, from the newest hour that has a capacity."""
    newest: dict[str, Row] = {}
    columns = ["window", "service", "requests", "workers", "capacity", "headroom", "objective_us", "target", "within"]
    for row in tables.rows("capacity", columns):
        at, before = (row["capacity"] is not None, row["window"], row["requests"]), newest.get(row["service"])
        if before is None or at > (before["capacity"] is not None, before["window"], before["requests"]):
            newest[row["service"]] = row
    return {service: _bears(row) for service, row in newest.items()}


def _bears(row: Row) -> str:
    return " ".join(text for text in (_capacity(row), _objective(row)) if text)


def _capacity(row: Row) -> str:
    if row["capacity"] is None:
        return ""
    workers = "1 worker" if row["workers"] == 1 else f"{row['workers']} workers"
    if row["headroom"] is None:
        load = ""
    elif row["headroom"] >= 1:
        load = f", {row['headroom']:.3g} times the present load"
    else:
        load = f", which is less than the present load ({row['headroom']:.2f} of it)"
    return (
        f"Capacity: {full(row['capacity'])} requests/s with {workers}{load}; "
        f"beyond it the mean wait exceeds {duration(row['objective_us'])}."
    )


def _objective(row: Row) -> str:
    if not row["requests"]:
        return ""
    share = row["within"] / row["requests"]
    met = "met" if share >= row["target"] else "missed"
    return (
        f"Objective {met}: {percent(share)} of requests were answered within {duration(row['objective_us'])} "
        f"({percent(row['target'])} required)."
    )


# --- workers and who calls what -------------------------------------------------------------------------------------------


def worker_views(tables: Tables) -> tuple[list[WorkerView], int]:
    """The busiest, outliers first; and how many workers there are."""
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
    """The most used; of each kind of end, those beyond the most used are one."""
    summed: dict[tuple[str, str, str], list[float]] = {}
    for batch in tables.batches("topology", ["kind", "source", "target", "requests", "failed", "p50_us"]):
        for row in batch.to_pylist():
            cell = summed.setdefault((row["kind"], row["source"], row["target"]), [0, 0, 0.0])
            cell[0] += row["requests"]
            cell[1] += row["failed"]
            cell[2] += (
                row["requests"] * row["p50_us"]
            )  # medians of hours are weighed: the hours' histograms are not kept
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
    return sorted(made, key=lambda edge: -edge.count)


_UNNAMED = {
    "asks": ("unknown client", "unnamed service"),
    "serves": ("unnamed service", "unknown worker"),
    "passes": ("unnamed service", "unnamed service"),
    "bridges": ("unknown broker", "unknown broker"),
}


def _named(edges: dict[tuple[str, str, str], list[float]]) -> dict[tuple[str, str, str], list[float]]:
    """Ends without a name get one: a client that never said its protocol, a broker whose journal is not in the tables."""
    made: dict[tuple[str, str, str], list[float]] = {}
    for (kind, source, target), cell in edges.items():
        unnamed = _UNNAMED.get(kind, ("unknown", "unknown"))
        key = (kind, source.strip() or unnamed[0], target.strip() or unnamed[1])
        total = made.setdefault(key, [0, 0, 0.0])
        for i, value in enumerate(cell):
            total[i] += value
    return made


def _short(names: Counter[str], what: str) -> dict[str, str]:
    """What each name is called in the drawing: its own, or that of all the rest."""
    if len(names) <= NODES:
        return {name: name for name in names}
    kept = [name for name, _ in names.most_common(NODES - 1)]
    rest = f"{len(names) - len(kept)} other {what}"
    return {name: name if name in kept else rest for name in names}


# --- failures and slow requests ------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"\d+(\.\d+)?")


def failures(tables: Tables, reader: Reader | None = None) -> list[FailureView]:
    """By outcome, service and reason, the most frequent first; reasons that differ only in their numbers are one."""
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


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
