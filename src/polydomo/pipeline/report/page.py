"""The report as one HTML page: the audit's result first, then charts, then the tables behind them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from polydomo.pipeline.report import charts
from polydomo.pipeline.report.data import Audit, FailureView, FlowsView, JobsView, Report, ServiceView, Slow, WorkerView
from polydomo.pipeline.report.escape import escape
from polydomo.pipeline.report.svg import WIDE, duration, full, percent

RATIO = 1.02  # of the journal's buckets


def render(report: Report, title: str = "polydomo") -> str:
    style = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{_span(report)} · {escape(", ".join(report.brokers)) or "no broker"}</p>',
        verdict(report.audit),
        *(f'<p class="warn">{escape(note)}</p>' for note in report.notes),
        figures(report),
        traffic(report.services),
        *_section("Services", [service(view) for view in report.services], "cards"),
        *_section("Who calls what", [_topology(report)]),
        *_section("Workers", [workers(report.workers)]),
        *(_section("Durable jobs", [jobs(report.jobs)]) if report.jobs.services or report.jobs.schedules else []),
        *(_section("Flows", [flows(report.flows)]) if report.flows.count else []),
        *_section("Failures", [failures(report.failures)]),
        *_section("Slowest requests", [slowest(report.slowest)]),
        *_section("Audit", [audit(report.audit)]),
        *(_section("Tables of your own", [own_tables(report)]) if report.own_tables else []),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _section(name: str, content: Sequence[str], kind: str = "") -> list[str]:
    return [f"<h2>{escape(name)}</h2>", f'<div class="{kind}">' if kind else "<div>", *content, "</div>"]


def _span(report: Report) -> str:
    if report.until <= report.since:
        return "an empty journal"
    first, last = (datetime.fromtimestamp(moment, UTC) for moment in (report.since, report.until))
    return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC, {duration((report.until - report.since) * 1e6)}"


def verdict(found: Audit) -> str:
    kind, head, words = result_of(found)
    return f'<div class="verdict {kind}"><b>{escape(head)}</b> {escape(words)}</div>'


def result_of(found: Audit) -> tuple[str, str, str]:
    """The audit's result as text: its kind (``broken``, ``thin`` or ``kept``), the result, and the details."""
    if found.breaches:
        broken = len(found.breaches)
        head = "Rule broken:" if broken == 1 else f"{broken} rules broken:"
        words = "; ".join(f"{breach.says.rstrip('.')} ({times(breach.count)})" for breach in found.breaches[:3])
        more = f"; and {broken - 3} more" if broken > 3 else ""
        return "broken", head, f"{words}{more}."
    if not found.checked:
        return "thin", "Nothing was checked.", "There is no journal in these tables."
    if found.unchecked:
        left = len(found.unchecked)
        need = "1 rule needs" if left == 1 else f"{left} rules need"
        return (
            "thin",
            "No broken rule was found.",
            f"{found.checked} rules were checked; {need} a higher journal level.",
        )
    return "kept", "No rule was broken.", f"All {found.checked} rules were checked on every row of the journal."


def times(number: int) -> str:
    return "once" if number == 1 else f"{full(number)} times"


def figures(report: Report) -> str:
    answered = report.outcomes.get("ok", 0)
    seconds = max(report.until - report.since, 1e-9)
    gone = report.outcomes.get("cancelled", 0)
    failed = report.requests - answered - gone
    shown = [
        ("requests", full(report.requests)),
        ("requests/s", full(report.requests / seconds)),
        ("answered", percent(answered / (answered + failed)) if answered + failed else "–"),
        ("failed", full(failed)),
        *([("cancelled by clients", full(gone))] if gone else []),
        ("services", full(report.service_count or len(report.services))),
        ("workers", full(report.worker_count or len(report.workers))),
    ]
    return f'<div class="figures">{"".join(f"<div class=figure><b>{escape(b)}</b>{escape(a)}</div>" for a, b in shown)}</div>'


def traffic(views: Sequence[ServiceView]) -> str:
    """All services together."""
    if not views:
        return ""
    summed: dict[str, list[float]] = {}
    for view in views:
        for name, values in view.outcomes.items():
            before = summed.get(name, [0.0] * len(values))
            summed[name] = [a + b for a, b in zip(before, values, strict=True)]
    shown = {name: summed[name] for name in sorted(summed, key=lambda name: (name != "ok", name)) if any(summed[name])}
    first = views[0]
    label = "requests per second by outcome"
    wide = charts.stacked(first.times, first.step, shown, label, WIDE)
    narrow = charts.stacked(first.times, first.step, shown, label)
    cut = '<p class="soft">Hatched strips: idle time that was cut out.</p>' if 'class="cut"' in narrow else ""
    return (
        f'<div class="card wide"><h3>Requests per second by outcome</h3>{_either(wide, narrow)}{_key(shown)}{cut}</div>'
    )


def _either(wide: str, narrow: str) -> str:
    """A version for wide screens and paper, and one for phones."""
    return f'<div class="only-wide">{wide}</div><div class="only-narrow">{narrow}</div>'


def _key(outcomes: Iterable[str]) -> str:
    spans = "".join(f'<span><i style="background:{_colour(name)}"></i>{escape(name)}</span>' for name in outcomes)
    return f'<p class="soft legend">{spans}</p>'


def _lines_key(names: Iterable[str]) -> str:
    spans = "".join(f'<span><i class="swatch-{i}"></i>{escape(name)}</span>' for i, name in enumerate(names))
    return f'<p class="soft legend">{spans}</p>'


def service(view: ServiceView) -> str:
    shown = {name: values for name, values in view.outcomes.items() if any(values)}
    facts = f"{full(view.requests)} requests, {full(view.failed)} failed"
    if gone := sum(view.outcomes.get("cancelled", ())):
        facts += f", {full(gone)} cancelled by clients"
    if view.retries:
        facts += f", {full(view.retries)} requeued after the loss of a worker"
    return "".join(
        (
            f'<div class="card"><h3>{escape(view.name)}</h3>',
            f'<p class="soft">{facts}; p50 {duration(view.p50)}, p99 {duration(view.p99)}.</p>',
            f'<p class="soft">{escape(view.capacity)}</p>' if view.capacity else "",
            f'<p class="soft">{memo(view.memo)}</p>' if any(view.memo.values()) else "",
            "<h4>Requests per second by outcome</h4>",
            charts.stacked(view.times, view.step, shown, f"requests per second of {view.name} by outcome"),
            _key(shown),
            "<h4>Latency: percentiles</h4>",
            charts.lines(view.times, view.step, view.latency, f"latency percentiles of {view.name}"),
            _lines_key(view.latency),
            "<h4>Latency: distribution</h4>",
            charts.heat(view.times, view.step, view.heat, RATIO, f"distribution of the latencies of {view.name}"),
            "<h4>Wait in the queue: percentiles</h4>",
            charts.lines(view.times, view.step, view.waits, f"queue wait percentiles of {view.name}"),
            _lines_key(view.waits),
            "</div>",
        )
    )


def memo(counts: Mapping[str, int]) -> str:
    """How requests for a memoised service were answered."""
    total = sum(counts.values())
    hits, joined = counts.get("hit", 0), counts.get("joined", 0)
    text = f"Memoised: {percent(hits / total)} of {full(total)} requests were answered from the store"
    if joined:
        text += f", {percent(joined / total)} with the reply to an identical request that was running"
    return f"{text}."


def _colour(outcome: str) -> str:
    colours = {"ok": "--good", "timeout": "--warn", "no-worker": "--warn", "cancelled": "--soft", "shutdown": "--soft"}
    return f"var({colours.get(outcome, '--violet' if outcome in ('refused', 'too-large') else '--bad')})"


def _topology(report: Report) -> str:
    edges = []
    for edge in report.edges:
        failed = f", {full(edge.failed)} failed" if edge.failed else ""
        edges.append((edge.kind, edge.source, edge.target, float(edge.count), f"p50 {duration(edge.p50)}{failed}"))
    bridges = [
        f"{source} to {target}: {full(number)} ({words})"
        for kind, source, target, number, words in edges
        if kind == "bridges"
    ]
    over = f'<p class="soft">Over bridges: {escape("; ".join(bridges))}</p>' if bridges else ""
    rows = [
        (f"{e.source} → {e.target}", _EDGES[e.kind], full(e.count), full(e.failed), duration(e.p50))
        for e in report.edges
        if e.kind in _EDGES
    ]
    narrow = table(("edge", "", "#requests", "#failed", "#p50"), rows)
    picture = charts.graph(edges, "clients, services and workers")
    heads = '<p class="columns soft"><span>clients</span><span>services</span><span>workers</span></p>'
    return f'<div class="card wide">{_either(heads + picture, narrow)}{over}</div>'


_EDGES = {"asks": "client to service", "serves": "service to worker", "passes": "forwarded"}


def workers(views: Sequence[WorkerView]) -> str:
    rows = [
        (
            f"{view.name} {view.service}",
            view.utilisation,
            f"{percent(view.utilisation)} busy{f', {view.outlier}' if view.outlier else ''}",
            bool(view.outlier),
        )
        for view in views[:40]
    ]
    body = table(
        ("worker", "service", "protocol", "#answered", "#p50", "#p50 of the others", "#lost", "#late replies"),
        (
            (
                v.name,
                v.service,
                v.protocol,
                full(v.answered),
                duration(v.p50),
                duration(v.fellows_p50) if v.fellows_p50 else "–",
                str(v.lost),
                str(v.stale),
            )
            for v in views[:200]
        ),
    )
    if not rows:
        return '<p class="soft">There were no workers.</p>'
    return f'<div class="card"><h3>Utilisation</h3>{charts.bars(rows)}</div>{body}'


def jobs(view: JobsView) -> str:
    """Jobs by service, dead jobs by reason, and schedules."""
    services = table(
        ("service", "#accepted", "#done", "#dead", "#cancelled", "#open", "#retries", "#mean backoff", "#p50", "#p99"),
        (
            (
                v.service,
                full(v.accepted),
                full(v.done),
                full(v.dead),
                full(v.cancelled),
                full(v.open),
                full(v.retries),
                duration(v.backoff / v.retries) if v.retries else "–",
                duration(v.p50) if v.p50 else "–",
                duration(v.p99) if v.p99 else "–",
            )
            for v in view.services
        ),
    )
    dead = "".join(
        f"<li><b>{escape(d.outcome)}</b> {escape(d.service)}: {escape(d.reason)} "
        f'<span class="soft">({times(d.count)}, such as <code>{escape(d.example)}</code>)</span></li>'
        for d in view.dead
    )
    plans = table(("schedule", "#runs", "#skipped"), ((p.name, full(p.fired), full(p.skipped)) for p in view.schedules))
    led = f", {times(view.leaders)} a broker began to lead" if view.leaders > 1 else ""
    return "".join(
        (
            f'<p class="soft">{full(view.count)} jobs accepted{led}; p50 and p99 from submission to outcome.</p>',
            services if view.services else "",
            f"<h3>Dead jobs</h3><ul>{dead}</ul>" if dead else "",
            f"<h3>Schedules</h3>{plans}" if view.schedules else "",
        )
    )


def flows(view: FlowsView) -> str:
    """Flows by name, and the slowest runs with the nodes that determined how long they took."""
    names = table(
        ("flow", "#runs", "#done", "#failed", "#cancelled", "#nodes", "#p50", "#p99", "critical path"),
        (
            (
                v.name,
                full(v.runs),
                full(v.done),
                full(v.failed),
                full(v.cancelled),
                full(v.nodes),
                duration(v.p50),
                duration(v.p99),
                ", ".join(f"{service} {share:.0%}" for service, share in v.parts) or "–",
            )
            for v in view.flows
        ),
    )
    runs = "".join(
        f"<details><summary><code>{escape(run.flow)}</code> {escape(run.name)}: {escape(run.state)} after {duration(run.total)}, "
        f"{full(run.nodes)} nodes, {full(run.open_at_once)} open on average</summary>"
        + table(("node", "service", "#took", "#share"), [_step(step, run.total) for step in run.steps])
        + f'<p class="soft">{len(run.steps)} of the {full(run.critical)} nodes on the critical path, those that took longest.</p></details>'
        for run in view.slowest
    )
    return (
        f'<p class="soft">{full(view.count)} runs ended. The critical path of a run leads from the node that ended last to the one that it '
        f"waited for longest, and so on: its services determined how long the run took.</p>{names}<h3>Slowest runs</h3>{runs}"
    )


def _step(step: tuple[str, str, float], total: float) -> tuple[str, ...]:
    name, service, us = step
    return name, service, duration(us), f"{us / total:.0%}" if total else "–"


def failures(found: Sequence[FailureView]) -> str:
    if not found:
        return '<p class="good">None.</p>'
    return "".join(
        f"<details><summary><b>{escape(view.outcome)}</b> {escape(view.service)}: {escape(view.reason)} "
        f'<span class="soft">({times(view.count)})</span></summary>'
        f"<pre>{escape(view.example)}\n{escape(chr(10).join(view.story))}</pre></details>"
        for view in found
    )


def slowest(found: Sequence[Slow]) -> str:
    """Waterfalls on one time scale, so that their lengths can be compared."""
    if not found:
        return '<p class="soft">None.</p>'
    longest = max(slow.total for slow in found)
    kinds = (("wait", "in the queue"), ("run", "with a worker"), ("lost", "with a worker that was lost"))
    legend = "".join(f'<span><i class="w-{kind}"></i>{words}</span>' for kind, words in kinds)
    rows = "".join(
        f"<div class=slow><p><code>{escape(slow.request)}</code> {escape(slow.service)}, {duration(slow.total)}, {escape(slow.outcome)}</p>"
        + charts.waterfall(slow.parts, longest, f"the life of {slow.request}")
        + f'<p class="soft">{escape("; ".join(words for *_, words in slow.parts))}</p></div>'
        for slow in found
    )
    return f'<p class="soft legend">{legend}</p>{charts.waterfall_axis(longest)}{rows}'


def audit(found: Audit) -> str:
    broken = table(
        ("rule", "what must hold", "#broken", "first at"),
        ((b.rule, b.says, times(b.count), b.example) for b in found.breaches),
    )
    unchecked = (
        f'<p class="soft">Not checked, since the journal level is too low: {escape(", ".join(found.unchecked))}.</p>'
        if found.unchecked
        else ""
    )
    return f"<p>{found.checked} rules checked, {len(found.breaches)} broken.</p>{broken if found.breaches else ''}{unchecked}"


def own_tables(report: Report) -> str:
    """The tables that users declared, and those of payloads."""
    rows = ((name, full(count), ", ".join(columns)) for name, count, columns in report.own_tables)
    return table(("table", "#rows", "columns"), rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A heading that begins with ``#`` marks a column of numbers. On a phone every row is a block."""
    numeric = [head.startswith("#") for head in heads]
    top = "".join(
        f"<th{' class=n' if n else ''}>{escape(head.lstrip('#'))}</th>" for head, n in zip(heads, numeric, strict=True)
    )
    names = [escape(head.lstrip("#"), quote=True) for head in heads]
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{" class=n" if n else ""} data-head="{name}">{escape(cell)}</td>'
            for cell, n, name in zip(row, numeric, names, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
