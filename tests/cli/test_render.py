import doctest

from polydomo.cli import render
from polydomo.cli.render import Column, aligned, clock


def test_the_examples_in_the_module() -> None:
    found = doctest.testmod(render)
    assert found.attempted
    assert found.failed == 0


def test_no_rows_still_have_their_titles() -> None:
    assert aligned([Column("one"), Column("two")], []) == ["ONE  TWO"]


def test_a_time_that_was_not_today_has_its_date() -> None:
    assert len(clock(3 * 86400)) == len("2026-01-31 12:00:00")
