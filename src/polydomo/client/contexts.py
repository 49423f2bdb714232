"""Contexts: a broker's address and key files, saved under a name.

Each is a file in ``$XDG_CONFIG_HOME/polydomo/contexts`` (``~/.config`` unless set) that only its owner can read.
"""

import json
import os
import re
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path

from polydomo.errors import SettingError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True)
class Context:
    to: str
    key: str = ""
    server_key: str = ""
    ca: str = ""
    cert: str = ""
    user: str = ""
    token: str = field(default="", repr=False)


def directory() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "polydomo" / "contexts"


def save(name: str, context: Context) -> Path:
    """Writes the context, replacing an existing one. Raises SettingError."""
    path = _path(name)
    lines = [f"{key} = {json.dumps(value)}" for key, value in asdict(context).items() if value]
    hidden = path.with_name(f".{name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        hidden.unlink(missing_ok=True)
        number = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write("\n".join([*lines, ""]))
        hidden.rename(path)
    except OSError as error:
        raise SettingError(f"context: cannot write {path}: {error.strerror or error}") from None
    return path


def load(name: str) -> Context:
    """Raises SettingError."""
    path = _path(name)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return Context(**table)
    except FileNotFoundError:
        known = ", ".join(names())
        hint = f"the contexts are {known}" if known else "create one with `polydomo context save NAME --to URL`"
        raise SettingError(f"context: unknown context {name!r}; {hint}") from None
    except (OSError, ValueError, TypeError) as error:
        raise SettingError(f"context: cannot read {path}: {error}") from None


def names() -> list[str]:
    try:
        return sorted(path.stem for path in directory().glob("*.toml"))
    except OSError:
        return []


def remove(name: str) -> None:
    try:
        _path(name).unlink()
    except OSError as error:
        raise SettingError(f"context: cannot remove {name!r}: {error.strerror or error}") from None


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise SettingError(f"context: {name!r} must have 1 to 64 letters, digits and . _ @ -")
    return directory() / f"{name}.toml"
