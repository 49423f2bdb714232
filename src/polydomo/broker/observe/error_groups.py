"""Failed requests grouped by service, outcome and reason, with the last example of each group.

Numbers and ids in a reason are replaced by ``#``, so that "no such order: 17" and "no such order: 18" are one group.
"""

import re

from polydomo.limits import COST_ERROR_GROUP, ERROR_EXAMPLE, ERROR_GROUPS, ERROR_REASON, MAX_ERROR_GROUPS
from polydomo.model.records import Request, Worker

_VARIES = re.compile(r"0x[0-9a-fA-F]+|[0-9A-Z]{26}|[0-9a-fA-F]{12,}|[0-9]+(?:[.,:-][0-9]+)*")

GroupKey = tuple[str, str]  # outcome, reason


def reason_of(text: str) -> str:
    """
    >>> reason_of("KeyError: 'order 4711' at 0x7f3a90"), reason_of("silent for 7.5 s")
    ("KeyError: 'order #' at #", 'silent for # s')
    """
    return _VARIES.sub("#", text[:ERROR_REASON])


class ErrorGroup:
    __slots__ = (
        "accepted", "client", "count", "example", "first", "last", "number", "outcome", "principal", "protocol", "reason", "worker",
        "worker_name",
    )  # fmt: skip

    def __init__(self, outcome: str, reason: str, now: float) -> None:
        self.outcome = outcome
        self.reason = reason
        self.count = 0
        self.first = now
        self.last = now
        # the last example
        self.number = 0  # of the request
        self.accepted = 0.0
        self.example = ""  # its reason
        self.worker = 0
        self.worker_name = ""
        self.client = 0
        self.protocol = ""
        self.principal = ""


class ErrorGroups:
    """The groups of all services, bounded: those of the service whose last failure is oldest make room."""

    __slots__ = ("count", "most", "services")

    def __init__(self) -> None:
        self.services: dict[bytes, dict[GroupKey, ErrorGroup]] = {}
        self.count = 0
        self.most = MAX_ERROR_GROUPS

    def add(self, request: Request, worker: Worker | None, outcome: str, text: str, now: float) -> None:
        """A request failed. ``worker`` held it, if any did."""
        name = request.service.name
        groups = self.services.pop(name, None)
        if groups is None:
            groups = {}
        self.services[name] = groups  # the service with the newest failure is the last one
        key = (outcome, reason_of(text))
        group = groups.get(key)
        if group is None:
            if len(groups) >= ERROR_GROUPS:
                del groups[min(groups, key=lambda known: groups[known].last)]
                self.count -= 1
            group = groups[key] = ErrorGroup(outcome, key[1], now)
            self.count += 1
            while self.count > self.most:
                oldest = next(iter(self.services))
                self.count -= len(self.services.pop(oldest))
        group.count += 1
        group.last = now
        group.number = request.number
        group.accepted = request.accepted
        group.example = text[:ERROR_EXAMPLE]
        group.worker = worker.number if worker is not None else 0
        group.worker_name = worker.name if worker is not None else ""
        group.client = request.session.number
        group.protocol = request.session.protocol
        group.principal = request.origin

    def of(self, service: bytes) -> "list[ErrorGroup]":
        """The groups of a service, the most frequent first."""
        return sorted(self.services.get(service, {}).values(), key=lambda group: -group.count)

    def memory(self) -> int:
        return COST_ERROR_GROUP * self.count
