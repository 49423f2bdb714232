"""Settings from the command line: common settings are declared options, and every other key is accepted as a flag too.

``limits.max_message`` is ``--limits-max-message``, in ``up`` as in ``config``.
"""

import os
from collections.abc import Mapping

from polydomo.cli.common.options import CLIENT_VARIABLE
from polydomo.cli.common.security import VARIABLES
from polydomo.errors import SettingError
from polydomo.server.settings import settings
from polydomo.server.settings.retired import FLAGS_WITHOUT_VALUE
from polydomo.server.settings.services import MOVED, Services
from polydomo.server.settings.types import Flag, TextList

BUILD_VARIABLE = "POLYDOMO_COMPILED"  # of `pip install .`; not a setting of the broker
SHORT = {"dbp.beacon": "--beacon", "bridge.to": "--bridge", "journal.level": "--journal"}  # short names of flags


def load(config: str | None, options: Mapping[str, object], rest: list[str]) -> settings.Settings:
    """All settings from file, environment variables and flags. ``rest`` holds the flags that are not declared options. An error names
    the flag that was typed, which may be the long or the short one."""
    environ = {
        name: value for name, value in os.environ.items() if name not in (CLIENT_VARIABLE, BUILD_VARIABLE, *VARIABLES)
    }
    found, typed = read(rest)
    return settings.load(config, environ, {**options, **found}, {**SHORT, **typed})


def read(rest: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Parses ``--limits-max-message 16MiB`` and ``--limits-max-message=16MiB``. A boolean flag needs no value. Returns the values and the
    flags, both by key.

    A flag that takes several values may be repeated, like ``--listen``.
    """
    keys = {settings.flag_of(key): key for key in settings.ACCEPTED} | {flag: key for key, flag in SHORT.items()}
    found: dict[str, str] = {}
    typed: dict[str, str] = {}
    words = iter(rest)
    for word in words:
        name, given, value = word.partition("=")
        if not name.startswith("--"):
            raise SettingError(f"{word!r} is not a flag; `polydomo config` lists all settings")
        if name not in keys:
            raise SettingError(f"flag {name}: unknown setting{_nearest(name, keys)}")
        key = keys[name]
        typed[key] = name
        if not given:
            alone = key in FLAGS_WITHOUT_VALUE or isinstance(settings.KINDS.get(key), Flag)
            value = "true" if alone else next(words, "")
            if not value:
                raise SettingError(f"flag {name}: the value is missing")
        kind = MOVED[key].kind if key in MOVED else settings.KINDS.get(key)
        joined = ";" if isinstance(kind, Services) else "," if isinstance(kind, TextList) else ""
        found[key] = f"{found[key]}{joined}{value}" if key in found and joined else value
    return found, typed


def _nearest(name: str, keys: dict[str, str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, keys, 1)
    return f"; did you mean {near[0]}?" if near else "; `polydomo config` lists them all"
