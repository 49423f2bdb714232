"""Checks every change of a request's state that the recorder sees against the table of transitions."""

from collections.abc import Callable, Iterable

from polydomo.broker.requests.transitions import ACCEPT, END, HOLD, OPEN, PARK, REQUEUE, STATES, TABLE
from polydomo.model.records import HELD, NEW, Request, Session


class Lives:
    """The last seen state of every open request that was recorded as accepted."""

    def __init__(self, breach: "Callable[[str, str], None]") -> None:
        self._breach = breach
        self._states: dict[Request, int] = {}

    def accepted(self, request: Request) -> None:
        if request in self._states:
            self._outside(request, self._states[request], ACCEPT)
        self._states[request] = NEW
        self._changed(request, ACCEPT)

    def held(self, request: Request) -> None:
        self._changed(request, HOLD)

    def requeued(self, request: Request) -> None:
        """Its worker does not hold it any more. It is parked if its service is paused."""
        before = self._states.get(request)
        if before == HELD:
            self._changed(request, REQUEUE, PARK)
        else:
            self._outside(request, before, REQUEUE)

    def forwarded(self, request: Request) -> None:
        """Its worker forwards it. The record is written before the state changes."""
        before = self._states.get(request)
        if before != HELD or request.state != HELD:
            self._outside(request, before, REQUEUE)
        self._states[request] = TABLE[HELD][REQUEUE]

    def ended(self, request: Request) -> None:
        self._changed(request, END)
        self._states.pop(request, None)

    def look(self, sessions: "Iterable[Session]") -> None:
        """Compares all open requests with what was recorded."""
        for session in sessions:
            for request in session.requests:
                if request in self._states:  # requests to built-in services are not recorded
                    self._changed(request)

    def _changed(self, request: Request, *events: str) -> None:
        """One of ``events`` was recorded. A service that is paused or resumed parks or opens its queued requests, which is not recorded."""
        before = self._states.get(request)
        possible: set[int] = set()
        if before is not None:
            possible = _unrecorded(before)
            if events:
                possible = {TABLE[state][event] for state in possible for event in events if event in TABLE[state]}
                possible = {later for state in possible for later in _unrecorded(state)}
        if request.state not in possible:
            self._outside(request, before, " or ".join(events))
        self._states[request] = request.state

    def _outside(self, request: Request, before: "int | None", event: str) -> None:
        was = STATES[before] if before is not None else "not open"
        self._breach(
            "transition",
            f"request {request.number} was {was} and is {STATES[request.state]} after {event or 'no recorded event'!r}",
        )


def _unrecorded(state: int) -> set[int]:
    """The states that a request in this state can have without a record."""
    states = {state}
    if state != HELD:  # otherwise it is recorded as requeued
        states |= {TABLE[state][event] for event in (PARK, OPEN) if event in TABLE[state]}
    return states
