"""Parses JSON from a peer that is passed on to other peers: only values that every JSON parser accepts."""

import json
import math

from polydomo.limits import MAX_JSON_DEPTH


def read(content: bytes, mend: bool = False) -> object:
    """Raises ValueError with the reason. JSON can contain a lone surrogate, which has no UTF-8 form; Python writes one for a file name
    that is not text. ``mend`` replaces it with text.

    >>> read(b'["file \\\\udcff"]', mend=True)
    ['file \\\\udcff']
    """
    try:
        found = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    return _checked(found, MAX_JSON_DEPTH, mend)


def _checked(value: object, depth: int, mend: bool) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode() if mend else value
    if isinstance(value, (dict, list)):
        if not depth:
            raise ValueError(f"JSON nested deeper than {MAX_JSON_DEPTH}")
        if isinstance(value, list):
            return [_checked(item, depth - 1, mend) for item in value]
        return {_checked(key, 0, mend): _checked(item, depth - 1, mend) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")  # Python accepts NaN and would pass it on
