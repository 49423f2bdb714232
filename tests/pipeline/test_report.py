"""The report: its figures, that it is one self-contained page, and its layout in a browser."""

import re
import shutil
import subprocess
from datetime import timedelta
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip(
    "pyspark", reason="the tables' columns are stated beside what makes them; pip install 'polydomo[spark]'"
)

from typer.testing import CliRunner

from polydomo.cli.main import app
from polydomo.pipeline.report import charts, load, page, services, svg
from polydomo.pipeline.report.data import Audit, BrokenRule, Report
from polydomo.pipeline.report.tables import Tables
from tests.pipeline import small
from tests.pipeline.small import BEGIN

VOID = {"meta", "br", "img", "hr", "input", "link"}


class Checker(HTMLParser):
    """Checks that every element is closed, and collects what could fetch or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.dangers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag in ("script", "img", "link", "iframe", "object", "image", "use"):
            self.dangers.append(tag)
        self.dangers += [
            name for name, _ in attrs if name in ("src", "href", "xlink:href", "srcset") or name.startswith("on")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("tables")
    small.tables(directory)
    return directory


@pytest.fixture(scope="module")
def report(tables: Path) -> Report:
    return load.load(Tables(tables))


def test_totals_are_counted_from_the_requests(report: Report) -> None:
    assert report.requests == 902
    assert report.outcomes == {"ok": 883, "timeout": 18, "failed": 1}
    assert report.brokers == ["b1"]
    assert report.since == small.BEGIN.timestamp()
    assert 898 < report.until - report.since < 905


def test_services_have_their_requests_in_time_and_percentiles_of_their_histograms(report: Report, tables: Path) -> None:
    resize = next(view for view in report.services if view.name == "resize")
    assert report.services[0] is resize and report.service_count == 4
    assert sum(sum(values) for values in resize.outcomes.values()) == resize.requests
    assert sum(resize.heat.values()) == resize.requests
    assert len(resize.times) <= services.BINS and all(
        len(values) == len(resize.times) for values in resize.latency.values()
    )
    totals = sorted(row["total_us"] for row in Tables(tables).rows("requests") if row["service"] == "resize")
    assert resize.p50 == pytest.approx(totals[len(totals) // 2 - 1], rel=0.02)
    assert resize.p99 == pytest.approx(totals[-(-len(totals) * 99 // 100) - 1], rel=0.02)
    assert "Capacity: 250 requests/s with 5 workers, 12.5 times the present load" in resize.capacity


def test_the_share_of_memoised_replies(report: Report) -> None:
    view = next(view for view in report.services if view.name == "service-01")
    assert view.memo == {"hit": 90, "miss": 30, "joined": 30}
    assert (
        f"Memoised: {svg.percent(0.6)} of 150 requests were answered from the store, {svg.percent(0.2)} with the reply"
        in page.service(view)
    )
    other = next(view for view in report.services if view.name == "resize")
    assert not any(other.memo.values()) and "Memoised" not in page.service(other)


def test_tables_of_an_earlier_version_lack_new_columns(tmp_path: Path) -> None:
    small.tables(tmp_path)
    for name in ("services", "requests"):
        (file,) = (tmp_path / name).rglob("*.parquet")
        kept = pq.read_table(file, partitioning=None)
        new = [column for column in kept.schema.names if column.startswith("memo")]
        assert new
        pq.write_table(kept.drop_columns(new), file)
    assert load.load(Tables(tmp_path)).requests == 902
    views, _ = services.service_views(Tables(tmp_path), (0, 10))  # counted from the requests
    assert not any(any(view.memo.values()) for view in views)


def test_durable_jobs_by_service_with_dead_jobs_and_schedules(report: Report) -> None:
    (view,) = report.jobs.services
    assert (view.service, view.accepted, view.done, view.dead, view.open) == ("billing.invoices", 8, 6, 1, 1)
    assert view.retries == 7 and view.backoff == 7 * 1_500_000 and view.p50 == pytest.approx(2_000_000, rel=0.02)
    (dead,) = report.jobs.dead
    assert (dead.outcome, dead.count) == ("failed", 1) and dead.reason.endswith("no such customer 17")
    (plan,) = report.jobs.schedules
    assert (plan.fired, plan.skipped) == (1, 1)


def test_flows_with_what_determined_how_long_they_took(report: Report) -> None:
    view = report.flows
    (flow,) = view.flows
    assert (view.count, flow.name, flow.done, flow.failed, flow.nodes) == (3, small.EVIL, 2, 1, 9)
    assert flow.parts == [("ocr", 0.75), ("join", 0.25)] and flow.p50 == pytest.approx(4_000_000, rel=0.02)
    slowest = view.slowest[0]
    assert (slowest.state, slowest.critical) == ("failed", 2) and slowest.open_at_once == pytest.approx(1.5)
    assert [(service, us) for _, service, us in slowest.steps] == [("ocr", 3_000_000.0), ("join", 1_000_000.0)]
    shown = page.flows(view)
    assert "ocr 75%, join 25%" in shown and "2 of the 2 nodes on the critical path" in shown


def test_services_beyond_the_most_used_are_summed_up(tmp_path: Path) -> None:
    rows = small.tables(tmp_path, services=30)
    views, number = services.service_views(Tables(tmp_path), (0, 900))
    assert number == 31  # resize, 29 others, and the one with a wicked name
    assert len(views) == services.SERVICES + 1 and views[-1].name == f"{31 - services.SERVICES} other services"
    assert sum(view.requests for view in views) == len(rows)


@pytest.mark.parametrize("hours", [0.01, 0.3, 3, 11, 30, 130, 2000, 50_000])
def test_however_long_the_time_the_charts_have_a_bounded_number_of_columns(hours: float) -> None:
    window, step = services._step(hours * 3600)
    assert hours * 3600 / step <= services.BINS
    assert (window in services.WINDOWS and step % window == 0) or (not window and hours * 3600 <= services.SHORT)


def test_failures_are_counted_by_reason_and_numbers_in_a_reason_do_not_divide_it(report: Report) -> None:
    assert [(why.outcome, why.service, why.count) for why in (view.reason for view in report.failures)] == [
        ("timeout", "resize", 12),
        ("timeout", "service-00", 6),
        ("failed", small.EVIL, 1),
    ]
    story = "\n".join(report.failures[-1].story)
    assert "called" in story and "dispatched to w1" in story and "failed (failed)" not in story and "failed: " in story


def test_the_slowest_are_waterfalls_of_their_turns(report: Report) -> None:
    assert len(report.slowest) == load.SLOWEST
    assert [slow.total for slow in report.slowest] == sorted((slow.total for slow in report.slowest), reverse=True)
    first, second = report.slowest[:2]
    assert [part[0] for part in first.parts] == ["wait", "lost", "wait", "run"]
    assert [round(part[2] / 1e6, 3) for part in first.parts] == [0.5, 1.5, 1.7, 4.5]
    assert second.service == "resize → store"
    assert [part[3].split(",")[0] for part in second.parts] == ["waited 100 ms", "resize w1 1 s", "store w3 2 s"]


def test_a_history_from_the_tables_names_the_workers(tables: Path) -> None:
    from polydomo.journal.reading.reader import Reader
    from polydomo.pipeline.report import stories

    known = Tables(tables)
    row = next(row for row in known.rows("requests") if row["number"] == 901)
    hops = sorted((hop for hop in known.rows("hops") if hop["number"] == 901), key=lambda hop: int(hop["position"]))
    observed = "\n".join(stories.story(row, hops, Reader([])))
    assert "dispatched twice" in observed
    assert "worker w1 lost after it held the request for 1.0 s" in observed
    assert "dispatched to w2" in observed and "attempt 2" in observed and "w2 answered" in observed
    assert "no worker offers" not in observed  # the tables do not keep that


def test_workers_and_edges(report: Report) -> None:
    assert report.worker_count == 5 and report.workers[0].outlier == "slow"
    assert report.workers[0].utilisation == pytest.approx(5 / 9)
    assert {edge.kind for edge in report.edges} == {"asks", "serves", "passes", "bridges"}


def test_edges_beyond_the_most_used_are_one(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    rows = [
        {
            "window": small.BEGIN,
            "kind": "asks",
            "source": f"c{n}",
            "target": f"s{n}",
            "requests": 100 - n,
            "p50_us": 1.0,
        }
        for n in range(40)
    ]
    small.write(tmp_path, "topology", rows)
    edges = load.edges(Tables(tmp_path))
    assert len({edge.source for edge in edges}) == load.NODES
    assert sum(edge.count for edge in edges) == sum(100 - n for n in range(40))
    assert f"{41 - load.NODES} other clients" in {edge.source for edge in edges}


def test_the_audit_lists_rules_that_were_and_were_not_checked(report: Report) -> None:
    assert report.audit.checked == 2 and report.audit.unchecked == ["fenced"]
    assert [(breach.rule, breach.count) for breach in report.audit.breaches] == [("one-outcome", 1)]
    assert "row 1234, request 5" in report.audit.breaches[0].example


def test_the_page_is_whole_fetches_nothing_and_lets_no_text_become_markup(report: Report) -> None:
    text = page.render(report, small.EVIL)
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open and not checker.dangers
    assert {"svg", "table", "details", "h1"} <= checker.seen
    assert "<script" not in text and text.count("&lt;script&gt;alert(1)") > 10
    assert not re.search(r"https?://|@import|url\(", text)


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (Audit(0), "thin", "Nothing was checked"),
        (Audit(20), "kept", "No rule was broken. All 20 rules"),
        (Audit(20, unchecked=["fenced"]), "thin", "1 rule needs a higher journal level"),
        (Audit(20, [BrokenRule("a", "It holds.", 1, "")]), "broken", "Rule broken: It holds (once)."),
        (
            Audit(20, [BrokenRule(name, "It holds.", 2000, "") for name in "abcd"]),
            "broken",
            "4 rules broken: It holds (2,000 times)",
        ),
    ],
)
def test_the_verdict_in_plain_words(found: Audit, kind: str, words: str) -> None:
    observed = page.result_of(found)
    assert observed[0] == kind and words in " ".join(observed)


def test_a_report_of_empty_tables(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    text = page.render(load.load(Tables(tmp_path)))
    assert "an empty journal" in text


def test_the_command_writes_the_page_and_prints_the_verdict(tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "report.html"
    done = CliRunner().invoke(app, ["report", "-t", str(tables), "--out", str(out), "--title", "Broker"])
    assert done.exit_code == 0, done.output
    assert "Rule broken: " in done.output and str(out) in done.output
    assert "<title>Broker</title>" in out.read_text(encoding="utf-8")


def test_missing_tables_are_reported_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", "--tables", str(tmp_path)])
    assert done.exit_code == 1 and done.output.count("\n") == 1 and "there are no tables in" in done.output


# --- in a browser ---------------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


# What the page says of itself: wider than the screen, charts without a size, elements that reach out of the screen, things fetched.
PROBE = """<script>addEventListener('load', () => { const root = parent.document.documentElement, own = document.documentElement;
const all = [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length && !e.closest('svg > *, pre'));
root.dataset.wide = own.scrollWidth > innerWidth;
root.dataset.flat = all.filter(e => e.matches('svg') && e.getBoundingClientRect().height < 10).length;
root.dataset.out = all.filter(e => e.getBoundingClientRect().right > innerWidth + 1).length;
root.dataset.fetched = performance.getEntriesByType('resource').length;
root.dataset.width = innerWidth;
root.dataset.ground = getComputedStyle(document.body).backgroundColor; })</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed here (Debian: apt install chromium)")
@pytest.mark.parametrize("width", [1300, 390])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_in_a_browser_it_fits_fetches_nothing_and_logs_nothing(
    report: Report, tmp_path: Path, mode: str, width: int
) -> None:
    assert CHROMIUM is not None
    text = page.render(report).replace("</body>", PROBE)
    frame = f'<iframe style="border:0;width:{width}px;height:4000px" srcdoc="{escape(text, quote=True)}"></iframe>'
    file = tmp_path / "report.html"  # in a frame: a browser's own window is no narrower than 500
    file.write_text(f"<!doctype html><html><body>{frame}</body></html>", encoding="utf-8")
    words = [
        CHROMIUM,
        *FLAGS,
        *(["--blink-settings=preferredColorScheme=0"] if mode == "dark" else []),
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,4000",
        "--enable-logging=stderr",
        "--log-level=0",
    ]
    done = subprocess.run(
        [*words, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    root = re.search(r"<html[^>]*>", done.stdout)
    assert root is not None
    for fact in (f'width="{width}"', 'wide="false"', 'flat="0"', 'out="0"', 'fetched="0"'):
        assert f"data-{fact}" in root[0], root[0]
    assert ("rgb(18, 22, 31)" in root[0]) == (mode == "dark"), root[0]
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]


def test_long_idle_time_is_cut_out_and_the_cut_is_shown() -> None:
    day = 86_400.0
    times = [*(60.0 * i for i in range(30)), *(9 * day + 60.0 * i for i in range(30))]
    picture = charts.stacked(times, 60.0, {"ok": [1.0] * 60}, "x")
    assert picture.count('class="cut"') == 1 and "idle for 216 h, cut out" in picture
    scale = svg.TimeScale(times, 60.0, 0.0, 100.0)
    places = [scale(moment) for moment in times]
    assert places == sorted(places) and places[0] == 0.0 and places[30] == pytest.approx(58.0)
    assert scale(times[29] + 60.0) == pytest.approx(42.0) and scale(times[-1] + 60.0) == pytest.approx(100.0)
    lines = charts.lines(times, 60.0, {"p50": [5.0] * 60}, "x")
    assert lines.count("<polyline") == 2  # none goes over the cut
    assert "cut" not in charts.stacked(times[:30], 60.0, {"ok": [1.0] * 30}, "x")


def test_two_busy_hours_nine_days_apart_are_two_stretches(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    common = {
        "service": "echo",
        "requests": 1,
        "outcomes": [("ok", 1)],
        "wait_histogram": [(1, 1)],
        "total_histogram": [(9, 1)],
    }
    hours = [BEGIN, BEGIN + timedelta(days=9)]
    small.write(
        tmp_path, "services", [{**common, "window": hour, "seconds": n} for hour in hours for n in services.WINDOWS]
    )
    (view,), _ = services.service_views(Tables(tmp_path), (hours[0].timestamp(), hours[1].timestamp() + 10))
    assert view.requests == 2
    assert len(view.times) <= services.BINS + 2 and view.times[-1] - view.times[0] > 8 * 86_400
    assert 'class="cut"' in page.service(view)


def test_ends_without_a_name_get_one(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    edge = {"window": small.BEGIN, "requests": 1, "p50_us": 1.0}
    small.write(
        tmp_path,
        "topology",
        [
            {**edge, "kind": "asks", "source": "", "target": "echo"},
            {**edge, "kind": "serves", "source": "echo", "target": " "},
            {**edge, "kind": "bridges", "source": "b1", "target": ""},
        ],
    )
    names = {name for edge in load.edges(Tables(tmp_path)) for name in (edge.source, edge.target)}
    assert names == {"unknown client", "echo", "unknown worker", "b1", "unknown broker"}


@pytest.mark.parametrize(
    ("within", "words"),
    [
        (100, "Objective met: 100\xa0% of requests were answered within 1 s (99\xa0% required)."),
        (0, "Objective missed: 0\xa0% of requests"),
        (69, "Objective missed: 69\xa0% of requests"),
    ],
)
def test_the_objective_is_met_or_missed(within: int, words: str) -> None:
    row = {"requests": 100, "within": within, "target": 0.99, "objective_us": 1_000_000, "capacity": None}
    assert services._bears(row).startswith(words)


def test_waterfalls_share_one_scale(report: Report) -> None:
    text = page.slowest(report.slowest)
    parts = [re.findall(r"left:([\d.]+)%;width:([\d.]+)%", row) for row in text.split('class="fall"')[1:]]
    ends = [max(float(left) + float(wide) for left, wide in row) for row in parts]
    longest = report.slowest[0].total
    assert ends == [pytest.approx(100 * slow.total / longest, abs=0.1) for slow in report.slowest]
