"""The search of finished requests: one that takes too long is continued by the next page."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from polydomo.errors import SettingError
from polydomo.journal import schema
from polydomo.journal.reading.finished import RequestFilter, cursor, read_cursor, search
from polydomo.journal.reading.reader import Reader

START = datetime(2026, 11, 15, 4, 0, tzinfo=UTC)


class Hours(Reader):
    """A journal of three hours with two requests each, without files. Those of an hour ended at the same time."""

    def hours(self, kind: str, since: Any, until: Any, where: Any) -> Any:
        for hour in (2, 1, 0):
            begin = START + timedelta(hours=hour)
            if until is not None and begin > until:
                continue
            rows = [
                schema.row(schema.REQUESTS, time=begin + timedelta(minutes=5), run=1, seq=2 * hour + number)
                for number in (1, 2)
            ]
            table = pa.Table.from_pylist(rows, schema=schema.arrow(schema.REQUESTS))
            yield begin, table.filter(where) if where is not None else table


def sequence(wanted: RequestFilter, patience: float) -> list[list[int]]:
    """The sequence numbers on each page."""
    pages = []
    for _ in range(20):
        found = search(Hours([Path()]), wanted, patience)
        pages.append([row["seq"] for row in found.rows])
        if found.next is None:
            return pages
        wanted.before = read_cursor(found.next)
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("most", [1, 2, 3, 4, 6, 10])
def test_pages_end_between_requests_of_the_same_time(most: int) -> None:
    pages = sequence(RequestFilter(most=most), 60.0)
    assert [number for page in pages for number in page] == [6, 5, 4, 3, 2, 1]
    assert all(len(page) <= most for page in pages)


def test_a_search_without_patience_reads_one_hour_per_page() -> None:
    pages = sequence(RequestFilter(most=10), -1.0)
    assert pages == [[6, 5], [4, 3], [2, 1], []]


def test_a_position_is_read_as_it_was_written() -> None:
    place = (START + timedelta(microseconds=7), 12, 34)
    assert read_cursor(cursor(place)) == place
    for wrong in ("", "1-2", "1-2-x", "1-2-3-4", "9" * 30 + "-1-1"):
        with pytest.raises(SettingError):
            read_cursor(wrong)
