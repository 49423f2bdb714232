"""Waiting before trying again."""

import random
from dataclasses import dataclass

from polydomo.limits import BACKOFF_FIRST, BACKOFF_MOST


class Backoff:
    """Waits that double from the first to the longest, each shortened at random by up to half so that peers do not march in step."""

    def __init__(self, first: float = BACKOFF_FIRST, most: float = BACKOFF_MOST) -> None:
        self.first = first
        self.most = most
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self) -> float:
        """Seconds to wait before the next try; grows with every call until ``reset``."""
        wait = min(self.most, self.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return wait * random.uniform(0.5, 1.0)


@dataclass(frozen=True)
class Retries:
    """How a call that is safe to repeat is sent again after its connection broke or its broker gave it up.

    ``attempt_timeout``, where set, also sends it again when one attempt has waited that long for its final reply.
    """

    attempts: int = 3  # in all, the first one included
    first: float = BACKOFF_FIRST
    most: float = BACKOFF_MOST
    attempt_timeout: float | None = None

    @classmethod
    def of(cls, retries: "int | Retries") -> "Retries":
        """``3`` means three times again after the first."""
        return retries if isinstance(retries, Retries) else cls(attempts=retries + 1)
