"""The settings of services by name pattern: ``[service."billing.*"]``, and the keys of earlier versions that it replaces.

In a variable or a flag, an option is written as ``billing.*.retries=5``; several are separated by ``;``. One that is on or off needs no
value: ``billing.*.durable``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from polydomo.errors import SettingError
from polydomo.limits import MAX_JOB_ATTEMPTS, MAX_SERVICE_NAME
from polydomo.server.settings.sections import LEVELS, ServiceOptions
from polydomo.server.settings.types import CountTable, Flag, KeywordTable, Kind, TextList, Texts

KEY = "service"
HELP = "options of services by name pattern, such as billing.*.durable; separated by ;"

OPTIONS: dict[str, Kind[Any]] = {field.name: field.metadata["kind"] for field in fields(ServiceOptions)}
HELPS: dict[str, str] = {field.name: field.metadata["help"] for field in fields(ServiceOptions)}
DEFAULTS: dict[str, Any] = {field.name: getattr(ServiceOptions(), field.name) for field in fields(ServiceOptions)}

_NAMES = ", ".join(OPTIONS)
_WRITTEN = re.compile(rf'\s*(?:"([^"]+)"|(.+?))\.({"|".join(OPTIONS)})\s*(?:=(.*))?', re.DOTALL)

Options = dict[str, dict[str, Any]]  # pattern -> option -> value


class Services(Kind[Options]):
    """The tables of a file, or the text of a variable or a flag."""

    def read(self, value: object) -> Options:
        if isinstance(value, str):
            return _from_text(value)
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            return _from_text(";".join(value))
        if not isinstance(value, dict):
            raise ValueError('must be tables by name pattern, such as [service."billing.*"]')
        return {pattern: _options(pattern, table) for pattern, table in value.items()}

    def show(self, value: Options) -> str:
        return "; ".join(
            f'"{pattern}".{name}={OPTIONS[name].show(option)}'
            for pattern, options in value.items()
            for name, option in options.items()
        )


def key_of(pattern: str, option: str) -> str:
    return f'{KEY}."{pattern}".{option}'


def _options(pattern: str, table: object) -> dict[str, Any]:
    where = f'[service."{pattern}"]'
    if not pattern.strip() or len(pattern.encode("utf-8", "surrogateescape")) > MAX_SERVICE_NAME:
        raise SettingError(f"{where}: a name or pattern has 1 to {MAX_SERVICE_NAME} bytes")
    if not isinstance(table, Mapping):
        raise SettingError(f"{where}: must be a table with some of {_NAMES}")
    found = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            raise SettingError(
                f'[service.{pattern}.{name}]: a name with dots needs quotes: [service."{pattern}.{name}"]'
            )
        if name not in OPTIONS:
            raise SettingError(f"{where}: unknown option {name!r}; the options are {_NAMES}")
        try:
            found[name] = OPTIONS[name].read(value)
        except ValueError as error:
            raise SettingError(f"{where}: {name} {error}, not {value!r}") from None
    return found


def _from_text(text: str) -> Options:
    found: dict[str, dict[str, object]] = {}
    for one in text.split(";"):
        if not one.strip():
            continue
        match = _WRITTEN.fullmatch(one)
        if match is None:
            raise SettingError(
                f"{one.strip()!r} is not PATTERN.OPTION=VALUE, such as billing.*.retries=5; the options are {_NAMES}"
            )
        name = match[3]
        value = match[4].strip() if match[4] is not None else "true" if isinstance(OPTIONS[name], Flag) else ""
        found.setdefault((match[1] or match[2]).strip(), {})[name] = value
    return {pattern: _options(pattern, table) for pattern, table in found.items()}


class Moved(NamedTuple):
    """A key of an earlier version, and what it says now."""

    kind: Kind[Any]
    option: str
    translate: Callable[[Any], Mapping[str, Any]]  # value -> pattern -> value of the option


def _named(names: list[str]) -> Mapping[str, bool]:
    return dict.fromkeys(names, True)


def _topics_too(names: list[str]) -> Mapping[str, bool]:
    """A name that ended with a dot stood for all topics below it."""
    return dict.fromkeys([f"{name}*" if name.endswith(".") else name for name in names], True)


MOVED = {
    "durable.services": Moved(TextList(), "durable", _named),
    "durable.retries": Moved(CountTable(most=MAX_JOB_ATTEMPTS), "retries", dict),
    "memo.services": Moved(TextList(), "memo", _named),
    "memo.versions": Moved(Texts(), "version", dict),
    "mdp.dialects": Moved(KeywordTable("majortomo", "libmdp"), "dialect", dict),
    "journal.services": Moved(KeywordTable(*LEVELS), "journal", dict),
    "journal.bodies": Moved(TextList(), "bodies", _topics_too),
}


def advice(option: str, values: Mapping[str, Any], in_file: bool) -> str:
    """What to write instead of a key that has moved."""
    kind = OPTIONS[option]
    pieces = []
    for pattern, value in list(values.items())[:3]:
        shown = kind.show(value)
        if in_file:
            pieces.append(
                f'{option} = {shown if isinstance(value, bool | int) else chr(34) + shown + chr(34)} in [service."{pattern}"]'
            )
        else:
            pieces.append(f"{pattern}.{option}={shown}")
    more = "" if len(values) <= 3 else f", and the same for {len(values) - 3} more"
    said = (", ".join(pieces) if in_file else f"--service '{'; '.join(pieces)}'") if pieces else "nothing: it is empty"
    bracket = "; [ matches itself now" if option == "memo" and any("[" in pattern for pattern in values) else ""
    return f"write {said}{more}{bracket}"
