"""The report as one HTML page: the audit's result first, then charts, then the tables behind them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from polydomo.pipeline.report import charts
from polydomo.pipeline.report.data import (
    Audit,
    Edge,
    FailureView,
    FlowsView,
    JobsView,
    JobView,
    Report,
    ServiceView,
    Slow,
    WorkerView,
)
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
        _section("Services", "".join(map(service, report.services)), ' class="cards"'),
        _section("Who calls what", _topology(report.edges)),
        _section("Workers", workers(report.workers)),
        _section("Durable jobs", jobs(report.jobs)) if report.jobs.services or report.jobs.schedules else "",
        _section("Flows", flows(report.flows)) if report.flows.count else "",
        _section("Failures", failures(report.failures)),
        _section("Slowest requests", slowest(report.slowest)),
        _section("Audit", audit(report.audit)),
        _section("Tables of your own", own_tables(report)) if report.own_tables else "",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _section(name: str, content: str, attributes: str = "") -> str:
    return f"<h2>{escape(name)}</h2><div{attributes}>{content}</div>"


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
        words = f"{found.checked} rules were checked; {need} a higher journal level."
        return "thin", "No broken rule was found.", words
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
        ("services", full(report.service_count)),
        ("workers", full(report.worker_count)),
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
    return charts.legend((f'style="background:{_colour(name)}"', name) for name in outcomes)


def _lines_key(names: Iterable[str]) -> str:
    return charts.legend((f'class="swatch-{i}"', name) for i, name in enumerate(names))


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


def _topology(edges: Sequence[Edge]) -> str:
    def words(e: Edge) -> str:
        return f"p50 {duration(e.p50)}" + (f", {full(e.failed)} failed" if e.failed else "")

    bridges = [f"{e.source} to {e.target}: {full(e.count)} ({words(e)})" for e in edges if e.kind == "bridges"]
    over = f'<p class="soft">Over bridges: {escape("; ".join(bridges))}</p>' if bridges else ""
    rows = [
        (f"{e.source} → {e.target}", _EDGES[e.kind], e.count, e.failed, duration(e.p50))
        for e in edges
        if e.kind in _EDGES
    ]
    narrow = table(("edge", "", "#requests", "#failed", "#p50"), rows)
    drawn = [(e.kind, e.source, e.target, float(e.count), words(e)) for e in edges if e.kind in _EDGES]
    picture = charts.graph(drawn, "clients, services and workers")
    heads = '<p class="columns soft"><span>clients</span><span>services</span><span>workers</span></p>'
    return f'<div class="card wide">{_either(heads + picture, narrow)}{over}</div>'


_EDGES = {"asks": "client to service", "serves": "service to worker", "passes": "forwarded"}


def workers(views: Sequence[WorkerView]) -> str:
    if not views:
        return '<p class="soft">There were no workers.</p>'
    bars = []
    for v in views[:40]:
        words = f"{percent(v.utilisation)} busy{f', {v.outlier}' if v.outlier else ''}"
        bars.append((f"{v.name} {v.service}", v.utilisation, words, bool(v.outlier)))
    body = table(
        ("worker", "service", "protocol", "#answered", "#p50", "#p50 of the others", "#lost", "#late replies"),
        (
            (v.name, v.service, v.protocol, v.answered, duration(v.p50), _known(v.fellows_p50), v.lost, v.stale)
            for v in views
        ),
    )
    return f'<div class="card"><h3>Utilisation</h3>{charts.bars(bars)}</div>{body}'


def _known(us: float) -> str:
    """A duration; 0 is none."""
    return duration(us) if us else "–"


def jobs(view: JobsView) -> str:
    """Jobs by service, dead jobs by reason, and schedules."""
    services = table(
        ("service", "#accepted", "#done", "#dead", "#cancelled", "#open", "#retries", "#mean backoff", "#p50", "#p99"),
        map(_job, view.services),
    )
    dead = "".join(
        f"<li><b>{escape(d.outcome)}</b> {escape(d.service)}: {escape(d.reason)} "
        f'<span class="soft">({times(d.count)}, such as <code>{escape(d.example)}</code>)</span></li>'
        for d in view.dead
    )
    plans = table(("schedule", "#runs", "#skipped"), ((p.name, p.fired, p.skipped) for p in view.schedules))
    led = f", {times(view.leaders)} a broker began to lead" if view.leaders > 1 else ""
    return "".join(
        (
            f'<p class="soft">{full(view.count)} jobs accepted{led}; p50 and p99 from submission to outcome.</p>',
            services if view.services else "",
            f"<h3>Dead jobs</h3><ul>{dead}</ul>" if dead else "",
            f"<h3>Schedules</h3>{plans}" if view.schedules else "",
        )
    )


def _job(v: JobView) -> tuple[str | int, ...]:
    backoff = duration(v.backoff / v.retries) if v.retries else "–"
    counts = v.accepted, v.done, v.dead, v.cancelled, v.open, v.retries
    return v.service, *counts, backoff, _known(v.p50), _known(v.p99)


def flows(view: FlowsView) -> str:
    """Flows by name, and the slowest runs with the nodes that determined how long they took."""
    names = table(
        ("flow", "#runs", "#done", "#failed", "#cancelled", "#nodes", "#p50", "#p99", "critical path"),
        (
            (v.name, v.runs, v.done, v.failed, v.cancelled, v.nodes, duration(v.p50), duration(v.p99), _path(v.parts))
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


def _path(parts: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{service} {share:.0%}" for service, share in parts) or "–"


def _step(step: tuple[str, str, float], total: float) -> tuple[str, ...]:
    name, service, us = step
    return name, service, duration(us), f"{us / total:.0%}" if total else "–"


def failures(found: Sequence[FailureView]) -> str:
    if not found:
        return '<p class="good">None.</p>'
    return "".join(
        f"<details><summary><b>{escape(r.outcome)}</b> {escape(r.service)}: {escape(r.reason)} "
        f'<span class="soft">({times(r.count)})</span></summary>'
        f"<pre>{escape(r.example)}\n{escape(chr(10).join(view.story))}</pre></details>"
        for view in found
        for r in [view.reason]
    )


def slowest(found: Sequence[Slow]) -> str:
    """Waterfalls on one time scale, so that their lengths can be compared."""
    if not found:
        return '<p class="soft">None.</p>'
    longest = max(slow.total for slow in found)
    kinds = (("wait", "in the queue"), ("run", "with a worker"), ("lost", "with a worker that was lost"))
    legend = charts.legend((f'class="w-{kind}"', words) for kind, words in kinds)
    rows = "".join(
        f"<div class=slow><p><code>{escape(slow.request)}</code> {escape(slow.service)}, {duration(slow.total)}, {escape(slow.outcome)}</p>"
        + charts.waterfall(slow.parts, longest, f"the life of {slow.request}")
        + f'<p class="soft">{escape("; ".join(words for *_, words in slow.parts))}</p></div>'
        for slow in found
    )
    return f"{legend}{charts.waterfall_axis(longest)}{rows}"


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
    rows = ((name, count, ", ".join(columns)) for name, count, columns in report.own_tables)
    return table(("table", "#rows", "columns"), rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """A table. A heading that begins with ``#`` marks a column of numbers. On a phone every row is a block."""
    names = [escape(head.lstrip("#")) for head in heads]
    kinds = [" class=n" if head.startswith("#") else "" for head in heads]
    top = "".join(f"<th{kind}>{name}</th>" for name, kind in zip(names, kinds, strict=True))
    body = ""
    for row in rows:
        body += "<tr>"
        for cell, name, kind in zip(row, names, kinds, strict=True):
            text = cell if isinstance(cell, str) else full(cell)
            body += f'<td{kind} data-head="{name}">{escape(text)}</td>'
        body += "</tr>"
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
