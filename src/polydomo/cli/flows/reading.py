"""Reads flow files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.model.flows.flow import Flow


def read_file(path: str) -> "Flow":
    """The flow in a file. Raises SettingError."""
    import json
    import tomllib

    from polydomo.model.flows.flow_file import read_flow

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: cannot be read: {error}") from None
    try:
        given = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path}: is neither TOML nor JSON: {error}") from None
    try:
        return read_flow(given)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None
