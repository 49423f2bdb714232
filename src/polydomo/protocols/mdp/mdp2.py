"""MDP/0.2 (RFC 18) and three dialects of published libraries, the broker's side.

    client   ->  MDPC02 REQUEST service body+           <-  MDPC02 PARTIAL|FINAL service body+
    worker   ->  MDPW02 READY service                   <-  MDPW02 REQUEST client "" body+
             ->  MDPW02 PARTIAL|FINAL client "" body+   <-> MDPW02 HEARTBEAT    <-> MDPW02 DISCONNECT

Each dialect is an instance of ``Dialect``, detected from the first message of a peer. Only majortomo and libmdp have the same READY, and a
wrong guess breaks either (majortomo raises on 04, libmdp disconnects on 05). Such a worker is ``undecided`` until it sends a message that
differs. Until then it gets REQUESTs, which are the same in both, and no HEARTBEAT.
"""

from polydomo.errors import ProtocolViolation
from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Request, Worker
from polydomo.protocols.mdp.single_worker import SingleWorkerSession
from polydomo.wire.frames import DELIMITER, EMPTY_FRAME, Body, cut, join, split
from polydomo.wire.link import Link
from polydomo.wire.zmtp.link import ZmtpLink


class Dialect:
    """The MDP/0.2 dialect of one published library. Envelopes are ZMTP-framed, ready to be compared and sent."""

    def __init__(
        self, name: str, empty: bool, client: "tuple[bytes, bytes, bytes]", worker: "tuple[bytes, ...]", names: bool
    ) -> None:
        lead = DELIMITER if empty else b""
        self.name = name
        self.client = lead + b"\x01\x06MDPC02"
        self.worker = lead + b"\x01\x06MDPW02"
        self.request, partial, final = (self.client + (b"\x01\x01" + code if code else b"") for code in client)
        self.partial = partial
        self.final = final
        self.names = names  # replies to the client carry the service name
        self.ready, self.deliver, self.from_partial, self.from_final, self.heartbeat, self.disconnect = worker
        self.to_worker = self.worker + b"\x01\x01" + self.deliver + b"\x01\x0c"  # ... and the token
        self.from_worker = self.worker + b"\x01\x01"
        self.beat = self.worker + b"\x00\x01" + self.heartbeat
        self.goodbye = self.worker + b"\x00\x01" + self.disconnect


_RFC = (b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06")  # READY REQUEST PARTIAL FINAL HEARTBEAT DISCONNECT
_NEVER = b"\xff"  # a command this dialect does not have

RFC18 = Dialect("rfc18", False, (b"\x01", b"\x02", b"\x03"), _RFC, True)
RFC18_REQ = Dialect("rfc18-req", True, (b"\x01", b"\x02", b"\x03"), _RFC, True)  # RFC 18 through a REQ socket
ASCII = Dialect("zmq-mdp2", False, (b"1", b"2", b"3"), (b"1", b"2", b"3", b"4", b"5", b"6"), True)
MAJORTOMO = Dialect("majortomo", True, (b"\x02", b"\x03", b"\x04"), _RFC, False)
LIBMDP = Dialect("libmdp", True, (b"", b"", b""), (b"\x01", b"\x02", _NEVER, b"\x03", b"\x04", b"\x05"), True)
UNDECIDED = Dialect("undecided", True, (b"\x02", b"\x03", b"\x04"), _RFC, False)  # majortomo or libmdp

DIALECTS = {dialect.name: dialect for dialect in (RFC18, RFC18_REQ, ASCII, MAJORTOMO, LIBMDP)}

STRAY = b"undefined"  # nodejs-mdp02 sends one more PARTIAL after each FINAL, to this client address. It is dropped without a warning.

EMPTY_LEAD = b"\x01\x00\x01\x06MDP"


def recognise(frames: "list[bytes]") -> Dialect | None:
    """The dialect of a peer's first message."""
    if frames[0]:
        return ASCII if len(frames) > 1 and frames[1][:1].isdigit() else RFC18
    if len(frames) < 3:
        return None
    if frames[1] == b"MDPW02":
        return UNDECIDED
    # "" MDPC02 ...: a one-byte command, or, in libmdp, the service itself
    if frames[2] == b"\x01":
        return RFC18_REQ
    return MAJORTOMO if frames[2] == b"\x02" else LIBMDP


class Mdp2Session(SingleWorkerSession):
    protocol = "mdp2"
    _kept: "tuple[bytes, Body] | None" = None  # an undecided worker's first 03: majortomo's PARTIAL or libmdp's REPLY

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(broker, link)
        self.dialect = ""
        self.spoken: Dialect = RFC18

    def _speak(self, dialect: Dialect) -> None:
        self.spoken = dialect
        self.dialect = dialect.name
        # "a REQ socket never gets a partial", and libmdp has no message for one
        link = self.link
        from_req = isinstance(link, ZmtpLink) and link.peer_type == b"REQ"
        self.takes_partials = dialect is not RFC18_REQ and dialect is not LIBMDP and not from_req

    def on_message(self, data: bytes, start: int, end: int) -> None:
        dialect = self.spoken
        if data.startswith(dialect.request, start) and self.dialect:
            at = start + len(dialect.request)
            # "Frame 2: Service name (printable string)"; "Frames 3+: Request body (opaque binary)"
            after = at + 2 + data[at + 1] if at + 2 <= end else end + 1
            if after < end and data[at] == 1 and data[at + 1]:
                self.broker.request(self, data[at + 2 : after], cut(data, after, end), data[at:after])
                return
            if after == end and data[at] == 0 and data[at + 1]:
                self.broker.request(self, data[at + 2 : after], b"", b"\x01" + data[at + 1 : after])
                return
        elif data.startswith(dialect.from_worker, start) and dialect is not UNDECIDED:
            at = start + len(dialect.from_worker)
            body = at + 17  # command, token with its head, delimiter
            worker = self.worker
            laid_out = body < end and data[at + 1 : at + 3] == b"\x01\x0c" and data[body - 2 : body] == DELIMITER
            if laid_out and worker is not None and worker.alive:
                token = data[body - 14 : body - 2]
                command = data[at : at + 1]
                if token in worker.held:
                    if command == dialect.from_final:
                        self.broker.final(worker, token, _last(worker, token, cut(data, body, end)))
                        return
                    if command == dialect.from_partial:
                        self.broker.partial(worker, token, cut(data, body, end))
                        return
        self._slow_path(data, start, end)

    def _slow_path(self, data: bytes, start: int, end: int) -> None:
        """The slow path, frame by frame: all messages except normal traffic, including a peer's first message."""
        frames = split(data[start:end])
        if not self.dialect:
            first = recognise(frames)
            if first is None:
                self._invalid("neither a request nor a worker's command")
                return
            self._speak(first)
            self.on_message(data, start, end)
            return
        lead = 0 if frames[0] else 1
        header = frames[lead] if len(frames) > lead else b""
        if (lead == 1) != self.spoken.client.startswith(DELIMITER) or len(frames) < lead + 2:
            self._invalid("frames of another dialect, or too few")
        elif header == b"MDPW02":
            command = frames[lead + 1]
            if not self.finished:
                self._command(command, frames[lead + 2 :])
            elif command in (self.spoken.from_partial, self.spoken.from_final) and len(frames) > lead + 3:
                if frames[lead + 2] != STRAY:
                    self.slow_reply(frames[lead + 2], join(frames[lead + 4 :]), command == self.spoken.from_final)
        elif header == b"MDPC02":
            plain = join(frames)
            if plain != data[start:end]:  # frames in long form where the short one does
                self.on_message(plain, 0, len(plain))
            elif self.worker is None and self._kept is None and self.spoken is UNDECIDED:
                self._speak(recognise(frames) or MAJORTOMO)
                self.on_message(data, start, end)
            elif data.startswith(self.spoken.request, start):
                self._invalid("request without a service, or for one whose name is not 1 to 255 bytes long")
            else:
                self._invalid(f"client command {frames[lead + 1][:8]!r} with {len(frames)} frames")
        else:
            self._invalid(f"header {header[:16]!r} on an MDP/0.2 connection")

    def _command(self, command: bytes, rest: "list[bytes]") -> None:
        if self.spoken is UNDECIDED:
            self._decide(command, rest)
        spoken = self.spoken
        if command == spoken.ready and len(rest) == 1:
            # "There is no response to a READY."
            dialect = self.broker.tuning.mdp2_dialects.get(rest[0])
            if spoken is UNDECIDED and dialect is not None and dialect in DIALECTS:
                self._speak(DIALECTS[dialect])
            self.on_ready(rest[0], self.broker.tuning.mdp_beat)
        elif command in (spoken.from_partial, spoken.from_final) and len(rest) >= 2 and not rest[1]:
            # "The ... PARTIAL and FINAL commands SHALL contain precisely one client address frame ... followed by an empty frame."
            if spoken is UNDECIDED:
                self._kept = (rest[0], join(rest[2:]))
                self.live_worker("a reply")
            elif rest[0] == STRAY and command == spoken.from_partial:
                self.live_worker("a reply")
            else:
                self.slow_reply(rest[0], join(rest[2:]), command == spoken.from_final)
        elif command == spoken.heartbeat and not rest:
            worker = self.live_worker("HEARTBEAT")
            if worker is not None:
                self.broker.heartbeat(worker)
        elif command == spoken.disconnect and not rest:
            # "When the broker receives DISCONNECT from a worker it MUST send no further commands to that worker."
            self.end_worker("DISCONNECT")
        elif command == spoken.deliver:
            self.reject_worker("REQUEST from a worker")
        else:
            self._invalid(f"worker command {command[:8]!r} with {len(rest)} frames")

    def slow_reply(self, token: bytes, body: Body, final: bool) -> None:
        worker = self.worker
        super().slow_reply(token, _last(worker, token, body) if final and worker is not None else body, final)

    def _decide(self, command: bytes, rest: "list[bytes]") -> None:
        """Decides between majortomo and libmdp. A held reply is then interpreted in that dialect."""
        if command == b"\x04" and not rest:
            self._speak(LIBMDP)
        elif (
            (command in (b"\x05", b"\x06") and not rest)
            or (command == b"\x04" and rest)
            or (command == b"\x03" and self._kept)
        ):
            self._speak(MAJORTOMO)
        else:
            return
        kept = self._kept
        self._kept = None
        if kept is not None:
            self.slow_reply(kept[0], kept[1], self.spoken is LIBMDP)

    def _invalid(self, what: str) -> None:
        """ "The broker SHOULD respond to invalid messages by dropping them and treating that peer as invalid." """
        self.link.violation(ProtocolViolation(what))

    def send_partial(self, request: Request, body: Body) -> None:
        self._reply(self.spoken.partial, request, body)

    def send_final(self, request: Request, body: Body) -> None:
        self._reply(self.spoken.final, request, body)

    def _reply(self, envelope: bytes, request: Request, body: Body) -> None:
        last = body or EMPTY_FRAME
        self.link.send_pieces((envelope, request.ref, last) if self.spoken.names else (envelope, last), len(last))

    def deliver(self, worker: Worker, request: Request) -> None:
        body = request.body or EMPTY_FRAME
        self.link.send_pieces((self.spoken.to_worker, request.token, DELIMITER, body), len(body))

    def send_heartbeat(self, worker: Worker) -> None:
        if self.spoken is not UNDECIDED:
            self.link.send(self.spoken.beat)

    def send_disconnect(self) -> None:
        if self.spoken is not UNDECIDED:
            self.link.send(self.spoken.goodbye)


def _last(worker: Worker, token: bytes, body: Body) -> Body:
    """The body of a FINAL. MDP/0.2 requires at least one body frame, so a worker ends a stream without a last part with an empty frame.
    After partial replies that frame is not part of the reply: clients that get the partial replies joined must not see it."""
    if body == EMPTY_FRAME:
        request = worker.held.get(token)
        if request is not None and request.history.first_partial:
            return b""
    return body
