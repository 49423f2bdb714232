"""Cron expressions and intervals, also where clocks change."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polydomo.broker.jobs.timing import Cron, Interval, missed_runs, read_timing
from polydomo.errors import SettingError

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


def runs(expression: str, start: str, count: int, zone: ZoneInfo) -> list[str]:
    timing = read_timing(expression)
    moment, found = at(start, zone), []
    for _ in range(count):
        moment = timing.after(moment, 0.0, zone)
        found.append(datetime.fromtimestamp(moment, zone).isoformat())
    return found


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("* * * * *", "2026-01-31T23:59:30", "2026-02-01T00:00:00"),
        ("*/15 9-17 * * mon-fri", "2026-01-30T17:45:00", "2026-02-02T09:00:00"),
        ("0 0 29 2 *", "2026-03-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 13 * fri", "2026-02-01T00:00:00", "2026-02-06T00:00:00"),  # either day matches
        ("0 0 * * 7", "2026-02-02T00:00:00", "2026-02-08T00:00:00"),  # Sunday by its other number
        ("5,10 0 1 jan,jul *", "2026-01-01T00:05:00", "2026-01-01T00:10:00"),
        ("*/20 * * * * *", "2026-01-01T00:00:20", "2026-01-01T00:00:40"),  # six fields: seconds first
        ("@monthly", "2026-12-05T01:00:00", "2027-01-01T00:00:00"),
        ("10/20 * * * *", "2026-01-01T00:31:00", "2026-01-01T00:50:00"),
    ],
)
def test_the_next_run(expression: str, start: str, expected: str) -> None:
    assert read_timing(expression).after(at(start), 0.0, UTC) == at(expected)


def test_a_nonexistent_local_time_runs_after_the_clock_change() -> None:
    assert runs("30 2 * * *", "2026-03-28T12:00:00", 2, BERLIN) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_exists_twice_runs_once() -> None:
    assert runs("30 2 * * *", "2026-10-24T12:00:00", 2, BERLIN) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_every_hour_passes_in_order_when_clocks_change() -> None:
    assert runs("0 * * * *", "2026-10-25T01:00:00", 4, BERLIN) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T03:00:00+01:00",
        "2026-10-25T04:00:00+01:00",
    ]
    assert runs("0 * * * *", "2026-03-29T00:30:00", 3, BERLIN) == [
        "2026-03-29T01:00:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T04:00:00+02:00",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "a * * * *",
        "every5s", "every s", "every 0.01s", "every 99999d", "* * * * * * *", "-1 * * * *", "1,,2 * * * *",
    ],
)  # fmt: skip
def test_invalid_values_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="schedule"):
        read_timing(text)


def test_a_date_that_never_occurs() -> None:
    assert Cron("0 0 30 2 *").after(0.0, 0.0, UTC) == 0.0


def test_missed_runs_are_one_and_the_next() -> None:
    assert missed_runs(read_timing("0 * * * *"), at("2026-01-01T01:00:00"), at("2026-01-03T05:30:00"), 0.0, UTC) == (
        at("2026-01-03T05:00:00"),
        at("2026-01-03T06:00:00"),
    )
    assert missed_runs(Interval(30.0), 115.0, 190.0, 85.0, UTC) == (175.0, 205.0)
    assert missed_runs(Interval(30.0), 115.0, 115.0, 85.0, UTC) == (115.0, 145.0)


FIELD = st.sampled_from(["*", "0", "5", "*/7", "3-9", "1,11"])


@settings(max_examples=60, deadline=None)
@given(
    FIELD, st.sampled_from(["*", "2", "1-3", "*/5"]), st.sampled_from(["*", "1", "15,31"]), st.sampled_from(["*", "3", "10-12"]),
    st.sampled_from(["*", "0", "1-5"]), st.integers(0, 2 * 366 * 24 * 60), st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)  # fmt: skip
def test_against_a_slow_search(
    minute: str, hour: str, day: str, month: str, weekday: str, start: int, name: str
) -> None:
    """In a zone without changes nearby, the next run is the first minute whose fields match."""
    zone = ZoneInfo(name)
    cron = Cron(f"{minute} {hour} {day} {month} {weekday}")
    moment = at("2026-01-01T00:00:00") + start * 60.0
    found = cron.after(moment, 0.0, zone)
    assert found > moment
    local = datetime.fromtimestamp(found, zone)
    if local.utcoffset() == datetime.fromtimestamp(found - 86_400, zone).utcoffset():
        assert local.minute in cron.minutes and local.hour in cron.hours and cron._matches(local.replace(tzinfo=None))
    step = datetime.fromtimestamp(moment, UTC).replace(second=0) + timedelta(minutes=1)
    for _ in range(3000):
        local = step.astimezone(zone)
        if step.timestamp() >= found:
            break
        changed = local.utcoffset() != (local - timedelta(hours=25)).utcoffset()
        matches = (
            local.minute in cron.minutes and local.hour in cron.hours and cron._matches(local.replace(tzinfo=None))
        )
        assert not matches or changed, local
        step += timedelta(minutes=1)
