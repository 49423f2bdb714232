"""Deadlines in buckets: adding and removing take constant time, and removed items leave nothing behind.

A deadline never fires early. It fires late by at most 1 % of the wait, or ``TIMER_TICK`` if that is more: distant deadlines share coarse
buckets, so the number of buckets stays small at any request rate.
"""

from heapq import heappop, heappush

from polydomo.limits import TIMER_TICK

TIME_TOLERANCE = 0.00001  # seconds; an item is due if ``now + TIME_TOLERANCE >= when``


class Timers:
    """Items by bucket. An item is stored under the key that ``add`` returned."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[object, None]] = {}
        self._heap: list[int] = []
        self._known: set[int] = set()  # keys in the heap; their buckets may already be gone
        # Cache of the last added item, because many are added in one turn for the same time.
        self._now = self._when = -1.0
        self._key = 0

    def add(self, now: float, when: float, item: object) -> int:
        if now == self._now and when == self._when:
            key = self._key
        else:
            wait = int((when - now) * 10)  # 1 % of the wait, in milliseconds
            grain = TIMER_TICK
            while grain * 10 <= wait:
                grain *= 10
            key = -(-int(when * 1000.0 + 0.999) // grain) * grain
            while key <= now * 1000.0 + 0.001:
                key += grain  # an item that is due now waits for the next call, so that a loop of calls terminates
            self._now = now
            self._when = when
            self._key = key
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = {item: None}
            if key not in self._known:
                self._known.add(key)
                heappush(self._heap, key)
        else:
            bucket[item] = None
        return key

    def remove(self, key: int, item: object) -> None:
        bucket = self._buckets.get(key)
        if bucket is not None and item in bucket:
            del bucket[item]
            if not bucket:
                del self._buckets[key]

    def next(self) -> float | None:
        """When the next item is due."""
        heap = self._heap
        while heap:
            if heap[0] in self._buckets:
                return heap[0] / 1000.0
            self._known.discard(heappop(heap))
        return None

    def due(self, now: float) -> list[tuple[int, object]]:
        """Removes and returns all due items in order, each with its key."""
        found: list[tuple[int, object]] = []
        heap = self._heap
        limit = now * 1000.0 + 0.001  # ``next() * 1000.0`` may be slightly below the key because of rounding
        while heap and heap[0] <= limit:
            key = heappop(heap)
            self._known.discard(key)
            bucket = self._buckets.pop(key, None)
            if bucket is not None:
                found.extend([(key, item) for item in bucket])
        return found

    def items(self) -> list[tuple[int, object]]:
        """All items with their keys."""
        return [(key, item) for key, bucket in self._buckets.items() for item in bucket]

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())
