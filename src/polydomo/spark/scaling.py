"""Decides how many workers a fleet should have, from the length of its queue."""

from polydomo.limits import FLEET_QUIET


class Scaling:
    """Grows at once, by at most as many workers as there are; shrinks by half of the idle workers after a quiet time.

    >>> scaling = Scaling(2, 16)
    >>> scaling.decide(0.0, workers=2, starting=0, idle=0, queued=50)
    4
    >>> scaling.decide(1.0, workers=4, starting=2, idle=0, queued=50)  # wait for those that are just starting
    4
    >>> scaling.decide(2.0, workers=4, starting=0, idle=0, queued=1)
    5
    """

    def __init__(self, least: int, most: int, quiet: float = FLEET_QUIET) -> None:
        self.least, self.most, self.quiet = least, most, quiet
        self._quiet_since: float | None = None

    @property
    def fixed(self) -> bool:
        return self.least == self.most

    def decide(self, now: float, *, workers: int, starting: int, idle: int, queued: int) -> int:
        """``workers`` is the size of the fleet, of which ``starting`` do not serve yet; ``idle`` workers wait for requests."""
        wanted = workers
        if queued or not idle:
            self._quiet_since = None
            if queued > idle and not starting:
                wanted += min(queued, max(workers, 1))
        elif self._quiet_since is None:
            self._quiet_since = now
        elif now - self._quiet_since >= self.quiet:
            self._quiet_since = now
            wanted -= (min(idle, workers) + 1) // 2
        return min(max(wanted, self.least), self.most)
