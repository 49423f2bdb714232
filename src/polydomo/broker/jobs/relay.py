"""Durable requests that arrive at a process without the job store (``polydomo up --processes N``).

Only process 0 has the store. A durable request of another process (to a ``durable`` service, or with eMQP's header ``guarantee``) is
PARKED there, and an internal client sends its content to process 0 as a request to ``polydomo.accept``:

    request   {"service", "job", "identity", "attempts", "run_us", "ttl_us", "headers", "trace"}  body*
    answer    {"job", "state", "outcome", "reason"}  result*     once the job has ended, and its outcome is on disk
              {"error", "text"}                                  not stored, or not known any more

Process 0 answers when the job has ended, as it would answer a client of its own. If process 0 restarts, or the connection to it is lost,
the request is sent again. This process chooses the id of the job, so that a repeat finds the stored job and does not run it a second
time. If the client disconnects, the job continues.
"""

from polydomo.broker import sessions
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable_order import DurableOrder
from polydomo.broker.requests import outcomes, parking, progress
from polydomo.broker.reserved_names import ACCEPT
from polydomo.broker.state import State
from polydomo.errors import SettingError
from polydomo.limits import RELAY_AGAIN
from polydomo.model import principals
from polydomo.model.broker_api import BrokerApi
from polydomo.model.detached_link import InternalLink
from polydomo.model.jobs.messages import make_id, read_message
from polydomo.model.name_patterns import PatternMap
from polydomo.model.outcomes import FAILED, GAVE_UP, NO_WORKER, OK, REFUSED, SHUTDOWN
from polydomo.model.records import DONE, HELD, PARKED, Request
from polydomo.model.session import ProtocolSession
from polydomo.wire.frames import Body
from polydomo.wire.link import Hub, LinkHandler


class Relayed:
    """A client's request that process 0 makes durable. ``ref`` of the internal request that carries it."""

    __slots__ = ("attempts", "message", "own", "request")

    def __init__(self, request: Request, message: Body) -> None:
        self.request = request
        self.message = message
        self.own: Request | None = None  # the internal request
        self.attempts = 0  # attempts of the internal request before this one: a new one begins at 0


class DurableRelay(ProtocolSession):
    """The internal client that sends durable requests to process 0."""

    protocol = "process"
    windowed = True
    is_internal = True
    principal = principals.PROCESS
    origin_is_principal = False

    def __init__(self, api: BrokerApi, state: State, names: "PatternMap[bool]") -> None:
        super().__init__(api, InternalLink(Hub(), LinkHandler(), "the other processes"))
        self.state = state
        self.names = names
        self.may_request = False  # every request passes ``admission.resolve``
        self.parked: dict[Request, Relayed] = {}
        sessions.internal(state, self)

    def origin_of(self, request: Request) -> str:
        return request.ref.request.origin if isinstance(request.ref, Relayed) else ""

    def covers(self, name: bytes) -> bool:
        """Whether ordinary requests to this service are durable."""
        return self.names.get(name) is True

    def accept(self, request: Request, order: DurableOrder, deadline: float) -> Request:
        """Parks an ordinary request and sends its order to process 0."""
        parking.open_parked(self.state, request, deadline)
        state = self.state
        order.job = make_id(state.now + state.wall, state.entropy.take(10))
        passed = self.parked[request] = Relayed(request, order.to_message())
        self._send(passed)
        return request

    def _send(self, passed: Relayed) -> None:
        passed.own = None
        passed.own = self.broker.request(self, ACCEPT, passed.message, passed)

    def on_timer(self, key: object) -> None:
        if isinstance(key, Relayed) and self.parked.get(key.request) is key:
            self._send(key)

    # --- answers of process 0

    def send_progress(self, request: Request, share: float, text: str) -> None:
        passed = request.ref
        if isinstance(passed, Relayed) and passed.request in self.parked:
            progress.show(passed.request, share, text)

    def send_final(self, request: Request, body: Body) -> None:
        passed = request.ref
        assert isinstance(passed, Relayed)
        if self.parked.pop(passed.request, None) is None:
            return
        client = passed.request
        state = self.state
        try:
            header, result = read_message(body)
        except SettingError:
            header, result = {"error": FAILED, "text": "process 0 did not understand the request"}, b""
        error, job = header.get("error"), header.get("job")
        if error is not None:
            outcome = SHUTDOWN if error == SHUTDOWN else REFUSED
            text = str(header.get("text", ""))
            outcomes.end(state, client, outcome, text)
            client.session.send_failure(client, str(error), text)
            return
        if isinstance(job, str):
            state.recorder.joined(client, job)
        if header.get("state") == states.DONE:
            client.reply_size = len(result)
            outcomes.end(state, client, OK, "")
            client.session.send_final(client, result)
        else:
            said, reason = str(header.get("outcome")), str(header.get("reason", ""))
            outcome = said if said in outcomes.KNOWN else FAILED
            outcomes.end(state, client, outcome, reason)
            client.session.send_failure(client, outcome, reason)

    def send_failure(self, request: Request, code: str, text: str) -> None:
        """Process 0 is not there: the request waits for it. Any other failure is the client's."""
        passed = request.ref
        assert isinstance(passed, Relayed)
        client = passed.request
        if client not in self.parked:
            return
        if request.outcome in (NO_WORKER, GAVE_UP):
            self.broker.set_timer(RELAY_AGAIN, self, passed)
            return
        del self.parked[client]
        outcome = request.outcome if request.outcome in outcomes.KNOWN else REFUSED
        outcomes.end(self.state, client, outcome, text)
        client.session.send_failure(client, outcome, text)

    # --- the client does not wait any more

    def abandoned(self, request: Request) -> bool:
        """The client disconnected, or its deadline passed. A job that is stored continues. The request is still to be ended."""
        passed = self.parked.pop(request, None)
        if passed is not None and passed.own is not None and passed.own.state != DONE:
            outcomes.cancel(self.state, passed.own, "its client does not wait any more")
        return False

    def goes_on(self, request: Request) -> bool:
        """Only once it was sent to process 0, which may be restarting."""
        passed = self.parked[request]
        return passed.own is not None and passed.own.state == HELD

    def parks(self, request: Request) -> bool:
        return request in self.parked

    def check_invariants(self) -> None:
        for request in self.parked:
            assert request.state == PARKED and request in request.session.requests, (
                f"request {request.number} is passed to process 0 and is not parked"
            )
