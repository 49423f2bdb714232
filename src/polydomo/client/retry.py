"""Backoff and retry policies."""

import random
from dataclasses import dataclass

from polydomo.limits import BACKOFF_FIRST, BACKOFF_MOST


class ReconnectDelay:
    """Exponential backoff with jitter: delays double up to the longest, each randomly shortened by up to half, so that peers do not retry
    in lockstep."""

    def __init__(self, first: float = BACKOFF_FIRST, most: float = BACKOFF_MOST) -> None:
        self.first = first
        self.most = most
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self) -> float:
        """Seconds to wait before the next attempt; grows with every call until ``reset``."""
        wait = min(self.most, self.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return wait * random.uniform(0.5, 1.0)


@dataclass(frozen=True)
class Retries:
    """The retry policy of a call that is safe to repeat, for broken connections and failures of the broker.

    If ``attempt_timeout`` is set, the call is also sent again when an attempt has waited that long for its final reply.
    """

    attempts: int = 3  # total number, including the first
    first: float = BACKOFF_FIRST
    most: float = BACKOFF_MOST
    attempt_timeout: float | None = None

    @classmethod
    def of(cls, retries: "int | Retries") -> "Retries":
        """``3`` means three retries after the first attempt."""
        return retries if isinstance(retries, Retries) else cls(attempts=retries + 1)
