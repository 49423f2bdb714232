"""The report's figures of each service over time, from the table ``services``; for short times, from ``requests``."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow.compute as pc
import pyarrow.dataset as ds

from polydomo.journal.histogram import percentile
from polydomo.pipeline.report.data import ServiceView
from polydomo.pipeline.report.svg import duration, full, percent
from polydomo.pipeline.report.tables import Row, Tables

SERVICES = 12  # shown one by one; the others are summed up
BINS = 120  # columns of a chart, at most
SHORT = 300  # seconds: below, windows of 10 s would give too few columns
WINDOWS = (10, 60, 3600)  # seconds, as in the table `services`
MEMO = {"hit": "memo_hits", "miss": "memo_misses", "joined": "memo_joined"}  # columns of `services`
IDLE = 0.2  # share of the whole time: longer idle times are cut out of the charts


@dataclass(slots=True)
class _Cell:
    """The requests of a service in one column of the charts."""

    outcomes: Counter[str] = field(default_factory=Counter)
    memo: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    waits: Counter[int] = field(default_factory=Counter)
    latency: Counter[int] = field(default_factory=Counter)

    def count(self, row: Row) -> None:
        """Adds one request."""
        self.outcomes[row["outcome"]] += 1
        self.retried += row["dispatches"] > row["hops"] + 1
        if row["memo"]:
            self.memo[row["memo"]] += 1
        self.waits[row["wait_bucket"]] += 1
        self.latency[row["total_bucket"]] += 1

    def add(self, row: Row) -> None:
        """Adds a window of `services`."""
        self.outcomes.update(dict(row["outcomes"]))
        self.retried += row["retried"]
        for how, name in MEMO.items():
            self.memo[how] += row[name] or 0  # null in rows of earlier versions
        self.waits.update(dict(row["wait_histogram"]))
        self.latency.update(dict(row["total_histogram"]))


def service_views(tables: Tables, span: tuple[float, float]) -> tuple[list[ServiceView], int]:
    """The most used services, all others merged into one, and the number of services."""
    asked: Counter[str] = Counter()
    begin, end = 0.0, 0.0
    for batch in tables.batches("services", ["service", "requests", "window"], ds.field("seconds") == WINDOWS[0]):
        summed = batch.group_by("service").aggregate([("requests", "sum"), ("window", "min"), ("window", "max")])
        for row in summed.to_pylist():
            asked[row["service"]] += row["requests_sum"]
            begin = min(begin or row["window_min"].timestamp(), row["window_min"].timestamp())
            end = max(end, row["window_max"].timestamp() + WINDOWS[0])
    if not asked:
        return [], 0
    shown = [name for name, _ in asked.most_common(SERVICES)]
    rest = f"{len(asked) - len(shown)} other services"
    stretches = [span] if span[1] - span[0] <= SHORT else active(tables, begin, end)
    window, step = _step(sum(last - first for first, last in stretches))
    times = _columns(stretches, step)
    cells: dict[str, dict[int, _Cell]] = {}

    def at(service: str, moment: datetime) -> _Cell:
        place = max(bisect_right(times, moment.timestamp()) - 1, 0)
        return cells.setdefault(service if service in shown else rest, {}).setdefault(place, _Cell())

    if window:
        columns = ["window", "service", "outcomes", "retried", "wait_histogram", "total_histogram", *MEMO.values()]
        for batch in tables.batches("services", columns, ds.field("seconds") == window):
            for row in batch.to_pylist():
                at(row["service"], row["window"]).add(row)
    else:
        columns = ["ended", "service", "outcome", "dispatches", "hops", "wait_bucket", "total_bucket", "memo"]
        for batch in tables.batches("requests", columns):
            for row in batch.to_pylist():
                at(row["service"], row["ended"]).count(row)
    capacity = capacities(tables)
    order = [*shown, *([rest] if rest in cells and rest not in shown else [])]
    return [_view(name, times, step, cells.get(name, {}), capacity.get(name, "")) for name in order], len(asked)


def active(tables: Tables, begin: float, end: float) -> list[tuple[float, float]]:
    """The spans of time with requests. The charts cut out the long idle times between them."""
    unit = WINDOWS[1] if end - begin <= 3 * 86_400 else WINDOWS[2]
    busy: set[float] = set()
    for batch in tables.batches("services", ["window"], ds.field("seconds") == unit):
        busy.update(moment.timestamp() for moment in pc.unique(batch["window"]).to_pylist())
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
    """The beginning of each column of the charts."""
    times: list[float] = []
    for first, last in stretches:
        base = first - first % step
        made = [base + step * i for i in range(max(1, math.ceil((last - base) / step)))]
        times += [moment for moment in made if not times or moment > times[-1]]
    return times


def _step(span: float) -> tuple[int, float]:
    """The windows of the table to read, and the length of a column of the charts, so that there are at most ``BINS``.

    Window 0 is none: a time so short is counted anew from its requests.
    """
    if span <= SHORT:
        return 0, next(step for step in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if span / step <= BINS)
    for window in WINDOWS:
        for times in (1, 2, 3, 6, 12, 24):
            if span / (window * times) <= BINS and (window == WINDOWS[-1] or window * times <= 60 * WINDOWS[0]):
                return window, float(window * times)
    return WINDOWS[-1], 86_400.0 * max(1, -(-span // (86_400 * BINS)))


def _view(name: str, times: list[float], step: float, cells: dict[int, _Cell], capacity: str) -> ServiceView:
    empty = _Cell()
    row = [cells.get(i, empty) for i in range(len(times))]
    kinds = sum((cell.outcomes for cell in cells.values()), Counter[str]())
    latency = sum((cell.latency for cell in cells.values()), Counter[int]())
    memo = sum((cell.memo for cell in cells.values()), Counter[str]())
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
        memo=dict(memo),
    )


def capacities(tables: Tables) -> dict[str, str]:
    """Capacity and objective of each service, as text, from the newest hour that has a capacity."""
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
