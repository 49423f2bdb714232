"""Operations that failed alone, and are put again after a pause.

While a store cannot be used, it keeps writes and repeats them itself (``Op.retained``). A write that it answers with UNAVAILABLE met an
internal error, such as a lack of memory, and the others of its group are done. Most such errors pass; after one that does not, the
operation is put more and more rarely.
"""

from heapq import heappop, heappush

from polydomo.broker.jobs.ops import Op
from polydomo.limits import STORE_AGAIN, STORE_AGAIN_MOST
from polydomo.model.retry_policy import Backoff

BACKOFF = Backoff(first=STORE_AGAIN, most=STORE_AGAIN_MOST, jitter=0.0)


class FailedOps:
    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Op]] = []
        self._number = 0

    def add(self, op: Op, now: float) -> None:
        op.failures += 1
        self._number += 1
        heappush(self._waiting, (now + BACKOFF.wait(op.failures, 0.0), self._number, op))

    def clear(self) -> None:
        self._waiting.clear()

    def next_deadline(self) -> float:
        """0: no timer is needed."""
        return self._waiting[0][0] if self._waiting else 0.0

    def due(self, now: float) -> list[Op]:
        """Removes and returns the operations that are to be put now."""
        found: list[Op] = []
        while self._waiting and self._waiting[0][0] <= now:
            op = heappop(self._waiting)[2]
            if op.wanted is None or op.wanted():
                op.renew(now)
                found.append(op)
        return found
