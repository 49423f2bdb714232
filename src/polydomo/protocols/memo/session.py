"""memo01, the broker's side.

One connection carries any number of clients and workers, each identified by the request id of the SP message it waits on. A client's
JOB is open until its RESULT; a worker's READY, RESULT or HEARTBEAT is its *poll*, open until it is answered with a JOB, a
HEARTBEAT or DISCONNECT. The broker can send to a worker only while its poll is open.

NNG repeats a request that has no answer yet under the same request id. So a message whose id is open joins the one that is
open, and a message whose id was answered a moment ago gets that answer again.
"""

from polydomo.errors import ProtocolViolation
from polydomo.limits import (
    LAST_ASKED,
    MEMO_ANSWER_BYTES,
    MEMO_ANSWER_CACHE,
    MEMO_ANSWER_TIME,
    MEMO_MAX_RUN,
    MEMO_MAX_WORKERS,
)
from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import DONE, Request, Service, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.model.session import ProtocolSession
from polydomo.protocols.memo import messages
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import Body
from polydomo.wire.link import Link
from polydomo.wire.sp import ID_BIT, WORD, SpLink, SpSender, body_at

HALF_BYTES = MEMO_ANSWER_BYTES // 2
HALF_CACHE = MEMO_ANSWER_CACHE // 2
RESULT_SIZE = len(messages.WORKER_RESULT) + messages.ID_SIZE
FORGET = "forget"  # the key of the timer that drops old answers


class MemoWorker:
    """The session's data of a worker: its id, and the request id of its open poll (b"": none)."""

    def __init__(self, worker_id: bytes, poll: bytes) -> None:
        self.id = worker_id
        self.poll = poll
        self.taken = b""  # the request id of the poll that its last JOB answered; a message with this id was sent before that JOB
        # Cache of the header of its last JOB and its inputs, because most jobs of a worker have the same.
        self.service: Service | None = None
        self.milliseconds = 0
        self.job = b""


class MemoSession(ProtocolSession):
    """One SP connection that speaks memo01. ``sender`` sends its messages, if they do not go over an ``SpLink``."""

    protocol = "memo"
    polls = True

    def __init__(self, broker: BrokerApi, link: Link, sender: SpSender | None = None) -> None:
        super().__init__(broker, link)
        self._answer_bytes = 0  # payloads in ``answers``
        self._forgetting = False  # a timer is set
        if sender is None:
            assert isinstance(link, SpLink)
            sender = link
        self.sp: SpSender = sender
        self.open: set[bytes] = set()  # request ids that wait for an answer
        # Answers of the last few seconds by request id, for resends that crossed their answer: the newer and the older half.
        self.answers: dict[bytes, tuple[bytes, Body]] = {}
        self.older: dict[bytes, tuple[bytes, Body]] = {}
        self.mine: dict[bytes, Worker] = {}  # workers that used this connection last, by id
        self._asked = b""  # cache of the header of the last JOB, because most JOBs have the same, and its contents
        self._service = b""
        self._options = PLAIN  # the time limits of the last JOB

    # --- from the link --------------------------------------------------------------------------------------------------

    def on_message(self, data: bytes, start: int, end: int) -> None:
        at = start + WORD if data[start] & ID_BIT else body_at(data, start, end)
        rid = data[start:at]
        if rid in self.open:
            return
        if rid in self.answers or rid in self.older:
            header, payload = self.answers.get(rid) or self.older[rid]
            self.sp.send_message(rid, header, payload)
            return
        try:
            after = at + len(self._asked)
            if after > at and after <= end and data[at:after] == self._asked:
                self._ask(rid, messages.to_body(data, after, end))
                return
            after = at + RESULT_SIZE
            if after <= end and data[at : after - messages.ID_SIZE] == messages.WORKER_RESULT:
                self._on_result(rid, data[after - messages.ID_SIZE : after], messages.to_body(data, after, end), False)
                return
            self._on_rare(rid, messages.parse(data, at, end), data, at, end)
        except ProtocolViolation as error:
            self.broker.report_violation(self, str(error))

    def _on_rare(self, rid: bytes, message: messages.MemoMessage, data: bytes, at: int, end: int) -> None:
        """Handles any message, after parsing its header."""
        if message.kind == messages.HEARTBEAT:
            self._on_heartbeat(rid, message.worker)
        elif message.kind == messages.READY:
            self._on_ready(rid, message.services)
        elif message.kind == messages.RESULT:
            self._on_result(rid, message.worker, messages.to_body(data, message.payload, end), message.disconnecting)
        elif message.kind == messages.DISCONNECT:
            raise ProtocolViolation("DISCONNECT, which only the broker may send")
        elif message.worker:
            raise ProtocolViolation("JOB with an id: clients have none")
        else:
            if message.timeout == 0:
                raise ProtocolViolation("JOB with a timeout of 0: no worker can answer it in time")
            self._asked = data[at : message.payload] if message.payload - at <= LAST_ASKED else b""
            self._service = message.service
            run = min(message.timeout / 1000, MEMO_MAX_RUN)
            if run != self._options.max_run:
                self._options = RequestOptions(self.broker.tuning.memo_queue_expiry, run)
            self._ask(rid, messages.to_body(data, message.payload, end))

    def on_close(self, reason: CloseReason) -> None:
        self.open.clear()
        self.answers = {}
        self.older = {}
        for worker in list(self.mine.values()):
            _close_poll(worker)
            if reason.cause is not CloseCause.DENIED:  # a worker that has lost its right does not come back
                self.broker.orphan_worker(worker, self.broker.tuning.memo_reconnect)
        self.broker.session_closed(self, reason)

    # --- a client's -----------------------------------------------------------------------------------------------------

    def _ask(self, rid: bytes, body: bytes) -> None:
        """A JOB like the last one."""
        self.open.add(rid)
        broker = self.broker
        if broker.request(self, self._service, body, rid, 0.0, self._options) is None:
            self.open.discard(rid)

    def find_request(self, identity: bytes) -> Request | None:
        self.link.charge(len(self.requests) >> 4)
        try:
            rid = bytes.fromhex(identity.decode("ascii"))
        except ValueError:
            return None
        for request in self.requests:
            if request.ref == rid:
                self.open.discard(rid)
                return request
        return None

    def send_final(self, request: Request, body: Body) -> None:
        rid = request.ref
        assert isinstance(rid, bytes)
        self._answer(rid, messages.CLIENT_RESULT, messages.to_payload(body))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        """ "it will drop the connection": silence for that request id, which is free from now on."""
        rid = request.ref
        assert isinstance(rid, bytes)
        self.open.discard(rid)

    # --- a worker's -----------------------------------------------------------------------------------------------------

    def _on_ready(self, rid: bytes, services: "list[bytes]") -> None:
        if len(self.mine) >= MEMO_MAX_WORKERS:
            raise ProtocolViolation(f"READY beyond the limit of {MEMO_MAX_WORKERS} workers on one connection")
        broker = self.broker
        ref = MemoWorker(broker.random_bytes(messages.ID_SIZE), rid)
        idle = broker.tuning.memo_idle
        worker = broker.register_worker(self, services, ref, WorkerTerms(heartbeat_interval=idle, max_silence=idle))
        if isinstance(worker, Refusal):
            # nothing is sent: DISCONNECT would make the worker retry immediately and endlessly
            broker.report_refusal(self, "READY", worker)
            return
        broker.memo_workers[ref.id] = worker
        self.mine[ref.id] = worker
        self._poll(worker, rid)

    def _on_result(self, rid: bytes, worker_id: bytes, body: bytes, disconnecting: bool) -> None:
        worker = self._known(rid, worker_id)
        if worker is None:
            return
        if not worker.held:
            self._out_of_step(worker, rid, "RESULT without a job, or after the job's timeout")
            return
        ref = worker.ref
        assert isinstance(ref, MemoWorker)
        if rid == ref.taken:
            self._repeated(worker, ref, rid)
            return
        self.broker.final(worker, next(iter(worker.held)), body)
        if disconnecting:
            # "the worker cannot handle any more jobs and the server should reply with DISCONNECT"
            self._out_of_step(worker, rid, "disconnecting")
            return
        worker.last_heard = self.broker.now
        self._poll(worker, rid)

    def _on_heartbeat(self, rid: bytes, worker_id: bytes) -> None:
        worker = self._known(rid, worker_id)
        if worker is None:
            return
        if worker.held:
            ref = worker.ref
            assert isinstance(ref, MemoWorker)
            if rid == ref.taken:
                self._repeated(worker, ref, rid)
            else:  # it asks for a job while it has one, so it has abandoned that
                self._out_of_step(worker, rid, "HEARTBEAT instead of a RESULT")
            return
        self.broker.heartbeat(worker)
        self._poll(worker, rid)

    def _repeated(self, worker: Worker, ref: MemoWorker, rid: bytes) -> None:
        """A worker that holds a job repeats a message from before it got the job, because NNG repeats a request on every new connection
        until it has an answer. A RESULT belongs to the previous job. The current job was lost with its connection and is sent again."""
        request = next(iter(worker.held.values()))
        if request.state == DONE:
            self._out_of_step(worker, rid, "its job has ended in the meantime")
        else:
            worker.last_heard = self.broker.now
            ref.poll = rid
            self.deliver(worker, request)

    def _known(self, rid: bytes, worker_id: bytes) -> Worker | None:
        """Finds the worker with this id and moves it to this connection. If there is none, sends DISCONNECT and returns None."""
        worker = self.broker.memo_workers.get(worker_id)
        # Knowing an id does not give the rights of another principal.
        if worker is None or worker.session.principal != self.principal:
            self._answer(rid, messages.disconnect(worker_id))
            return None
        if worker.session is not self:
            old = worker.session
            assert isinstance(old, MemoSession)
            old.mine.pop(worker_id, None)
            if worker.polling:
                self._abandon(worker)
            self.mine[worker_id] = worker
            self.broker.adopt_worker(worker, self)
        return worker

    def _poll(self, worker: Worker, rid: bytes) -> None:
        """The worker waits for a job under ``rid``."""
        if worker.polling:
            self._abandon(worker)
        ref = worker.ref
        assert isinstance(ref, MemoWorker)
        ref.poll = rid
        self.open.add(rid)
        worker.polling = True
        # "a HEARTBEAT if no jobs are found after a certain amount of time": it begins now
        worker.last_sent = self.broker.now
        self.broker.add_credit(worker, 1)

    def _abandon(self, worker: Worker) -> None:
        """The worker sends a new message while its poll is open. NNG would have repeated the poll, so the worker has abandoned it."""
        _close_poll(worker)
        self.broker.clear_credit(worker)

    def _out_of_step(self, worker: Worker, rid: bytes, why: str) -> None:
        ref = worker.ref
        assert isinstance(ref, MemoWorker)
        self._answer(rid, messages.disconnect(ref.id))
        self.broker.worker_left(worker, why)

    def deliver(self, worker: Worker, request: Request) -> None:
        ref = worker.ref
        assert isinstance(ref, MemoWorker)
        terms = request.time_limits
        if terms is not None and terms.max_run > 0:
            seconds = terms.max_run
        else:
            seconds = request.deadline - self.broker.now if request.deadline > 0 else self.broker.tuning.busy_timeout
        # A deadline may have passed a moment ago, and its timer not be due yet.
        milliseconds = max(1, int(seconds * 1000 + 0.5))
        if request.service is not ref.service or milliseconds != ref.milliseconds:
            ref.service = request.service
            ref.milliseconds = milliseconds
            ref.job = messages.job(ref.id, request.service.name, milliseconds)
        ref.taken = ref.poll
        self._answer_poll(worker, ref, ref.job, messages.to_payload(request.body))

    def send_heartbeat(self, worker: Worker) -> None:
        ref = worker.ref
        assert isinstance(ref, MemoWorker)
        self._answer_poll(worker, ref, messages.heartbeat(ref.id))

    def dismiss(self, worker: Worker) -> None:
        """A worker without an open poll cannot get a message now. It gets DISCONNECT with its next message, because its id is then
        unknown."""
        ref = worker.ref
        assert isinstance(ref, MemoWorker)
        self._answer_poll(worker, ref, messages.disconnect(ref.id))

    def on_worker_gone(self, worker: Worker) -> None:
        _close_poll(worker)
        ref = worker.ref
        assert isinstance(ref, MemoWorker)
        self.mine.pop(ref.id, None)
        self.broker.memo_workers.pop(ref.id, None)

    # --- answers --------------------------------------------------------------------------------------------------------

    def _answer_poll(self, worker: Worker, ref: MemoWorker, header: bytes, payload: Body = b"") -> None:
        poll = ref.poll
        if poll:
            ref.poll = b""
            worker.polling = False
            self._answer(poll, header, payload)

    def _answer(self, rid: bytes, header: bytes, payload: Body = b"") -> None:
        self.open.discard(rid)
        self.sp.send_message(rid, header, payload)
        size = len(payload)
        if size > HALF_BYTES or self.link.closed:
            return
        answers = self.answers
        if len(answers) >= HALF_CACHE or self._answer_bytes + size > HALF_BYTES:
            self._forget_older()
            answers = self.answers
        answers[rid] = (header, payload)
        self._answer_bytes += size
        self.kept_bytes += size
        if not self._forgetting:
            self._forgetting = True
            self.broker.set_timer(MEMO_ANSWER_TIME, self, FORGET)

    def _forget_older(self) -> None:
        self.older = self.answers
        self.answers = {}
        self.kept_bytes = self._answer_bytes
        self._answer_bytes = 0

    def on_timer(self, key: object) -> None:
        """ "one shortly after its answer gets the same answer": kept for one to two of these spans, if there is room."""
        self._forget_older()
        self._forgetting = bool(self.older)
        if self._forgetting:
            self.broker.set_timer(MEMO_ANSWER_TIME, self, FORGET)


def _close_poll(worker: Worker) -> None:
    """The worker's open poll, if any, will not be answered."""
    ref = worker.ref
    session = worker.session
    assert isinstance(ref, MemoWorker) and isinstance(session, MemoSession)
    session.open.discard(ref.poll)
    ref.poll = b""
    worker.polling = False
