"""The report's figures of flows, from the tables ``flows`` and ``flow_nodes``."""

from collections import Counter

import pyarrow.dataset as ds

from polydomo.journal import histogram
from polydomo.pipeline.report.data import FlowRunView, FlowsView, FlowView
from polydomo.pipeline.report.tables import Row, Tables

FLOWS = 40  # names that are shown
SLOWEST = 5  # runs
STEPS = 8  # of a critical path, those that took longest
PARTS = 4  # services of a critical path


def flows_view(tables: Tables) -> FlowsView:
    made = FlowsView()
    views: dict[str, FlowView] = {}
    totals: dict[str, Counter[int]] = {}
    names: dict[tuple[str, int, int], str] = {}
    slowest: list[Row] = []
    columns = ["flow", "run", "seq", "name", "state", "nodes", "total_us", "open_us"]
    for batch in tables.batches("flows", columns):
        rows = batch.to_pylist()
        for row in rows:
            made.count += 1
            names[row["flow"], row["run"], row["seq"]] = row["name"]
            view = views.setdefault(row["name"], FlowView(row["name"]))
            setattr(view, row["state"], getattr(view, row["state"]) + 1)
            view.nodes += row["nodes"]
            totals.setdefault(row["name"], Counter())[histogram.bucket(row["total_us"])] += 1
        slowest = sorted([*slowest, *rows], key=lambda row: (-row["total_us"], row["flow"], row["seq"]))[:SLOWEST]
    if not made.count:
        return made
    parts: dict[str, Counter[str]] = {}
    for batch in tables.batches(
        "flow_nodes", ["flow", "run", "seq", "service", "critical_us"], ds.field("critical_us") > 0
    ):
        for row in batch.to_pylist():
            name = names.get((row["flow"], row["run"], row["seq"]))
            if name is not None:
                parts.setdefault(name, Counter())[row["service"] or "?"] += row["critical_us"]
    for name, view in views.items():
        view.p50 = histogram.percentile(totals[name], 0.5)
        view.p99 = histogram.percentile(totals[name], 0.99)
        whole = sum(parts.get(name, Counter()).values())
        view.parts = [(service, us / whole) for service, us in parts.get(name, Counter()).most_common(PARTS)]
    made.flows = sorted(views.values(), key=lambda view: (-view.failed, -view.runs, view.name))[:FLOWS]
    made.slowest = [_run(tables, row) for row in slowest]
    return made


def _run(tables: Tables, flow: Row) -> FlowRunView:
    """A run with the steps of its critical path that took longest, in their order."""
    where = (ds.field("flow") == flow["flow"]) & (ds.field("run") == flow["run"]) & (ds.field("seq") == flow["seq"])
    columns = ["name", "service", "critical", "critical_us"]
    nodes = [row for row in tables.rows("flow_nodes", columns, where) if row["critical"] is not None]
    longest = sorted(nodes, key=lambda row: (-row["critical_us"], row["critical"]))[:STEPS]
    steps = [
        (row["name"], row["service"] or "?", float(row["critical_us"]))
        for row in sorted(longest, key=lambda row: row["critical"])
    ]
    total = float(flow["total_us"])
    at_once = flow["open_us"] / total if total else 0.0
    return FlowRunView(flow["flow"], flow["name"], flow["state"], flow["nodes"], total, at_once, len(nodes), steps)
