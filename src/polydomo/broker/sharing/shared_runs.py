"""Shared runs: several clients' requests that are answered by one run of the service.

To the rest of the broker, ``SharedRuns`` is a worker that holds the clients' requests, and for each client a client of its own that sends
one internal request per run. So deadlines, cancellation, the journal and outcomes work as for any other request.

Two owners use it and decide which requests share a run: ``memoised`` (equal bodies) and ``keyed`` (equal keys).
"""

from polydomo.broker import service_table
from polydomo.broker.guard import backpressure
from polydomo.broker.requests import dispatch, outcomes, replies
from polydomo.broker.state import State
from polydomo.limits import MEMO_PRUNE, SHARED_PARTS
from polydomo.model import principals
from polydomo.model.broker_api import BrokerApi
from polydomo.model.detached_link import DetachedLink
from polydomo.model.outcomes import FAILED, OUTCOMES
from polydomo.model.records import DONE, HELD, QUEUED, Request, Session, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.model.request_options import NEEDS_WORKER, PLAIN, RequestOptions
from polydomo.model.session import ProtocolSession
from polydomo.model.shared_run import SharedRun
from polydomo.native import mypyc_attr
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import Body
from polydomo.wire.link import Hub, LinkHandler


@mypyc_attr(allow_interpreted_subclasses=True)
class RunOwner:
    """Decisions of the owner of shared runs."""

    def on_reply(self, run: SharedRun, body: bytes) -> None:
        """The run was answered; its clients are answered next."""

    def keeps_running(self, run: SharedRun, disconnected: bool) -> float:
        """The last client is gone while a worker runs it; ``disconnected``: its connection broke. How many seconds the run goes on, for a
        client that asks again; negative: until it ends."""
        return 0.0


class RunClient(ProtocolSession):
    """Sends the internal requests on behalf of one client, so that scheduling between clients is as fair as without shared runs.

    It is never paused or refused: the limits were applied to the client's own requests.
    """

    runs_shared = True
    principal = principals.RUNS
    origin_is_principal = False

    def __init__(self, runs: "SharedRuns", asker: Session) -> None:
        self.protocol = runs.protocol
        super().__init__(runs.broker, DetachedLink(Hub(), LinkHandler(), asker.link.peer))
        self.takes_partials = runs.passes_partials
        self.runs = runs
        self.asker = asker
        runs.broker.session_opened(self)

    def asked_by(self) -> Session:
        return self.asker

    def origin_of(self, request: Request) -> str:
        run = request.ref
        return run.origin if isinstance(run, SharedRun) else ""

    def send_partial(self, request: Request, body: Body) -> None:
        self.runs.partial(request, body)

    def send_progress(self, request: Request, share: float, text: str) -> None:
        self.runs.progress(request, share, text)

    def send_final(self, request: Request, body: Body) -> None:
        self.runs.replied(request, body)

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self.runs.failed(request, code, text)


class SharedRuns(ProtocolSession):
    """See the module docstring."""

    runs_shared = True
    principal = principals.RUNS

    def __init__(self, api: BrokerApi, state: State, owner: RunOwner, protocol: str, passes_partials: bool) -> None:
        self.protocol = protocol  # the name under which its clients and its worker are listed
        super().__init__(api, DetachedLink(Hub(), LinkHandler(), f"the broker's {protocol} requests"))
        self.state = state
        self.owner = owner
        self.passes_partials = (
            passes_partials  # partial replies go to the clients as they come; otherwise they are joined
        )
        self.open: dict[bytes, SharedRun] = {}  # by key
        self.parts_bytes = 0  # of partial replies that are kept for requests that join later
        self._holds: dict[Request, SharedRun] = {}  # a client's open request -> the run it waits for
        self._clients: dict[Session, RunClient] = {}  # sessions of internal requests, by client
        self._prune_at = MEMO_PRUNE
        api.session_opened(self)
        worker = api.register_worker(self, [], None, WorkerTerms())
        assert isinstance(worker, Worker)
        self.worker: Worker = worker

    # --- requests of clients

    def hold(self, request: Request) -> None:
        """Takes an accepted request of a client. ``start`` or ``join`` follows, or its final reply."""
        state = self.state
        if state.records_messages:
            state.recorder.credit_added(self.worker, 1)  # it takes every request that comes
        dispatch.dispatch(state, request, self.worker)

    def start(self, key: bytes, request: Request, needs_worker: bool, service: bytes, body: Body) -> SharedRun:
        """Starts a run for a held request, as a request for ``service`` with ``body``."""
        state = self.state
        run = self.open[key] = SharedRun(key, request)
        run.waiting[request.token] = request
        self._holds[request] = run
        options = NEEDS_WORKER if needs_worker else PLAIN
        wanted = request.options
        if request.max_attempts or wanted.group or wanted.near:
            options = RequestOptions(
                attempts=request.max_attempts, needs_worker=needs_worker, group=wanted.group, near=wanted.near
            )
        own = self.broker.request(self._client(request.session), service, body, run, 0.0, options)
        if self.open.get(key) is run:
            run.request = own
        if request.service.queue_length >= state.max_queue:
            backpressure.pause(state, request.session, request.service)
        return run

    def join(self, run: SharedRun, request: Request) -> None:
        """The held request waits for this run too. It gets the partial replies that were sent before."""
        run.waiting[request.token] = request
        run.lingers_until = 0.0
        self._holds[request] = run
        for part in run.parts or ():
            self.broker.partial(self.worker, request.token, part)
        progress = run.request.history.progress if run.request is not None else None
        if progress is not None:
            self.broker.progress(self.worker, request.token, progress.share, progress.text)
        # Acceptance made the service known; if it left while a worker or a bridge still holds the run, no worker offers it.
        service_table.forget_unused(self.state, request.service)

    def _client(self, asker: Session) -> RunClient:
        client = self._clients.get(asker)
        if client is None:
            if len(self._clients) >= self._prune_at:
                self._prune()
            client = self._clients[asker] = RunClient(self, asker)
        return client

    def _prune(self) -> None:
        """Removes sessions whose client has disconnected. Done when their number has doubled, so that the cost per request is small."""
        for asker, client in list(self._clients.items()):
            if asker.disconnected and not client.requests:
                del self._clients[asker]
                self.broker.session_closed(client, CloseReason(CloseCause.PEER_CLOSED, "the client disconnected"))
        self._prune_at = max(MEMO_PRUNE, 2 * len(self._clients))

    def deliver(self, worker: Worker, request: Request) -> None:
        """Not used: ``hold`` takes the requests."""

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        """A client does not wait any more. A run without waiting clients is cancelled, unless its owner keeps it running."""
        run = self._holds.pop(request, None)
        if run is not None:
            run.waiting.pop(request.token, None)
            if not run.waiting and self.open.get(run.key) is run:
                own = run.request
                seconds = 0.0
                if own is not None and own.state == HELD:
                    seconds = self.owner.keeps_running(run, request.session.disconnected)
                if not seconds:
                    self._cancel(run)
                elif seconds > 0:
                    run.lingers_until = self.state.now + seconds
                    self.broker.set_timer(seconds, self, run)
        return True

    def has_begun(self, request: Request) -> bool:
        run = self._holds.get(request)
        return run is None or run.request is None or run.request.state != QUEUED

    def on_timer(self, key: object) -> None:
        if isinstance(key, SharedRun) and not key.waiting and self.open.get(key.key) is key:
            left = key.lingers_until - self.state.now
            if left > 0:
                self.broker.set_timer(left, self, key)  # a client came and went in the meantime
            else:
                self._cancel(key)

    def _cancel(self, run: SharedRun) -> None:
        self._settle(run)
        own = run.request
        if own is not None and own.state != DONE:
            outcomes.cancel(self.state, own, "no client is waiting for it")

    # --- replies of workers

    def partial(self, request: Request, body: Body) -> None:
        run = request.ref
        if not isinstance(run, SharedRun) or self.open.get(run.key) is not run:
            return
        parts = run.parts
        if parts is not None:
            if run.parts_size + len(body) <= SHARED_PARTS:
                parts.append(body)
                run.parts_size += len(body)
                self.parts_bytes += len(body)
                self.state.held_bytes += len(body)
            else:
                self._drop_parts(run)
                run.parts = None
        for token in list(run.waiting):
            self.broker.partial(self.worker, token, body)

    def progress(self, request: Request, share: float, text: str) -> None:
        run = request.ref
        if isinstance(run, SharedRun) and self.open.get(run.key) is run:
            for token in list(run.waiting):
                self.broker.progress(self.worker, token, share, text)

    def replied(self, request: Request, body: Body) -> None:
        run = request.ref
        if not isinstance(run, SharedRun):
            return
        content = bytes(body)
        self.owner.on_reply(run, content)
        for token in self._settle(run):
            self.broker.final(self.worker, token, content)

    def failed(self, request: Request, code: str, text: str) -> None:
        run = request.ref
        if not isinstance(run, SharedRun):
            return
        for token in self._settle(run):
            waiting = self.worker.held.pop(token, None)
            if waiting is None or waiting.state == DONE:
                continue
            if code in OUTCOMES and code != FAILED:
                outcomes.fail(self.state, waiting, code, text)
            else:
                replies.failed(self.state, waiting, code, text)

    def _settle(self, run: SharedRun) -> "list[bytes]":
        """The run ends. Returns the tokens of the requests that waited for it."""
        if self.open.get(run.key) is run:
            del self.open[run.key]
        self._drop_parts(run)
        waiting, run.waiting = run.waiting, {}
        for request in waiting.values():
            self._holds.pop(request, None)
        return list(waiting)

    def _drop_parts(self, run: SharedRun) -> None:
        self.state.held_bytes -= run.parts_size
        self.parts_bytes -= run.parts_size
        run.parts_size = 0
        if run.parts:
            run.parts = []

    def check_invariants(self) -> None:
        for key, run in self.open.items():
            assert run.key == key, f"a shared run is kept under another key than {run.key!r}"
            assert run.request is None or run.request.state != DONE, "a shared run has ended and is kept"
            for token, request in run.waiting.items():
                assert self._holds.get(request) is run, (
                    f"request {request.number} waits for a run that it does not know"
                )
                assert self.worker.held.get(token) is request, f"request {request.number} waits and is not held"
        waiting = sum(len(run.waiting) for run in self.open.values())
        assert waiting == len(self._holds), f"{len(self._holds)} requests wait for runs, and runs know {waiting}"
        size = sum(len(part) for run in self.open.values() for part in run.parts or ())
        assert size == self.parts_bytes, (
            f"shared runs count {self.parts_bytes} bytes of partial replies and keep {size}"
        )
