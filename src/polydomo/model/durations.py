"""Durations and sizes as text: one grammar for settings, flags, HTTP headers, schedules and the pipeline.

A duration is a number of seconds, or a number with one of the units us, ms, s, m (or min), h and d, such as ``2.5``, ``500ms`` or ``2h``.
A size is a number of bytes, or a number with one of the units B, KiB, MiB, GiB, KB, MB and GB. Spaces around the parts and upper case
are allowed, and digits may be grouped with ``_``.
"""

import math
import re
from typing import Final

EXPECTED: Final = "a number of seconds, or a number with us, ms, s, m, h or d"  # for error messages

_QUANTITY: Final = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*", re.ASCII)
_TIMES: Final = {
    "": 1.0,
    "us": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}
_SIZES: Final = {
    "": 1.0,
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "kib": 1024.0,
    "mib": 1024.0**2,
    "gib": 1024.0**3,
}


def read_duration(value: object) -> float | None:
    """The duration in seconds; None if ``value`` is not a duration.

    >>> [read_duration(value) for value in ("500ms", "1.5 m", "30", 2, "soon", "-1s")]
    [0.5, 90.0, 30.0, 2.0, None, None]
    """
    return _read(value, _TIMES)


def read_size(value: object) -> float | None:
    """The size in bytes, possibly with a fraction; None if ``value`` is not a size.

    >>> [read_size(value) for value in ("64KiB", "1.5kb", 10, "big")]
    [65536.0, 1500.0, 10.0, None]
    """
    return _read(value, _SIZES)


def show_duration(seconds: float) -> str:
    """Text that ``read_duration`` accepts.

    >>> [show_duration(seconds) for seconds in (0.5, 90.0, 7200.0, 86_400.0)]
    ['500ms', '90s', '2h', '1d']
    """
    if 0 < seconds < 1 and math.isclose(seconds * 1000, round(seconds * 1000), abs_tol=1e-9):
        return f"{round(seconds * 1000)}ms"
    for unit, length in (("d", 86_400), ("h", 3600)):
        if seconds and seconds % length == 0:
            return f"{seconds // length:.0f}{unit}"
    return f"{seconds:.12g}s"


def show_size(count: int) -> str:
    """Text that ``read_size`` accepts.

    >>> [show_size(count) for count in (1000, 65_536)]
    ['1000B', '64KiB']
    """
    for unit in ("GiB", "MiB", "KiB"):
        factor = int(_SIZES[unit.lower()])
        if count and count % factor == 0:
            return f"{count // factor}{unit}"
    return f"{count}B"


def _read(value: object, units: "dict[str, float]") -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        return None
    product = float(match[1].replace("_", "")) * units[match[2].lower()]
    return round(product, 9) if math.isfinite(product) else None
