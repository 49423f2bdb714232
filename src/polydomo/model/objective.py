"""The latency objective of a service: a share of its requests is answered within a time, such as ``99% in 200ms``."""

import re
from typing import Final, NamedTuple

from polydomo.model.durations import read_duration, show_duration

EXPECTED: Final = 'a share and a duration, such as "99% in 200ms"'

_OBJECTIVE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*in\s+(\S.*)", re.ASCII | re.IGNORECASE)


class Objective(NamedTuple):
    seconds: float = 1.0
    target: float = 0.99  # the share of the requests

    def __str__(self) -> str:
        return f"{self.target * 100:.10g}% in {show_duration(self.seconds)}"


def read_objective(text: str) -> Objective | None:
    """None if the text is not an objective.

    >>> read_objective("99.9% in 200ms"), read_objective("fast")
    (Objective(seconds=0.2, target=0.999), None)
    """
    match = _OBJECTIVE.fullmatch(text)
    seconds = read_duration(match[2]) if match is not None else None
    if match is None or not seconds or not 0 < float(match[1]) <= 100:
        return None
    return Objective(seconds, round(float(match[1]) / 100, 12))
