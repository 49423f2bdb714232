"""Acceptance times of recently finished requests, which are needed to build their ids."""

from polydomo.limits import ENDED_REQUESTS
from polydomo.model.records import Request


class AcceptanceTimes:
    """Of the last finished requests: at least ``ENDED_REQUESTS`` and at most twice as many."""

    __slots__ = ("_earlier", "_recent")

    def __init__(self) -> None:
        self._recent: dict[int, float] = {}  # request number -> acceptance time
        self._earlier: dict[int, float] = {}

    def add(self, request: Request) -> None:
        recent = self._recent
        recent[request.number] = request.accepted
        if len(recent) >= ENDED_REQUESTS:
            self._earlier = recent
            self._recent = {}

    def accepted(self, number: int) -> float | None:
        found = self._recent.get(number)
        return found if found is not None else self._earlier.get(number)
