"""The charts of the dashboard: their scales as functions, and a chart on a page with its axes, its cursor and its values."""

from collections.abc import Iterator
from typing import Any

import pytest

from polydomo import testing
from tests.server.web.browsing import Page, open_browser

pytestmark = pytest.mark.xdist_group("browser")

# Runs an expression with the exports of a module of the dashboard.
WITH = """async ([name, body]) => {
  const module = await import(`/ui/${name}.js`);
  return new Function("m", `return (${body})`)(module);
}"""

# The page's rules allow no code from text, so these tests use a page without them.
BLANK = "healthz"


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with testing.broker() as broker, open_browser() as browser, Page(browser, broker) as one:
        one.page.goto(one.home + BLANK)
        yield one.page


def run(page: Any, module: str, body: str) -> Any:
    return page.evaluate(WITH, [module, body])


def test_a_linear_scale_maps_both_ends_and_what_is_between(page: Any) -> None:
    assert run(page, "charts/scale", "[0, 5, 10].map(m.linear(0, 10, 100, 0))") == [100, 50, 0]
    assert run(page, "charts/scale", "m.linear(3, 3, 0, 10)(3)") == 0  # an empty range is not divided by


@pytest.mark.parametrize(
    ("body", "ticks"),
    [
        ("m.valueTicks(10, 4)", [0, 5, 10]),
        ("m.valueTicks(87, 4)", [0, 50, 100]),
        ("m.valueTicks(0.3, 3)", [0, 0.1, 0.2, 0.3]),
        ("m.valueTicks(0, 3)", [0, 0.5, 1]),
        ("m.valueTicks(2, 4, {whole: true})", [0, 1, 2]),
        ("m.valueTicks(50e6, 3, {durations: true})", [0, 30e6, 60e6]),  # half a minute and a minute, not 20 and 40 s
        ("m.valueTicks(Infinity, 3)", [0, 0.5, 1]),
    ],
)
def test_ticks_of_values_are_round_and_reach_the_top(page: Any, body: str, ticks: list[float]) -> None:
    assert run(page, "charts/scale", body) == ticks


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ("[5e3, 90e3]", None),  # less than two orders of magnitude
        ("[]", None),
        ("[0, 8e3, 70e3, 4e6]", [1e3, 1e4, 1e5, 1e6, 1e7]),
        ("[2e3, 41e6]", [1e3, 1e5, 1e7, 6e7]),  # a minute, not 100 s
        ("[3, 1e12]", [1, 1e3, 1e6, 6e8, 864e8]),
    ],
)
def test_durations_of_different_orders_of_magnitude_have_a_logarithmic_axis(page: Any, values: str, ticks: Any) -> None:
    assert run(page, "charts/scale", f"m.durationDecades({values})") == ticks
    assert run(page, "charts/scale", "[0, 1, 10, 100].map(m.logarithmic(1, 100, 50, 0))") == [50, 50, 25, 0]


def test_ticks_of_times_are_round_in_the_zone_of_the_reader(page: Any) -> None:
    found = run(page, "charts/scale", "m.timeTicks(Date.UTC(2026,0,1,0,7), Date.UTC(2026,0,1,1,7), 6, 0)")
    assert found["step"] == 600_000 and len(found["ticks"]) == 6
    assert all(tick % 600_000 == 0 for tick in found["ticks"])
    found = run(page, "charts/scale", "m.timeTicks(Date.UTC(2026,0,1), Date.UTC(2026,0,2), 4, -330)")  # India
    assert found["step"] == 6 * 3_600_000
    assert all((tick + 330 * 60_000) % found["step"] == 0 for tick in found["ticks"])


def test_the_nearest_point_and_runs_of_known_values(page: Any) -> None:
    found = run(page, "charts/scale", "[-5, 4, 6, 14, 16, 99].map((x) => m.nearest([0, 10, 20], x))")
    assert found == [0, 0, 1, 1, 2, 2]
    assert run(page, "charts/scale", "m.nearest([], 3)") == -1
    assert run(page, "charts/scale", "m.runs([1, null, 2, 3, undefined, 0])") == [[0], [2, 3], [5]]


def test_points_have_rates_and_a_gap_where_the_broker_did_not_run(page: Any) -> None:
    point = "{{time: '2026-01-01T00:00:{}Z', requests: {}, failed: {}}}"
    points = ", ".join(point.format(*one) for one in (("00", 50, 5), ("10", 0, 0), ("40", 20, 0)))
    found = run(page, "history", f"m.toPoints({{step: 10, points: [{points}]}})")
    assert [one.get("rate") for one in found] == [5, 0, None, 2]
    assert [one.get("share") for one in found] == [0.1, None, None, 0]
    assert found[2]["gap"] and found[2]["at"] - found[1]["at"] == 10_000
    recent = run(page, "history", f"m.recent(m.toPoints({{step: 10, points: [{points}]}}), 60000)")
    assert (recent["requests"], recent["failed"], round(recent["rate"], 2)) == (70, 5, 2.33)
    young = "m.toPoints({step: 300, points: [{time: '2026-01-01T00:00:00Z', requests: 60}]}, Date.UTC(2026,0,1,0,0,35))"
    assert run(page, "history", young)[0]["rate"] == 2  # of the thirty seconds that were sampled


def test_labels_of_a_waterfall_are_beside_their_bars(page: Any) -> None:
    places = "[m.labelPlace(0, 50, 40, 300), m.labelPlace(100, 290, 40, 300), m.labelPlace(5, 290, 40, 300)]"
    right, left, end = run(page, "charts/waterfall", places)
    assert (right["x"], right["anchor"]) == (56, "start")
    assert (left["x"], left["anchor"]) == (94, "end")
    assert end["x"] == 260


def test_a_bar_of_the_live_view_is_found_by_its_lane_and_time(page: Any) -> None:
    bars = "[{lane: 0, start: 10, end: 20}, {lane: 1, start: 10, end: 11}, {lane: 1, start: 15, end: 30}]"
    assert run(page, "charts/lanes", f"m.hit({bars}, 1, 16, 2)") == {"lane": 1, "start": 15, "end": 30}
    assert run(page, "charts/lanes", f"m.hit({bars}, 0, 22, 2)") == {"lane": 0, "start": 10, "end": 20}
    assert run(page, "charts/lanes", f"m.hit({bars}, 0, 50, 2) === undefined")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("m.percent(0.5)", "50 %"),
        ("m.percent(0.0042)", "0.42 %"),
        ("m.percent(0)", "0 %"),
        ("m.duration(1500)", "1.5 ms"),
        ("m.printable('plain-1')", "plain-1"),
        ("m.printable('\\x00\\x1f')", "001f"),
        (r"m.printable('\x00\u00e9\\xe7\udc80')", "00c3a9e780"),
        ("m.ago(new Date(Date.now() - 90500).toISOString())", "1.5 min ago"),
    ],
)
def test_numbers_for_people(page: Any, body: str, text: str) -> None:
    assert run(page, "format", body) == text
