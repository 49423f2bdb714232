"""The number of attempts of a job, and the delays between them."""

from dataclasses import dataclass

from polydomo.errors import SettingError
from polydomo.limits import JOB_ATTEMPTS, JOB_BACKOFF_FACTOR, JOB_BACKOFF_FIRST, JOB_BACKOFF_MOST, MAX_JOB_ATTEMPTS


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with jitter.

    The delay before attempt ``n + 1`` is ``first * factor ** (n - 1)`` seconds, at most ``most``. It is randomly shortened by up to the
    fraction ``jitter``, so that jobs that failed together are not retried together.

    >>> [Backoff(first=1.0, most=10.0).wait(attempt, 0.0) for attempt in range(1, 6)]
    [1.0, 2.0, 4.0, 8.0, 10.0]
    >>> Backoff(first=1.0, jitter=0.5).wait(1, 0.5)
    0.75
    """

    attempts: int = JOB_ATTEMPTS  # total number, including the first
    first: float = JOB_BACKOFF_FIRST
    most: float = JOB_BACKOFF_MOST
    factor: float = JOB_BACKOFF_FACTOR
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= MAX_JOB_ATTEMPTS:
            raise SettingError(f"attempts: {self.attempts} must be from 1 to {MAX_JOB_ATTEMPTS}")
        if not (0.0 <= self.first <= self.most and self.factor >= 1.0 and 0.0 <= self.jitter <= 1.0):
            raise SettingError(
                f"backoff: first={self.first:g}, most={self.most:g}, factor={self.factor:g}, jitter={self.jitter:g} "
                "must satisfy 0 <= first <= most, factor >= 1 and 0 <= jitter <= 1"
            )

    def wait(self, attempt: int, chance: float) -> float:
        """Seconds to wait after attempt ``attempt`` (from 1) failed. ``chance`` is a random number from 0 to 1."""
        steps = min(attempt - 1, 1000)
        wait = self.first
        while steps > 0 and wait < self.most:
            wait *= self.factor
            steps -= 1
            if self.factor <= 1.0:
                break
        return min(wait, self.most) * (1.0 - self.jitter * chance)

    def to_json(self) -> dict[str, object]:
        return {
            "attempts": self.attempts,
            "first_us": round(self.first * 1e6),
            "most_us": round(self.most * 1e6),
            "factor": self.factor,
            "jitter": self.jitter,
        }


def backoff_of(value: object) -> Backoff:
    """Parses the output of ``Backoff.to_json``, or a number of retries after the first attempt. Raises SettingError.

    >>> backoff_of(Backoff(attempts=7).to_json()) == Backoff(attempts=7), backoff_of(2).attempts
    (True, 3)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return Backoff(attempts=value + 1)
    if not isinstance(value, dict):
        raise SettingError(f"retries: {value!r} must be a number of retries or a JSON object")
    known = {"attempts", "first_us", "most_us", "factor", "jitter"}
    unknown = sorted(str(name) for name in value if name not in known)
    if unknown:
        raise SettingError(f"retries: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
    for name, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise SettingError(f"retries: {name} must be a number, not {number!r}")
    first = value.get("first_us", JOB_BACKOFF_FIRST * 1e6) / 1e6
    return Backoff(
        attempts=int(value.get("attempts", JOB_ATTEMPTS)),
        first=first,
        most=max(first, value.get("most_us", JOB_BACKOFF_MOST * 1e6) / 1e6),
        factor=float(value.get("factor", JOB_BACKOFF_FACTOR)),
        jitter=float(value.get("jitter", 0.5)),
    )
