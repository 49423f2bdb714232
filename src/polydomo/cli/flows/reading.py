"""Reads flow files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.model.flows.flow import Flow


def read_file(path: str) -> "Flow":
    """The flow in a file. Raises SettingError."""
    from polydomo.model.flows.flow_file import parse_flow, read_flow

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read: {error}") from None
    try:
        return read_flow(parse_flow(text))
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
