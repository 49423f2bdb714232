"""eMQP/1.0, EventMQ's protocol, the broker's side: ``"" eMQP/1.0 COMMAND msgid ...`` in both directions.

    client -> broker   REQUEST msgid queue headers message        (the document prints READY for REQUEST)
                       SCHEDULE, UNSCHEDULE msgid queue headers interval message cron
                       PUBLISH msgid topic message
    broker -> client   REPLY newid message request-msgid           (to a READY: REPLY request-msgid message)
    worker -> broker   INFORM msgid queues [type]; READY msgid; REPLY msgid message [request-msgid]
    broker -> worker   ACK newid inform-msgid; REQUEST msgid queue headers message
    both               HEARTBEAT msgid [time]; DISCONNECT msgid; KBYE msgid

Two dialects are supported: the document's and EventMQ's. ``dialect`` is the one that a worker has used. They differ in how a worker ends:
EventMQ's programs send and expect KBYE, and a DISCONNECT ends their process. In the document, DISCONNECT means that the worker registers
again. ``commands.py`` has the commands, docs/protocols/emqp.md the tables.
"""

from polydomo.errors import ProtocolViolation
from polydomo.limits import LAST_ASKED, ZOMBIE_TIME
from polydomo.model.broker_api import BrokerApi
from polydomo.model.outcomes import CLIENT_CANCELLED, CLIENT_TIMEOUT, read_failure
from polydomo.model.records import Request, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.session import ProtocolSession
from polydomo.model.shared_run import first_ref
from polydomo.model.tuning import STRICT
from polydomo.model.window import set_window
from polydomo.protocols.emqp import headers, schedules
from polydomo.protocols.emqp.commands import (
    ACK,
    ANSWER,
    CANCEL,
    DISCONNECT,
    DOCUMENT,
    EVENTMQ,
    EXPIRED,
    HEADER,
    HEARTBEAT,
    JOB,
    KBYE,
    PUBLISH,
    READY,
    REPLY,
    REPLY_SIZE,
    REQUEST,
    REQUEST_SIZE,
    REVOKE,
    SCHEDULER,
    SCHEDULER_RIGHT,
    WORKER,
)
from polydomo.protocols.emqp.headers import Route
from polydomo.wire import frames
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import MORE, Body
from polydomo.wire.link import Link


class EmqpRef:
    """The data needed to answer a REQUEST and to deliver it to an eMQP worker."""

    def __init__(self, msgid: bytes, route: Route, document_form: bool) -> None:
        self.msgid = msgid  # the frame, as it came
        self.route = route
        self.document_form = document_form  # it was sent as READY, so the reply has five frames
        # The document defines "request-reply" and headers that "can be an empty set", so its clients always wait. EventMQ's say so.
        self.waits = document_form or route.wants_reply


class EmqpSession(ProtocolSession):
    """One connection: a client, and after INFORM a worker or a scheduler as well."""

    protocol = "emqp"
    takes_partials = False
    has_fast_path = True
    has_client_ids = True
    may_withhold = True

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(broker, link)
        self.worker: Worker | None = None  # after INFORM
        self.scheduler: Worker | None = None  # after INFORM of a scheduler: a worker without services
        self.ended = False  # DISCONNECT or KBYE was sent or received: nothing more is sent, and messages are ignored
        self.said = 0  # message ids we made up
        self._asked = b""  # cache of the queue and headers of the last REQUEST, because most REQUESTs repeat them
        self._route: Route | None = None

    def fast_path(self, data: bytes, start: int, size: int) -> int:
        """The fast path: REQUESTs with the queue and headers of the last one; or a REPLY in either form, and the READY after it."""
        if self.ended:
            return start
        if self.worker is not None:
            return self._work(data, start, size, self.worker)
        route = self._route
        while route is not None:
            at = start + REQUEST_SIZE
            if at + 2 > size or data[start:at] != REQUEST or data[at] != 1:
                break
            queue = at + 2 + data[at + 1]
            body = queue + len(self._asked)
            if body + 2 > size or data[queue:body] != self._asked:
                break
            end = (
                body + 2 + data[body + 1]
                if data[body] == 0
                else frames.end_of_last(data, body, size, self.link.fast_path_size)
            )
            if end > size:
                break
            self._ask(EmqpRef(data[at:queue], route, False), route, data[body:end])
            start = end
            if self.link.state or self.link.pauses:
                break
        return start

    def _work(self, data: bytes, start: int, size: int, worker: Worker) -> int:
        """The normal messages of a worker."""
        at = start + REPLY_SIZE
        if at + 2 <= size and data[start:at] == REPLY and data[at] == 1:
            body = at + 2 + data[at + 1]
            last = body
            if body + 2 <= size and data[body] == 1:
                last = body + 2 + data[body + 1]
            end = frames.end_of_last(data, last, size, self.link.fast_path_size)
            if end > size:
                return start
            if last > body:  # REPLY msgid message request-msgid
                if data[last] == 0 and data[last + 2 : end] in worker.held:
                    self.broker.final(worker, data[last + 2 : end], b"\x00" + data[body + 1 : last])
                    start = end
            elif data[at + 2 : body] in worker.held:  # REPLY msgid message
                self.broker.final(worker, data[at + 2 : body], data[body:end])
                start = end
            at = start + REPLY_SIZE
        if self.worker is worker and at + 2 <= size and data[start:at] == READY and data[at] == 0:
            end = at + 2 + data[at + 1]
            if end <= size and worker.credit + len(worker.held) < self.broker.tuning.emqp_max_slots:
                worker.last_heard = self.broker.now
                self.broker.add_credit(worker, 1)
                start = end
        return start

    def on_message(self, data: bytes, start: int, end: int) -> None:
        if self.ended:
            return
        try:
            if data.startswith(REQUEST, start):
                self._request(data, start + len(REQUEST), end, False)
            elif data.startswith(REPLY, start):
                self._reply(data, start + len(REPLY), end)
            elif data.startswith(READY, start):
                # the document's READY has 7 frames from a client and 4 from a worker
                if data[start + len(READY)] & MORE:
                    self._request(data, start + len(READY), end, True)
                else:
                    self._ready()
            elif data.startswith(PUBLISH, start):
                self._publish(data, start + len(PUBLISH), end)
            else:
                self._slow_path(data[start:end])
        except ProtocolViolation as error:
            # EventMQ's router drops invalid messages, and RFC 18 says: "The broker SHOULD respond to invalid messages by dropping them"
            self.broker.report_violation(self, str(error))

    # --- a client ----------------------------------------------------------------------------------------------------

    def _request(self, data: bytes, at: int, end: int, document_form: bool) -> None:
        if data[at] == 1:
            queue = at + 2 + data[at + 1]
        else:
            queue = _next(data, at)
        if data[queue] == 1:
            body = queue + 2 + data[queue + 1]
        else:
            body = _next(data, queue)
        if data[body] == 1:
            body += 2 + data[body + 1]
        else:
            body = _next(data, body)
        if data[body] & MORE:
            raise ProtocolViolation("REQUEST of more than 7 frames")
        asked = data[queue:body]
        route = headers.route(asked)
        if body - queue <= LAST_ASKED and not route.key:
            self._asked = asked
            self._route = route
        self._ask(EmqpRef(data[at:queue], route, document_form), route, frames.cut(data, body, end))

    def _ask(self, ref: EmqpRef, route: Route, body: Body) -> None:
        broker = self.broker
        if self.worker is not None:
            self.worker.last_heard = broker.now
        elif self.scheduler is not None:
            self.scheduler.last_heard = broker.now
        broker.request(
            self,
            route.queue,
            body,
            ref,
            # Without a reply, only the worker enforces the timeout, from when it starts the job, as with EventMQ's router.
            broker.now + route.timeout if route.timeout and ref.waits else 0.0,
            route.options,
        )

    def identity_of(self, ref: object) -> bytes:
        return ref.msgid[frames.bounds(ref.msgid, 0)[0] :] if isinstance(ref, EmqpRef) else b""

    def client_id_of(self, request: Request) -> bytes:
        return self.identity_of(request.ref)

    def awaits_reply(self, request: Request) -> bool:
        ref = request.ref
        return not isinstance(ref, EmqpRef) or ref.waits

    def withheld(self, request: Request) -> str:
        ref = request.ref
        if self.ended or self.disconnected:
            return "the client has disconnected"
        if isinstance(ref, EmqpRef) and not ref.waits and not self.broker.tuning.emqp_reply_always:
            return "the client did not request a reply"
        return ""

    def send_final(self, request: Request, body: Body) -> None:
        ref = request.ref
        assert isinstance(ref, EmqpRef)
        if self.ended or not (ref.waits or self.broker.tuning.emqp_reply_always):
            return
        if not body or body[0] & MORE:
            body = frames.one_frame(body)
        msgid = ref.msgid
        if ref.document_form:
            self.link.send_pieces((REPLY, msgid, body), len(body))
            return
        # "A unique id for the msg": the token is one, and its work is done; a name the broker answers itself had none.
        head = ANSWER + request.token if request.token else REPLY + self._new_id()
        self.link.send(
            head + (b"\x03" if body[0] else b"\x01") + body[1:] + (b"\x00" if msgid[0] == 1 else b"\x02") + msgid[1:]
        )

    def facts_of(self, ref: object) -> "tuple[str, str]":
        return (ref.route.headers.text, ref.route.headers.trace) if isinstance(ref, EmqpRef) else ("", "")

    def headers_of(self, request: Request) -> bytes:
        ref = request.ref
        if not isinstance(ref, EmqpRef) or ref.route.headers.framed == headers.NONE.framed:
            return b""
        return ref.route.headers.text.encode()

    def _cancel(self, msgid: bytes, expired: bool) -> None:
        """The client does not wait for the reply any more."""
        self.link.charge(len(self.requests) >> 4)
        for request in self.requests:
            ref = request.ref
            if isinstance(ref, EmqpRef) and ref.msgid == msgid:
                self.broker.cancel(request, CLIENT_TIMEOUT if expired else CLIENT_CANCELLED, expired)
                return

    # --- a worker ----------------------------------------------------------------------------------------------------

    def deliver(self, worker: Worker, request: Request) -> None:
        ref = first_ref(request.ref)
        if isinstance(ref, EmqpRef):
            route = ref.route  # with the queue unchanged, even where a worker of ``default`` takes it
        else:
            route = Route(request.service.name, _headers_of(request))
        body = request.body
        if not body or body[0] & MORE:
            body = frames.one_frame(body)
        # Two clients may use the same id: the worker gets ours, new for each attempt, and printable, since EventMQ reads ids as text.
        left = request.time_left(self.broker.now) or route.timeout
        if left and self.link.extensions.deadline_jobs:
            self.link.send(JOB + request.token + route.framed_within(left), body)
        elif left:
            self.link.send(JOB + request.token + route.framed_with(max(1, round(left))), body)
        else:
            self.link.send_pieces((JOB, request.token, route.framed, body), len(body))

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        if self.link.extensions.cancel_jobs and not self.ended:
            self.link.send(CANCEL + self._new_id() + frames.frame(request.token, False))
        return False  # it holds the request until it answers or returns it

    def revoke_request(self, worker: Worker, request: Request) -> None:
        if not self.ended:
            self.link.send(REVOKE + self._new_id() + frames.frame(request.token, False))

    def _credit_message(self, command: bytes, message: "list[bytes]") -> None:
        count = 6 if command == b"CREDIT" else 5
        _check_count(message, count, count)
        worker = self.worker
        if worker is None:
            self._out_of_step(command.decode())
            return
        worker.last_heard = self.broker.now
        if command == b"RELEASED":
            self.broker.release(worker, message[4])
        elif command == b"KEPT":
            self.broker.kept(worker, message[4])
        elif not set_window(self.broker, worker, message[4], message[5]):
            raise ProtocolViolation("CREDIT without two numbers")

    def _reply(self, data: bytes, at: int, end: int) -> None:
        body = at + 2 + data[at + 1] if data[at] == 1 else _next(data, at)
        flags = data[body]
        worker = self.worker
        if worker is None:
            if flags & MORE and not self.dialect:
                self.dialect = EVENTMQ
            self._out_of_step("REPLY")
            return
        worker.last_heard = self.broker.now
        if flags & MORE:
            last = body + 2 + data[body + 1] if flags == 1 else _next(data, body)
            if data[last] & MORE:
                raise ProtocolViolation("REPLY of more than 6 frames")
            token = data[frames.bounds(data, last)[0] : end]
            self.broker.final(worker, token, (b"\x00" if flags == 1 else b"\x02") + data[body + 1 : last])
            return
        token = data[frames.bounds(data, at)[0] : body]
        if token not in worker.held:
            if not worker.held:
                raise ProtocolViolation("REPLY from a worker without a request")
            token = next(iter(worker.held))  # the oldest
        self.broker.final(worker, token, frames.cut(data, body, end))

    def _ready(self) -> None:
        worker = self.worker
        if worker is None:
            self._out_of_step("READY")
            return
        broker = self.broker
        worker.last_heard = broker.now
        if worker.credit + len(worker.held) >= broker.tuning.emqp_max_slots:
            raise ProtocolViolation(f"more than {broker.tuning.emqp_max_slots} READYs outstanding")
        broker.add_credit(worker, 1)

    def _inform(self, message: "list[bytes]") -> None:
        if self._registered() is not None:
            self._out_of_step("a second INFORM")
            return
        kind = message[5] if len(message) == 6 else WORKER
        queues: list[bytes] = []  # a scheduler's mean nothing
        weights: list[int] = []
        if kind == WORKER:
            queues, weights = headers.read_queues(message[4])
        elif kind != SCHEDULER:
            raise ProtocolViolation("INFORM of a type that is neither worker nor scheduler")
        self.dialect = EVENTMQ if len(message) == 6 else DOCUMENT
        broker, beat = self.broker, self.broker.tuning.emqp_beat
        if kind == SCHEDULER and broker.denial(self, "offer", SCHEDULER_RIGHT):
            self._part()
            return
        silence = beat * broker.tuning.emqp_beats_missed
        strict = broker.tuning.emqp_busy == STRICT
        terms = WorkerTerms(heartbeat_interval=beat, max_silence=silence, strict=strict)
        worker = broker.register_worker(self, queues, kind, terms, weights)
        if isinstance(worker, Refusal):
            broker.report_refusal(self, "INFORM", worker)
            self._part()
            return
        if kind == SCHEDULER:
            self.scheduler = worker
            broker.schedulers[self] = None
        else:
            self.worker = worker
        self.link.send(ACK + self._new_id() + frames.frame(message[3], False))
        self.send_heartbeat(worker)  # EventMQ's job manager starts its pool only when it hears the first one

    def send_heartbeat(self, worker: Worker) -> None:
        if not self.ended:
            worker.last_sent = self.broker.now
            if self.dialect == DOCUMENT:  # its HEARTBEAT has four frames
                self.link.send(HEARTBEAT + self._last_id())
                return
            moment = b"%.6f" % (self.broker.now + self.broker.wall)
            self.link.send(HEARTBEAT + self._new_id() + frames.frame(moment, False))

    def dismiss(self, worker: Worker) -> None:
        if not self.ended:
            self.ended = True
            self.link.send((KBYE if self.dialect == EVENTMQ else DISCONNECT) + self._last_id())

    def on_close(self, reason: CloseReason) -> None:
        self.broker.schedulers.pop(self, None)
        super().on_close(reason)

    def on_worker_gone(self, worker: Worker) -> None:
        self.worker = None
        self.scheduler = None
        self.broker.schedulers.pop(self, None)

    def _registered(self) -> Worker | None:
        return self.worker if self.worker is not None else self.scheduler

    def _seen(self) -> None:
        """ "Any command except DISCONNECT act as a heartbeat." """
        worker = self._registered()
        if worker is not None:
            worker.last_heard = self.broker.now

    # --- slow path ---------------------------------------------------------------------------------------------------

    def _slow_path(self, raw: bytes) -> None:
        message = frames.split(raw)
        if len(message) < 4 or message[0] or message[1] != HEADER:
            raise ProtocolViolation("not an eMQP/1.0 message")
        command = message[2]
        if command == b"HEARTBEAT":
            _check_count(message, 4, 5)
            self._heartbeat(len(message) == 5)
        elif command == b"INFORM":
            _check_count(message, 5, 6)
            self._inform(message)
        elif command == b"KBYE" or command == b"DISCONNECT":
            self.ended = True
            worker = self._registered()
            if worker is not None:
                self.broker.worker_left(worker, command.decode())
            self.broker.set_timer(ZOMBIE_TIME, self, None)
        elif command == b"SCHEDULE" or command == b"UNSCHEDULE":
            _check_count(message, schedules.FRAMES, schedules.FRAMES)
            self._schedule(message, raw)
        elif command == b"RETURN" and self.link.extensions.give_back and self.worker is not None:
            _check_count(message, 5, 5)
            self.broker.give_back(self.worker, message[4], "the worker failed")
        elif command == b"FAIL" and self.link.extensions.fail and self.worker is not None:
            _check_count(message, 7, 7)
            self.broker.fail(self.worker, message[4], *read_failure(message[5], message[6]))
        elif command in (b"CREDIT", b"RELEASED", b"KEPT") and self.link.extensions.window:
            self._credit_message(command, message)
        elif command == b"CANCEL" and self.link.extensions.cancel:
            _check_count(message, 5, 6)
            self._cancel(frames.frame(message[4], True), message[-1] == EXPIRED)
        elif command == b"ACK":
            self._out_of_step("ACK")
        elif command in (b"REQUEST", b"REPLY", b"READY", b"PUBLISH"):
            # Short frames in the long form, which ZMTP allows.
            canonical = frames.join(message)
            self.on_message(canonical, 0, len(canonical))
        else:
            raise ProtocolViolation("an unknown command")

    def _heartbeat(self, timed: bool) -> None:
        self.dialect = EVENTMQ if timed else DOCUMENT
        worker = self._registered()
        if worker is None:
            self._out_of_step("HEARTBEAT")  # "HEARTBEAT commands are valid at any time after an INFORM command"
        else:
            self.broker.heartbeat(worker)

    def _schedule(self, message: "list[bytes]", raw: bytes) -> None:
        schedules.check(message)
        self._seen()
        schedules.serve(self.broker, self, message, raw)

    def _publish(self, data: bytes, at: int, end: int) -> None:
        topic = _next(data, at)
        body = _next(data, topic)
        if data[body] & MORE:
            raise ProtocolViolation("PUBLISH of more than 6 frames")
        self._seen()
        self.broker.publish(self, data[frames.bounds(data, topic)[0] : body], frames.cut(data, body, end))

    def _out_of_step(self, what: str) -> None:
        """A valid command at the wrong time. RFC 18: "sending DISCONNECT and then no further commands to that worker"."""
        self.broker.report_violation(self, f"unexpected {what}")
        if self.dialect == EVENTMQ and self._registered() is None:
            # After a restart of the broker, a job manager keeps sending heartbeats on the same socket. DISCONNECT would end its process;
            # without an answer, it sends INFORM on a new socket after 15 s. EventMQ's router does not answer here either.
            return
        self._part()

    def _part(self) -> None:
        """DISCONNECT, "and then no further commands"."""
        worker = self._registered()
        if worker is not None:
            self.broker.worker_left(worker, "out of step")
        self.link.send(DISCONNECT + self._last_id())
        self.ended = True
        self.broker.set_timer(ZOMBIE_TIME, self, None)

    def on_timer(self, key: object) -> None:
        self.link.close(CloseCause.AFTER_DISCONNECT)

    def _new_id(self) -> bytes:
        """A frame with "a unique id for the msg", with MORE set."""
        self.said += 1
        msgid = b"%d.%d" % (self.number, self.said)
        return bytes((MORE, len(msgid))) + msgid

    def _last_id(self) -> bytes:
        return b"\x00" + self._new_id()[1:]


def _headers_of(request: Request) -> headers.Headers:
    """The headers for a worker, of a request that no eMQP client of this process sent."""
    job = request.session.job_of(request)
    if job is not None:
        return headers.of_job(job)
    shared = request.session.headers_for(request, "emqp")
    return headers.read(shared) if shared else headers.NONE


def _next(data: bytes, at: int) -> int:
    """The position of the frame after the one at ``at``; there must be one."""
    flags = data[at]
    if flags == 1:
        return at + 2 + data[at + 1]
    if flags == 3:
        return at + 9 + int.from_bytes(data[at + 1 : at + 9], "big")
    raise ProtocolViolation("a truncated message")


def _check_count(message: "list[bytes]", least: int, most: int) -> None:
    if not least <= len(message) <= most:
        raise ProtocolViolation(f"{message[2].decode()} of {len(message)} frames")
