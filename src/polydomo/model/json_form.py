"""The common JSON format of the broker's reports: see "JSON" in docs/cli.md.

Times are ISO 8601 strings in UTC that end in ``Z``; durations are whole microseconds, under names that end in ``_us``.
"""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def iso_time(seconds: float) -> str:
    """A time, from seconds since the epoch.

    >>> iso_time(1_794_724_735.65)
    '2026-11-15T04:38:55.650000Z'
    """
    return iso(datetime.fromtimestamp(seconds, UTC))


def iso(moment: datetime) -> str:
    """A time zone aware datetime."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def microseconds(seconds: float) -> int:
    """
    >>> microseconds(0.25)
    250000
    """
    return round(seconds * 1e6)


def compact(value: object) -> str:
    """JSON without spaces, quickly. What msgspec does not write, such as a lone surrogate, the standard library does.

    >>> compact({"a": [1, "\\n"]}), compact("\\ud800")
    ('{"a":[1,"\\\\n"]}', '"\\\\ud800"')
    """
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))


def parse(text: str) -> Any:
    """Parses what ``compact`` wrote."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text)
