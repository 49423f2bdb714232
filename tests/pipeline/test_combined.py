"""Files that hold the rows of many segments: which ones a session writes, reads again and removes."""

from pathlib import Path

from polydomo.pipeline.combined import MOST, Combined


class Session:
    def __init__(self, few: int) -> None:
        self.combined = Combined(few)
        self.written: list[list[str]] = []

    def files(self, *names: str, kind: str = "messages") -> list[str]:
        return self.combined.files(kind, names, self._write)

    def _write(self, paths: list[str], place: str) -> None:
        Path(place).mkdir()
        self.written.append(sorted(paths))


def test_segments_are_combined_when_there_are_more_than_a_few() -> None:
    session = Session(few=2)
    assert session.files("a", "b") == ["a", "b"]
    (one,) = session.files("a", "b", "c")
    assert session.written == [["a", "b", "c"]]
    assert session.files("a", "b", "c") == [one]
    assert session.files("a", "b", "c", "d") == [one, "d"]
    (two,) = session.files("a", "b", "c", "d", "e")
    assert session.written[1:] == [sorted([one, "d", "e"])]
    assert session.files("a", "b", "c", "d", "e", kind="requests") != [two]
    session.combined.clear()
    assert not Path(one).exists() and not Path(two).exists()


def test_a_segment_that_was_merged_or_removed_is_not_read_from_a_combined_file() -> None:
    session = Session(few=1)
    (one,) = session.files("a", "b")
    assert session.files("a", "b") == [one]
    (other,) = session.files("a", "larger")
    assert (session.written[-1], other != one) == (["a", "larger"], True)
    session.combined.clear()


def test_files_that_were_not_used_for_long_are_removed() -> None:
    session = Session(few=1)
    (first,) = session.files("a", "b")
    for number in range(MOST - 1):
        (last,) = session.files(f"{number}", "c")
    assert session.files("a", "b") == [first]  # used: it is the youngest now
    for number in range(MOST - 1):
        session.files(f"{number}", "d")
    assert Path(first).is_dir() and not Path(last).is_dir()
    session.files("e", "f")
    assert not Path(first).is_dir()
    session.combined.clear()
