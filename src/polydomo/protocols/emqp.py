"""eMQP/1.0, EventMQ's protocol, as the broker speaks it: ``"" eMQP/1.0 COMMAND msgid ...`` in both directions.

    client -> broker   REQUEST msgid queue headers message        (the document prints READY for REQUEST)
                       SCHEDULE, UNSCHEDULE msgid queue headers interval message cron
                       PUBLISH msgid topic message
    broker -> client   REPLY newid message request-msgid           (to a READY: REPLY request-msgid message)
    worker -> broker   INFORM msgid queues [type]; READY msgid; REPLY msgid message [request-msgid]
    broker -> worker   ACK newid inform-msgid; REQUEST msgid queue headers message
    both               HEARTBEAT msgid [time]; DISCONNECT msgid; KBYE msgid

Two readings are served: the document's and EventMQ's own. ``dialect`` says which one a worker has shown. They differ in what ends a
worker: EventMQ's programs leave with KBYE and are left with KBYE, and a DISCONNECT ends the whole process; by the document DISCONNECT
means that the conversation starts anew. docs/protocols/emqp.md has the tables.
"""

from binascii import hexlify, unhexlify

from polydomo.errors import ProtocolViolation
from polydomo.limits import ZOMBIE_TIME
from polydomo.protocols import emqp_headers
from polydomo.protocols.emqp_headers import DEFAULT_QUEUE, Headers
from polydomo.protocols.verbs import Request, Session, Verbs, Worker
from polydomo.wire import frames
from polydomo.wire.frames import EMPTY_FRAME, MORE, Body
from polydomo.wire.link import Link

HEADER = b"eMQP/1.0"
PREFIX = b"\x01\x00\x01\x08" + HEADER  # what every message of eMQP begins with on the wire

REQUEST = PREFIX + b"\x01\x07REQUEST"
REPLY = PREFIX + b"\x01\x05REPLY"
READY = PREFIX + b"\x01\x05READY"
PUBLISH = PREFIX + b"\x01\x07PUBLISH"
ACK = PREFIX + b"\x01\x03ACK"
HEARTBEAT = PREFIX + b"\x01\x09HEARTBEAT"
DISCONNECT = PREFIX + b"\x01\x0aDISCONNECT"
KBYE = PREFIX + b"\x01\x04KBYE"

EVENTMQ = "eventmq"  # dialects
DOCUMENT = "document"

WORKER = b"worker"  # the types of an INFORM
SCHEDULER = b"scheduler"

SCHEDULE_FRAMES = 9


class EmqpRef:
    """What the answer to one REQUEST needs, and what an eMQP worker is told of it."""

    def __init__(self, msgid: bytes, queue: bytes, headers: Headers, document_form: bool) -> None:
        self.msgid = msgid
        self.queue = queue
        self.headers = headers
        self.wants_reply = headers.wants_reply
        self.document_form = document_form  # it came as READY: the reply has five frames


class EmqpSession(Session):
    """One connection: a client, and after INFORM a worker or a scheduler as well."""

    protocol = "emqp"
    takes_partials = False

    def __init__(self, broker: Verbs, link: Link) -> None:
        super().__init__(broker, link)
        self.worker: Worker | None = None  # after INFORM; a scheduler is a worker that offers nothing
        self.ended = False  # DISCONNECT or KBYE was said, by either side: nothing more is sent or heard
        self.said = 0  # message ids we made up

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
                self._rare(data[start:end])
        except ProtocolViolation as error:
            # EventMQ's router drops what it cannot read, and RFC 18: "The broker SHOULD respond to invalid messages by dropping them"
            self.broker.violated(self, str(error))

    # --- a client ----------------------------------------------------------------------------------------------------

    def _request(self, data: bytes, position: int, end: int, document_form: bool) -> None:
        start, stop = _more(data, position)
        msgid = data[start:stop]
        start, stop = _more(data, stop)
        queue = data[start:stop] or DEFAULT_QUEUE
        start, stop = _more(data, stop)
        headers = emqp_headers.read(data[start:stop])
        if data[stop] & MORE:
            raise ProtocolViolation("REQUEST of more than 7 frames")
        if not queue.isascii():
            _check_text(queue)
        broker = self.broker
        if self.worker is not None:
            self.worker.seen = broker.now
        broker.request(
            self,
            queue,
            frames.cut(data, stop, end),
            EmqpRef(msgid, queue, headers, document_form),
            deadline=broker.now + headers.timeout if headers.timeout else 0.0,
            attempts=headers.attempts,
            fallback=DEFAULT_QUEUE,
        )

    def send_final(self, request: Request, body: Body) -> None:
        ref = request.ref
        assert isinstance(ref, EmqpRef)
        if not ref.wants_reply or self.ended:
            return
        msgid = ref.msgid
        body = _one_frame(body)
        if ref.document_form:
            self.link.send(REPLY + frames.head(len(msgid), True) + msgid, body)
            return
        self.link.send(
            REPLY
            + self._new_id()
            + (b"\x03" if body[0] else b"\x01")
            + body[1:]
            + frames.head(len(msgid), False)
            + msgid
        )

    # --- a worker ----------------------------------------------------------------------------------------------------

    def deliver(self, worker: Worker, request: Request) -> None:
        ref = request.ref
        headers = emqp_headers.NONE
        queue = request.service.name
        if isinstance(ref, EmqpRef):
            headers = ref.headers
            queue = ref.queue  # unchanged, even where a worker of ``default`` takes it
        left = request.deadline - self.broker.now if request.deadline else request.run
        # EventMQ reads ids as text, and two clients may use the same one: the worker gets ours, new for each attempt.
        msgid = hexlify(request.token)
        self.link.send(
            REQUEST
            + bytes((MORE, len(msgid)))
            + msgid
            + frames.head(len(queue), True)
            + queue
            + (headers.framed_with(max(1, round(left))) if left else headers.framed),
            _one_frame(request.body),
        )

    def _reply(self, data: bytes, position: int, end: int) -> None:
        start, stop = _more(data, position)
        flags = data[stop]
        six = flags & MORE
        worker = self.worker
        if worker is None or worker.ref == SCHEDULER:
            if six and not self.dialect:
                self.dialect = EVENTMQ
            self._out_of_step("REPLY")
            return
        worker.seen = self.broker.now
        if six:
            body_end = _more(data, stop)[1]
            body: Body = bytes((flags ^ MORE,)) + data[stop + 1 : body_end]
            if data[body_end] & MORE:
                raise ProtocolViolation("REPLY of more than 6 frames")
            token = _token(data[frames.bounds(data, body_end)[0] : end])
            if not token:
                raise ProtocolViolation("REPLY to a message that we never sent")
        else:
            body = frames.cut(data, stop, end)
            token = _token(data[start:stop])
            if token not in worker.held:
                if not worker.held:
                    raise ProtocolViolation("REPLY from a worker that has no request")
                token = next(iter(worker.held))  # the oldest
        self.broker.final(worker, token, body)

    def _ready(self) -> None:
        worker = self.worker
        if worker is None or worker.ref == SCHEDULER:
            self._out_of_step("READY")
            return
        worker.seen = self.broker.now
        if worker.credit + len(worker.held) >= self.broker.tuning.emqp_max_slots:
            raise ProtocolViolation(f"more than {self.broker.tuning.emqp_max_slots} READYs outstanding")
        self.broker.grant(worker, 1)

    def _inform(self, message: "list[bytes]") -> None:
        if self.worker is not None:
            self._out_of_step("INFORM from a peer that has said it before")
            return
        kind = message[5] if len(message) == 6 else WORKER
        queues: list[bytes] = []  # a scheduler's mean nothing
        weights: list[int] = []
        if kind == WORKER:
            queues, weights = emqp_headers.read_queues(message[4])
        elif kind != SCHEDULER:
            raise ProtocolViolation("INFORM of a type that is neither worker nor scheduler")
        self.dialect = EVENTMQ if len(message) == 6 else DOCUMENT
        broker = self.broker
        beat = broker.tuning.emqp_beat
        worker = broker.register(self, queues, kind, 0, False, beat, beat * broker.tuning.emqp_beats_missed, weights)
        if worker is None:
            broker.violated(self, f"INFORM refused: {broker.refusal}")
            self._part()
            return
        self.worker = worker
        if kind == SCHEDULER:
            broker.schedulers[self] = None
        self.link.send(ACK + self._new_id() + frames.frame(message[3], False))
        self.beat(worker)  # EventMQ's job manager starts its pool only when it hears the first one

    def beat(self, worker: Worker) -> None:
        if not self.ended:
            worker.told = self.broker.now
            moment = b"%.6f" % (self.broker.now + self.broker.wall)
            self.link.send(HEARTBEAT + self._new_id() + frames.frame(moment, False))

    def dismiss(self, worker: Worker) -> None:
        if not self.ended:
            self.ended = True
            self.link.send((KBYE if self.dialect == EVENTMQ else DISCONNECT) + self._last_id())

    def gone(self, worker: Worker) -> None:
        self.worker = None
        self.broker.schedulers.pop(self, None)

    # --- everything that is rare -------------------------------------------------------------------------------------

    def _rare(self, raw: bytes) -> None:
        message = frames.split(raw)
        if len(message) < 4 or message[0] or message[1] != HEADER:
            raise ProtocolViolation("not a message of eMQP/1.0")
        command = message[2]
        if command == b"HEARTBEAT":
            _check_count(message, 4, 5)
            self._heartbeat(len(message) == 5)
        elif command == b"INFORM":
            _check_count(message, 5, 6)
            self._inform(message)
        elif command == b"KBYE" or command == b"DISCONNECT":
            self.ended = True
            if self.worker is not None:
                self.broker.leave(self.worker, command.decode())
            self.broker.later(ZOMBIE_TIME, self, None)
        elif command == b"SCHEDULE" or command == b"UNSCHEDULE":
            _check_count(message, SCHEDULE_FRAMES, SCHEDULE_FRAMES)
            self._schedule(message, raw)
        elif command == b"ACK":
            self._out_of_step("ACK")
        elif command in (b"REQUEST", b"REPLY", b"READY", b"PUBLISH"):
            # Its short frames came in the long form, which ZMTP allows.
            canonical = frames.join(message)
            self.on_message(canonical, 0, len(canonical))
        else:
            raise ProtocolViolation("a command that eMQP does not have")

    def _heartbeat(self, timed: bool) -> None:
        self.dialect = EVENTMQ if timed else DOCUMENT
        if self.worker is None:
            self._out_of_step("HEARTBEAT")  # "HEARTBEAT commands are valid at any time after an INFORM command"
        else:
            self.broker.heard(self.worker)

    def _schedule(self, message: "list[bytes]", raw: bytes) -> None:
        """To a scheduler, as it came. What would end EventMQ's scheduler in an exception is not passed on."""
        for content in message[3:]:
            _check_text(content)
        try:
            interval = int(message[6])
        except ValueError:
            raise ProtocolViolation("an interval that is not a number") from None
        if interval < 0 and not message[8] and message[2] == b"SCHEDULE":
            raise ProtocolViolation("a schedule with neither interval nor cron")
        schedulers = self.broker.schedulers
        if self.worker is not None:
            self.worker.seen = self.broker.now
        if not schedulers:
            raise ProtocolViolation(f"{message[2].decode()} while no scheduler is connected")
        for session in list(schedulers):
            session.link.send(raw)
            if message[2] == b"SCHEDULE":
                break  # always the same one, so that a schedule sent again replaces the first; UNSCHEDULE reaches all

    def _publish(self, data: bytes, position: int, end: int) -> None:
        stop = _more(data, position)[1]
        start, stop = _more(data, stop)
        if data[stop] & MORE:
            raise ProtocolViolation("PUBLISH of more than 6 frames")
        if self.worker is not None:
            self.worker.seen = self.broker.now
        self.broker.publish(self, data[start:stop], frames.cut(data, stop, end))

    def _out_of_step(self, what: str) -> None:
        """A valid command at the wrong time. RFC 18: "sending DISCONNECT and then no further commands to that worker"."""
        self.broker.violated(self, f"{what} out of step")
        if self.worker is None and self.dialect == EVENTMQ:
            # A job manager whose broker was restarted goes on beating on the same socket; DISCONNECT would end its process for
            # good, while silence makes it say INFORM on a new one after 15 s. EventMQ's router is silent here, too.
            return
        self._part()

    def _part(self) -> None:
        """DISCONNECT, "and then no further commands"."""
        if self.worker is not None:
            self.broker.leave(self.worker, "out of step")
        self.link.send(DISCONNECT + self._last_id())
        self.ended = True
        self.broker.later(ZOMBIE_TIME, self, None)

    def on_timer(self, key: object) -> None:
        self.link.close("after DISCONNECT")

    def _new_id(self) -> bytes:
        """A frame with "a unique id for the msg", and more to follow."""
        self.said += 1
        msgid = b"%d.%d" % (self.number, self.said)
        return bytes((MORE, len(msgid))) + msgid

    def _last_id(self) -> bytes:
        return b"\x00" + self._new_id()[1:]


def _more(data: bytes, position: int) -> "tuple[int, int]":
    """Where the content of the frame at ``position`` begins and ends, if another frame follows it, as it must here."""
    flags = data[position]
    if flags == 1:
        position += 2
        return position, position + data[position - 1]
    if flags == 3:
        position += 9
        return position, position + int.from_bytes(data[position - 8 : position], "big")
    raise ProtocolViolation("a message that ends too soon")


def _one_frame(body: Body) -> Body:
    """eMQP carries one frame: several are joined, and none is an empty one."""
    if not body:
        return EMPTY_FRAME
    if body[0] & MORE:
        return frames.frame(frames.flat(body), False)
    return body


def _token(msgid: bytes) -> bytes:
    try:
        return unhexlify(msgid)
    except ValueError:
        return b""


def _check_text(content: bytes) -> None:
    try:
        content.decode()
    except UnicodeDecodeError:
        raise ProtocolViolation("text that is not UTF-8") from None


def _check_count(message: "list[bytes]", least: int, most: int) -> None:
    if not least <= len(message) <= most:
        raise ProtocolViolation(f"{message[2].decode()} of {len(message)} frames")
