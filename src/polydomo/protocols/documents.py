"""JSON that a peer sends and others are given: only what can be written again, and read by everybody."""

import json
import math

from polydomo.limits import MAX_JSON_DEPTH


def read(content: bytes, mend: bool = False) -> object:
    """Raises ValueError, which says what is wrong. JSON can write half a surrogate pair, which is no text and has no UTF-8, and Python
    does so for the name of a file that is no text: ``mend`` makes text of it.

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
        raise ValueError("a number that is too large")
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")  # Python would read NaN, and write it to everybody who reads the document
