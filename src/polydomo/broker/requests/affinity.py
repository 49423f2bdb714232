"""Affinity: which worker served a key last. A request that names the key (``RequestOptions.near``) prefers that worker.

``dispatch.pick_worker`` asks for it. The preference never makes a request wait: a worker that cannot start the request now is not preferred
to one that can.
"""

from collections import OrderedDict

from polydomo.limits import COST_NEAR, NEAR_KEYS
from polydomo.model.records import Service, Worker


class WorkerPlace:
    """A worker, as long as it is registered. Entries of the table share it, so a lost worker is not kept in memory."""

    __slots__ = ("worker",)

    def __init__(self, worker: Worker) -> None:
        self.worker: Worker | None = worker


class Affinity:
    """The keys that were used last, at most ``most``. A key counts for one service."""

    def __init__(self, most: int = NEAR_KEYS) -> None:
        self.most = most
        self._last: OrderedDict[bytes, WorkerPlace] = OrderedDict()  # the longest unused first
        self._places: dict[Worker, WorkerPlace] = {}
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._last)

    def worker_of(self, service: Service, near: bytes) -> Worker | None:
        """The worker that served the key last; None if it is not known or gone."""
        place = self._last.get(service.name + b"\0" + near)
        return place.worker if place is not None else None

    def served(self, service: Service, near: bytes, worker: Worker) -> None:
        """The worker gets a request with this key."""
        key = service.name + b"\0" + near
        place = self._places.get(worker)
        if place is None:
            place = self._places[worker] = WorkerPlace(worker)
        if key in self._last:
            self._last.move_to_end(key)
        else:
            self._key_bytes += len(key)
            if len(self._last) >= self.most:
                oldest, _ = self._last.popitem(False)
                self._key_bytes -= len(oldest)
        self._last[key] = place

    def left(self, worker: Worker) -> None:
        """The worker is gone."""
        place = self._places.pop(worker, None)
        if place is not None:
            place.worker = None

    def memory(self) -> int:
        return COST_NEAR * len(self._last) + self._key_bytes
