"""The live view: publishes requests as they end under ``monitor.ended``. It costs nothing without subscribers.

All requests of a tick are one publication, with at most ``TAP_ROWS`` of them; further ones are only counted.
"""

from typing import Any

from polydomo import limits
from polydomo.broker.broker import Broker
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.observe.tallies import STANDING_IN
from polydomo.broker.requests.request_names import request_name
from polydomo.model.json_form import iso_time, microseconds
from polydomo.model.records import Request

Row = dict[str, Any]


class LiveRequests(Recorder):
    """Collects the requests that end within one tick."""

    def __init__(self, broker: Broker) -> None:
        self.wants_requests = True
        self._broker = broker
        self._rows: list[Row] = []
        self._skipped = 0

    def ended(self, request: Request) -> None:
        if request.session.counted_as in STANDING_IN:
            return  # the request that it stands for is shown
        if len(self._rows) >= limits.TAP_ROWS:
            self._skipped += 1
            return
        broker = self._broker
        worker = request.worker if request.attempts else None
        name = worker.name if worker is not None else ""
        number = f"w{worker.number}" if worker is not None else None
        if worker is not None and worker.session.is_sibling:  # only that process knows the worker
            index = broker.siblings.bridges.get(worker, -1)
            name, number = f"process {index}" if index >= 0 else "another process", None
        now, wall = broker.now, broker.wall
        ran = now - request.dispatched if worker is not None else 0.0
        wait = (
            (request.history.first_dispatched or request.dispatched) - request.accepted
            if request.dispatched
            else now - request.accepted
        )
        self._rows.append(
            {
                "request": request_name(broker, request),
                "service": request.service.name.decode(errors="backslashreplace"),
                "outcome": request.outcome,
                "reason": request.history.reason[: limits.ERROR_REASON],
                "client": f"c{request.session.number}",
                "protocol": request.session.protocol,
                "worker": number,
                "worker_name": name,
                "accepted": iso_time(wall + request.accepted),
                "ended": iso_time(wall + now),
                "wait_us": microseconds(max(0.0, wait)),
                "run_us": microseconds(max(0.0, ran)),
                "total_us": microseconds(now - request.accepted),
                "attempts": request.attempts,
            }
        )

    def take(self) -> Row | None:
        """The requests since the last call; None if there are none."""
        if not self._rows and not self._skipped:
            return None
        broker = self._broker
        row = {"time": iso_time(broker.wall + broker.now), "skipped": self._skipped, "requests": self._rows}
        self._rows, self._skipped = [], 0
        return row
