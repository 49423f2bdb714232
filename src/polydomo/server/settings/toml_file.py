"""Reads a TOML file that an operator wrote."""

import tomllib
from pathlib import Path

from polydomo.errors import SettingError


def read_toml(path: Path, place: str) -> dict[str, object]:
    """``place`` says where the path was given. Raises SettingError."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise SettingError(f"{place}: cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"{place}: {path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{place}: {path} is not TOML: {error}") from None
