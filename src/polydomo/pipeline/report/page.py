"""The report as one HTML page: audit first, in plain words, then pictures, then the tables behind them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from polydomo.pipeline.report import charts
from polydomo.pipeline.report.data import Audit, FailureView, Report, ServiceView, Slow, WorkerView
from polydomo.pipeline.report.svg import WIDE, count, duration

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
        *_section("Failures", [failures(report.failures)]),
        *_section("The slowest", [slowest(report.slowest)]),
        *_section("What was checked", [audit(report.audit)]),
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
    kind, head, words = told(found)
    return f'<div class="verdict {kind}"><b>{escape(head)}</b> {escape(words)}</div>'


def told(found: Audit) -> tuple[str, str, str]:
    """The audit's result in plain words: its kind (``broken``, ``thin`` or ``kept``), the gist, and the rest."""
    if found.breaches:
        broken = len(found.breaches)
        words = f"{'One rule was' if broken == 1 else f'{broken} rules were'} broken: " + "; ".join(
            f"{breach.says.rstrip('.')} ({times(breach.count)})" for breach in found.breaches[:3]
        )
        return "broken", "Promises were broken.", f"{words}{f'; and {broken - 3} more' if broken > 3 else ''}."
    if not found.checked:
        return "thin", "Nothing was checked.", "There is no journal in these tables."
    if found.unchecked:
        words = f"All {found.checked} rules that this journal can show were kept. {len(found.unchecked)} more need a higher journal level."
        return "thin", "Nothing wrong in what was recorded.", words
    return "kept", "Every promise was kept.", f"All {found.checked} rules hold on every row of the journal."


def times(number: int) -> str:
    return "once" if number == 1 else f"{count(number)} times"


def figures(report: Report) -> str:
    answered = report.outcomes.get("ok", 0)
    seconds = max(report.until - report.since, 1e-9)
    gone = report.outcomes.get("cancelled", 0)
    failed = report.requests - answered - gone
    shown = [
        ("requests", count(report.requests)),
        ("a second", count(report.requests / seconds)),
        ("answered", f"{100 * answered / (answered + failed):.4g} %" if answered + failed else "–"),
        ("failed", count(failed)),
        *([("given up by clients", count(gone))] if gone else []),
        ("services", count(report.service_count or len(report.services))),
        ("workers", count(report.worker_count or len(report.workers))),
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
    picture = charts.stacked(first.times, first.step, shown, "requests a second by outcome", WIDE)
    return f'<div class="card wide"><h3>requests a second, by what came of them</h3>{picture}{_key(shown)}</div>'


def _key(outcomes: Iterable[str]) -> str:
    spans = "".join(f'<span style="color:{_colour(name)}">{escape(name)}</span>' for name in outcomes)
    return f'<p class="soft key">{spans}</p>'


def service(view: ServiceView) -> str:
    shown = {name: values for name, values in view.outcomes.items() if any(values)}
    facts = f"{count(view.requests)} requests, {count(view.failed)} failed"
    if gone := sum(view.outcomes.get("cancelled", ())):
        facts += f", {count(gone)} given up by clients"
    if view.retries:
        facts += f", {count(view.retries)} given to another worker"
    return "".join(
        (
            f'<div class="card"><h3>{escape(view.name)}</h3>',
            f'<p class="soft">{facts}; p50 {duration(view.p50)}, p99 {duration(view.p99)}</p>',
            f'<p class="soft">{escape(view.capacity)}</p>' if view.capacity else "",
            charts.stacked(view.times, view.step, shown, f"requests a second of {view.name} by outcome"),
            _key(shown),
            "<h3>latency</h3>",
            charts.lines(view.times, view.step, view.latency, f"latency percentiles of {view.name}"),
            charts.heat(view.times, view.step, view.heat, RATIO, f"latencies of {view.name} as a heat map"),
            "<h3>wait for a worker</h3>",
            charts.lines(view.times, view.step, view.waits, f"queue wait percentiles of {view.name}"),
            "</div>",
        )
    )


def _colour(outcome: str) -> str:
    colours = {"ok": "--good", "timeout": "--warn", "no-worker": "--warn", "cancelled": "--soft", "shutdown": "--soft"}
    return f"var({colours.get(outcome, '--violet' if outcome in ('refused', 'too-large') else '--bad')})"


def _topology(report: Report) -> str:
    edges = []
    for edge in report.edges:
        failed = f", {count(edge.failed)} failed" if edge.failed else ""
        edges.append((edge.kind, edge.source, edge.target, float(edge.count), f"p50 {duration(edge.p50)}{failed}"))
    bridges = [
        f"{source} to {target}: {count(number)} ({words})"
        for kind, source, target, number, words in edges
        if kind == "bridges"
    ]
    over = f'<p class="soft">Over bridges: {escape("; ".join(bridges))}</p>' if bridges else ""
    return f'<div class="card wide">{charts.graph(edges, "clients, services and workers")}{over}</div>'


def workers(views: Sequence[WorkerView]) -> str:
    rows = [
        (
            f"{view.name} {view.service}",
            view.utilisation,
            f"{100 * view.utilisation:.3g} % busy{f', {view.outlier}' if view.outlier else ''}",
            bool(view.outlier),
        )
        for view in views[:40]
    ]
    body = table(
        ("worker", "service", "protocol", "#answered", "#p50", "#fellows' p50", "#lost", "#late replies"),
        (
            (
                v.name,
                v.service,
                v.protocol,
                count(v.answered),
                duration(v.p50),
                duration(v.fellows_p50) if v.fellows_p50 else "–",
                str(v.lost),
                str(v.stale),
            )
            for v in views[:200]
        ),
    )
    return f'<div class="card wide">{charts.bars(rows, "utilisation of workers")}</div>{body}'


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
    return "".join(
        f"<p class=slow><code>{escape(slow.request)}</code> {escape(slow.service)}, {duration(slow.total)}, {escape(slow.outcome)}</p>"
        + charts.waterfall(slow.parts, slow.total, f"the life of {slow.request}")
        for slow in found
    )


def audit(found: Audit) -> str:
    broken = table(
        ("rule", "says", "#broken", "for example"),
        ((b.rule, b.says, count(b.count), b.example) for b in found.breaches),
    )
    unchecked = (
        f'<p class="soft">Not checked at this level: {escape(", ".join(found.unchecked))}.</p>'
        if found.unchecked
        else ""
    )
    return f"<p>{found.checked} rules checked, {len(found.breaches)} broken.</p>{broken if found.breaches else ''}{unchecked}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A head that begins with ``#`` is a column of numbers."""
    numeric = [head.startswith("#") for head in heads]
    top = "".join(
        f"<th{' class=n' if n else ''}>{escape(head.lstrip('#'))}</th>" for head, n in zip(heads, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if n else ''}>{escape(cell)}</td>" for cell, n in zip(row, numeric, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
