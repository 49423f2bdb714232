"""Text of peers in the report: neither markup nor control characters of it have an effect."""

from pathlib import Path

import pytest

import polydomo.pipeline.report as package
from polydomo.pipeline.report.escape import escape

PLACE = Path(package.__file__).parent


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\x1b", "\x00", "\x7f", "\u2028", "\ufeff", "\x9b"])
def test_control_characters_and_bidi_marks_are_escaped_as_on_the_command_line(mark: str) -> None:
    shown = escape(f"safe{mark}txt")
    assert mark not in shown and shown.isprintable() and shown.startswith("safe\\") and shown.endswith("txt")


def test_no_part_of_the_report_escapes_in_another_way() -> None:
    found = {
        path.name for path in PLACE.glob("*.py") if "html.escape" in path.read_text() or "from html" in path.read_text()
    }
    assert found == {"escape.py"}
