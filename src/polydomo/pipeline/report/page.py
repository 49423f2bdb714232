"""The report as one HTML page: audit first, in plain words, then pictures, then the tables behind them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from polydomo.pipeline.report import charts
from polydomo.pipeline.report.data import Audit, FailureView, Report, ServiceView, Slow, WorkerView
from polydomo.pipeline.report.svg import count, duration

RATIO = 1.02  # of the journal's buckets


def render(report: Report, title: str = "polydomo") -> str:
    style = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{_span(report)} · {escape(", ".join(report.brokers)) or "no broker"}</p>',
        verdict(report.audit),
        *(f'<p class="warn">{escape(note)}</p>' for note in report.notes),
        figures(report),
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
    if found.breaches:
        broken = len(found.breaches)
        words = f"{'One rule was' if broken == 1 else f'{broken} rules were'} broken: " + "; ".join(
            f"{breach.says.rstrip('.')} ({count(breach.count)} times)" for breach in found.breaches[:3]
        )
        return f'<div class="verdict broken"><b>Promises were broken.</b> {escape(words)}.</div>'
    if found.unchecked:
        words = f"All {found.checked} rules that this journal can show were kept. {len(found.unchecked)} more need a higher journal level."
        return f'<div class="verdict thin"><b>Nothing wrong in what was recorded.</b> {words}</div>'
    return f'<div class="verdict"><b>Every promise was kept.</b> All {found.checked} rules hold on every row of the journal.</div>'


def figures(report: Report) -> str:
    answered = report.outcomes.get("ok", 0)
    seconds = max(report.until - report.since, 1e-9)
    failed = report.requests - answered
    shown = [
        ("requests", count(report.requests)),
        ("a second", count(report.requests / seconds)),
        ("answered", f"{100 * answered / report.requests:.4g} %" if report.requests else "–"),
        ("failed", count(failed)),
        ("services", count(len(report.services))),
        ("workers", count(len(report.workers))),
    ]
    return f'<div class="figures">{"".join(f"<div class=figure><b>{escape(b)}</b>{escape(a)}</div>" for a, b in shown)}</div>'


def service(view: ServiceView) -> str:
    shown = {name: values for name, values in view.outcomes.items() if any(values)}
    key = "".join(f'<span style="color:{_colour(name)}">{escape(name)}</span>' for name in shown)
    facts = f"{count(view.requests)} requests, {count(view.failed)} failed, {count(view.retries)} given to another worker"
    return "".join(
        (
            f'<div class="card"><h3>{escape(view.name)}</h3>',
            f'<p class="soft">{facts}; p50 {duration(view.p50)}, p99 {duration(view.p99)}</p>',
            f'<p class="soft">{escape(view.capacity)}</p>' if view.capacity else "",
            charts.stacked(view.times, view.step, shown, f"requests a second of {view.name} by outcome"),
            f'<p class="soft key">{key}</p>',
            "<h3>latency</h3>",
            charts.lines(view.times, view.latency, f"latency percentiles of {view.name}"),
            charts.heat(view.times, view.step, view.heat, RATIO, f"latencies of {view.name} as a heat map"),
            "<h3>wait for a worker</h3>",
            charts.lines(view.times, view.waits, f"queue wait percentiles of {view.name}"),
            "</div>",
        )
    )


def _colour(outcome: str) -> str:
    colours = {"ok": "--good", "timeout": "--warn", "no-worker": "--warn", "cancelled": "--soft", "shutdown": "--soft"}
    return f"var({colours.get(outcome, '--violet' if outcome in ('refused', 'too-large') else '--bad')})"


def _topology(report: Report) -> str:
    edges = [(edge.client, edge.service, edge.worker, float(edge.count), f"p50 {duration(edge.p50)}") for edge in report.edges]
    return f'<div class="card">{charts.graph(edges, "clients, services and workers")}</div>'


def workers(views: Sequence[WorkerView]) -> str:
    rows = [
        (view.name, view.utilisation, f"{100 * view.utilisation:.0f} % busy{', slow' if view.outlier else ''}", view.outlier)
        for view in views[:40]
    ]
    body = table(
        ("worker", "service", "protocol", "#answered", "#p50", "#fellows' p50", "#lost", "#late replies"),
        (
            (v.name, v.service, v.protocol, count(v.answered), duration(v.p50), duration(v.fellows_p50), str(v.lost), str(v.stale))
            for v in views[:200]
        ),
    )
    return f'<div class="card">{charts.bars(rows, "utilisation of workers")}</div>{body}'


def failures(found: Sequence[FailureView]) -> str:
    if not found:
        return '<p class="good">None.</p>'
    return "".join(
        f"<details><summary><b>{escape(view.outcome)}</b> {escape(view.service)}: {escape(view.reason)} "
        f'<span class="soft">({count(view.count)} times)</span></summary>'
        f"<pre>{escape(view.example)}\n{escape(chr(10).join(view.story))}</pre></details>"
        for view in found
    )


def slowest(found: Sequence[Slow]) -> str:
    return "".join(
        f"<p><code>{escape(slow.request)}</code> {escape(slow.service)}, {duration(slow.total)}, {escape(slow.outcome)}</p>"
        + charts.waterfall(slow.parts, slow.total, f"the life of {slow.request}")
        for slow in found
    )


def audit(found: Audit) -> str:
    broken = table(
        ("rule", "says", "#broken", "for example"), ((b.rule, b.says, count(b.count), b.example) for b in found.breaches)
    )
    unchecked = f'<p class="soft">Not checked at this level: {escape(", ".join(found.unchecked))}.</p>' if found.unchecked else ""
    return f"<p>{found.checked} rules checked, {len(found.breaches)} broken.</p>{broken if found.breaches else ''}{unchecked}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A head that begins with ``#`` is a column of numbers."""
    numeric = [head.startswith("#") for head in heads]
    top = "".join(f"<th{' class=n' if n else ''}>{escape(head.lstrip('#'))}</th>" for head, n in zip(heads, numeric, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if n else ''}>{escape(cell)}</td>" for cell, n in zip(row, numeric, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
