"""What both query engines share: their error, and the values of rows for JSON, CSV and a terminal."""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from polydomo.errors import PolydomoError


class BadQuery(PolydomoError):
    """The query was rejected, or it failed."""


def plain(value: Any) -> Any:
    """Converts a value to one that JSON can represent."""
    if isinstance(value, datetime):
        # the form of all JSON of polydomo; Spark returns local times without a time zone
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def cell(value: Any) -> str:
    """A value in a table or in CSV. Numbers are printed in full.

    >>> [cell(value) for value in (1234567.125, 1e-07, 3.0, None, True, [1])]
    ['1234567.125', '0.0000001', '3.0', '', 'true', '[1]']
    """
    if value is None:
        return ""
    if isinstance(value, dict | list | bool):
        return json.dumps(value)
    if isinstance(value, float):
        text = repr(value)
        return f"{Decimal(text):f}" if "e" in text else text
    return str(value)
