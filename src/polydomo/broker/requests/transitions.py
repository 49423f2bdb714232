"""The life of a request: its states, the events that change them, and what must change together with the state.

No other module writes ``Request.state``. ``TABLE`` lists the events that are possible in each state, and the state that follows. An event
that is not in the table is a fault of the broker: it raises KeyError, and the simulator checks every change that it sees against the
table. ``docs/architecture.md`` shows the table; ``python -m tests.transitions_page`` writes it there.

The functions change the request, and the tables and counters that list it by state. They do not change queues, set timers, record events
or send messages: ``admission``, ``dispatch`` and ``outcomes`` do that around them.
"""

from typing import Final

from polydomo.broker.requests.tokens import BLOCK, FIRST_ATTEMPTS, IN_BLOCK
from polydomo.broker.state import State
from polydomo.limits import SMALL_BODY
from polydomo.model.records import DONE, HELD, NEW, NO_HISTORY, PARKED, QUEUED, Request, Service, Session, Worker
from polydomo.model.request_options import PLAIN
from polydomo.wire.frames import Body

STATES: Final = {NEW: "NEW", QUEUED: "QUEUED", HELD: "HELD", PARKED: "PARKED", DONE: "DONE"}

ACCEPT: Final = "accept"
REFUSE: Final = "refuse"
ANSWER: Final = "answer"
HOLD: Final = "hold"
PARK: Final = "park"
OPEN: Final = "open"
REQUEUE: Final = "requeue"
END: Final = "end"

EVENTS: Final = {
    ACCEPT: "the broker takes it: it is open, and will have exactly one outcome",
    REFUSE: "the broker rejects it: a limit, an invalid name, a missing right, or shutdown",
    ANSWER: "the broker answers it at once: a built-in service",
    HOLD: "a worker gets it, under a new token",
    PARK: "it waits for the job store, or until its service is resumed",
    OPEN: "its service is resumed",
    REQUEUE: "its worker is lost, releases it, returns it, or forwards it to another service",
    END: "it has its outcome",
}

TABLE: Final = {
    NEW: {ACCEPT: QUEUED, REFUSE: DONE, ANSWER: DONE},
    QUEUED: {HOLD: HELD, PARK: PARKED, END: DONE},
    HELD: {REQUEUE: QUEUED, PARK: PARKED, END: DONE},
    PARKED: {OPEN: QUEUED, END: DONE},
    DONE: {},
}


def _after(event: str) -> "dict[int, int]":
    """The column of the table for one event."""
    return {state: row[event] for state, row in TABLE.items() if event in row}


_ACCEPT: Final = _after(ACCEPT)
_REFUSE: Final = _after(REFUSE)
_ANSWER: Final = _after(ANSWER)
_HOLD: Final = _after(HOLD)
_PARK: Final = _after(PARK)
_OPEN: Final = _after(OPEN)
_REQUEUE: Final = _after(REQUEUE)
_END: Final = _after(END)


def new_request(number: int, session: Session, service: Service, body: Body, ref: object, now: float) -> Request:
    """A function, because ``__init__`` would cost twice as much."""
    request = Request()
    request.number = number
    request.session = session
    request.service = service
    request.body = body
    request.ref = ref
    request.accepted = now
    request.state = NEW
    request.worker = request.time_limits = None
    request.token = b""
    request.attempts = request.max_attempts = request.reply_size = 0
    request.dispatched = 0.0
    request.outcome = ""
    request.options = PLAIN
    request.history = NO_HISTORY
    return request


def accept(state: State, request: Request) -> None:
    """Lists the request as open, and counts its body. The caller puts it into a queue, or calls ``hold`` or ``park``."""
    request.state = _ACCEPT[request.state]
    request.service.accepted += 1
    session = request.session
    session.requests[request] = None
    size = len(request.body)
    state.held_bytes += size
    if size > SMALL_BODY:
        session.held_bytes += size


def refuse(request: Request, outcome: str, reason: str) -> None:
    """The request was never open."""
    request.state = _REFUSE[request.state]
    request.outcome = outcome
    request.own_history().reason = reason


def answer(request: Request, outcome: str) -> None:
    """The request was never open, because the broker answers it in the same call."""
    request.state = _ANSWER[request.state]
    request.outcome = outcome


def hold(state: State, request: Request, worker: Worker) -> None:
    """Gives the attempt its token, and lists it at the worker."""
    request.state = _HOLD[request.state]
    number = request.number
    tokens = state.tokens
    if not request.attempts and number >> BLOCK == tokens.block:
        token = tokens.prefix + FIRST_ATTEMPTS[number & IN_BLOCK]
        request.attempts = 1
    else:
        request.attempts += 1
        token = tokens.make(number, request.attempts)
        if request.attempts == 2:
            request.own_history().first_dispatched = request.dispatched
    request.token = token
    request.worker = worker
    request.dispatched = state.now
    worker.held[token] = request


def park(request: Request) -> None:
    """The caller keeps the request until it may go on. No worker holds it."""
    request.state = _PARK[request.state]
    request.worker = None


def open(request: Request) -> None:
    """The caller puts the request into the queue of its service again."""
    request.state = _OPEN[request.state]


def requeue(request: Request) -> None:
    """The caller has removed the request from ``worker.held``, and puts it into a queue."""
    request.state = _REQUEUE[request.state]
    request.worker = None


def end(state: State, request: Request, outcome: str, reason: str) -> None:
    """The request is not open any more. ``outcomes.end`` does the rest for all but built-in services, which are not recorded."""
    request.state = _END[request.state]
    request.outcome = outcome
    if reason:
        request.own_history().reason = reason
    session = request.session
    del session.requests[request]
    size = len(request.body)
    state.held_bytes -= size
    if size > SMALL_BODY:
        session.held_bytes -= size
