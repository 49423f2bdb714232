"""The common JSON format of the broker's reports: see "JSON" in docs/cli.md.

Times are ISO 8601 strings in UTC that end in ``Z``; durations are whole microseconds, under names that end in ``_us``.
"""

from datetime import UTC, datetime


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
