"""The grammar of durations is the same wherever a user writes one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.jobs.timing import Interval, read_timing
from polydomo.cli.common import options
from polydomo.cli.pipeline import pipeline
from polydomo.errors import SettingError
from polydomo.model.durations import read_duration, read_size, show_duration, show_size
from polydomo.server.settings.types import Seconds
from polydomo.web import call
from polydomo.wire.http.head import HttpError

GOOD = {
    "2": 2.0,
    "2.5": 2.5,
    ".5s": 0.5,
    "500000us": 0.5,
    "500ms": 0.5,
    "1_000 ms": 1.0,
    " 3 s ": 3.0,
    "1.5m": 90.0,
    "2min": 120.0,
    "1H": 3600.0,
    "0.5d": 43_200.0,
}
BAD = ["", "s", "-1s", "1 s 2", "1h30m", "1e3", "5 weeks", "0x10", "1.", "١s", "inf", "nan"]


@pytest.mark.parametrize("text", GOOD)
def test_every_reader_understands(text: str) -> None:
    wanted = GOOD[text]
    assert read_duration(text) == wanted
    assert Seconds().read(text) == wanted
    assert options.seconds()(text) == wanted
    assert call.duration(text, "wait") == wanted
    assert pipeline.seconds(text) == wanted
    timing = read_timing(f"every {text}")
    assert isinstance(timing, Interval) and timing.seconds == wanted


@pytest.mark.parametrize("text", BAD)
def test_every_reader_rejects(text: str) -> None:
    assert read_duration(text) is None
    with pytest.raises(ValueError, match="a number with us, ms, s, m, h or d"):
        Seconds().read(text)
    with pytest.raises(HttpError, match="a number with us, ms, s, m, h or d"):
        call.duration(text, "wait")
    for read in (pipeline.seconds, lambda text: read_timing(f"every {text}")):
        with pytest.raises(SettingError, match="a number with us, ms, s, m, h or d"):
            read(text)


def test_the_time_of_a_flag_needs_a_unit_where_it_could_be_a_year() -> None:
    with pytest.raises(SettingError, match="--since: '2026' is not a time"):
        pipeline.parse_time("2026", "--since")
    assert pipeline.parse_time("2h", "--since") is not None


@given(st.integers(0, 10**9))
def test_what_is_shown_is_read_back(number: int) -> None:
    assert read_duration(show_duration(number / 1000)) == number / 1000
    assert read_size(show_size(number)) == number


def test_numbers_of_a_file_are_seconds_and_bytes() -> None:
    assert (read_duration(3), read_duration(0.25), read_size(4096)) == (3.0, 0.25, 4096.0)
    others: list[object] = [True, None, [], float("inf"), float("nan")]
    for other in others:
        assert read_duration(other) is None and read_size(other) is None
