import doctest

import pytest

from polydomo.cli.common import render
from polydomo.cli.common.render import PrintedColumn, aligned, clock, show_rich
from polydomo.cli.inspect.inspection import WORKERS


def test_the_examples_in_the_module() -> None:
    found = doctest.testmod(render)
    assert found.attempted
    assert found.failed == 0


def test_no_rows_still_have_their_titles() -> None:
    assert aligned([PrintedColumn("one"), PrintedColumn("two")], []) == ["ONE  TWO"]


def test_a_time_that_was_not_today_has_its_date() -> None:
    assert len(clock("2020-01-31T12:00:00.000000Z")) == len("2026-01-31 12:00:00")


def test_a_very_long_name_wraps_and_the_other_columns_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = [PrintedColumn("service"), PrintedColumn("state", spare=1), PrintedColumn("queued", right=True, spare=2)]
    show_rich(columns, [["s" * 113, "ready", "7"], ["echo", "busy", "0"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["service", "state", "queued"]
    assert "".join(lines).count("s" * 20) and sum(line.count("s") for line in lines[2:]) == 113 + 1
    assert any(line.split()[1:] == ["ready", "7"] for line in lines)


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_a_table_fits_its_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    cells = [
        "w12",
        "mdp2",
        "majortomo",
        "resize",
        "busy",
        "1 h 01 m",
        "1",
        "77",
        "0",
        "3.2 s",
        "41.0 s",
        "11:04:09",
        "340 ms",
        "anna",
        "tcp://127.0.0.1:50050",
    ]
    show_rich(WORKERS, [[*cells, "registered from tcp://127.0.0.1:50050"]])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines)
    titles = [column.title for column in WORKERS]
    if width >= 80:  # nothing that is shown is broken, and what is not is named
        shown = lines[0].split()
        assert shown[:2] == ["worker", "protocol"] and shown[-1] == "cause"
        missing = [title for title in titles if title not in shown]
        assert ([f"a wider terminal also shows: {', '.join(missing)}"] if missing else []) == [
            line for line in lines if "wider" in line
        ]
        assert lines[2].split()[:2] == ["w12", "mdp2"]
