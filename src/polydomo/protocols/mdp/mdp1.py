"""MDP/0.1 (RFC 7), the broker's side.

    client   ->  "" MDPC01 service body+           <-  "" MDPC01 service body+
    worker   ->  "" MDPW01 READY service           <-  "" MDPW01 REQUEST client "" body+
             ->  "" MDPW01 REPLY client "" body+   <-> "" MDPW01 HEARTBEAT    <-> "" MDPW01 DISCONNECT

The client address that a worker receives is the token of the attempt. A reply that names any other address is dropped as stale.

The Guide's PHP worker omits the empty frame of REPLY, and the Guide's C broker accepts that. A worker that has sent one such reply
has the dialect ``guide-php``: from then on everything after the client address is body, even if its first frame is empty.

The Guide's C# and Haskell workers write commands as two ASCII digits (``"01"``), and read them so. A worker whose READY has this form has
the dialect ``guide-digits``, and gets its commands in the same form.
"""

from typing import Final

from polydomo.errors import ProtocolViolation
from polydomo.limits import ZOMBIE_TIME
from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Request, Worker
from polydomo.protocols.mdp.single_worker import ZOMBIE, SingleWorkerSession
from polydomo.wire.frames import DELIMITER, EMPTY_FRAME, Body, cut, end_of_last, join, split, whole_bodies
from polydomo.wire.link import Link

CLIENT = b"\x01\x00\x01\x06MDPC01"  # frames: "", MDPC01
WORKER = b"\x01\x00\x01\x06MDPW01"
REPLY = WORKER + b"\x01\x01\x03\x01\x0c"  # ... and the flags and length of the token that follows
REQUEST = WORKER + b"\x01\x01\x02\x01\x0c"
HEARTBEAT = WORKER + b"\x00\x01\x04"
DISCONNECT = WORKER + b"\x00\x01\x05"

DIGITS: Final[dict[bytes, bytes]] = {b"0%d" % command: bytes((command,)) for command in range(1, 6)}
REQUEST_DIGITS = WORKER + b"\x01\x0202\x01\x0c"
HEARTBEAT_DIGITS = WORKER + b"\x00\x0204"
DISCONNECT_DIGITS = WORKER + b"\x00\x0205"

GUIDE_DIGITS = "guide-digits"  # the dialect whose commands are two ASCII digits
GUIDE_PHP = "guide-php"  # the dialect whose REPLY has no empty frame between client address and body

SERVICE_AT = len(CLIENT)
BODY_AT = len(REPLY) + 12 + 2  # after a token and the delimiter


class Mdp1Session(SingleWorkerSession):
    protocol = "mdp1"
    has_fast_path = True

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(broker, link)
        self.dialect = (
            ""  # GUIDE_DIGITS after such a READY; GUIDE_PHP once the worker has sent a reply without the empty frame
        )
        self._asked = b""  # cache of the envelope of the last request, because most requests have the same
        self._service = b""
        self._due = b""  # expected envelope of the reply to the last dispatched request
        self._token = b""  # token of that attempt

    def fast_path(self, data: bytes, start: int, size: int) -> int:
        """The fast path: a reply, or requests for the same service as before, each with a body of one frame."""
        worker = self.worker
        if worker is not None:
            body = start + BODY_AT
            if body + 2 <= size and data[start:body] == self._due and worker.alive:
                end = (
                    body + 2 + data[body + 1]
                    if data[body] == 0
                    else end_of_last(data, body, size, self.link.fast_path_size)
                )
                if end <= size:
                    if not self.broker.final(worker, self._token, data[body:end]):
                        worker.last_heard = self.broker.now
                    return end
            return start
        asked = self._asked
        if not asked:
            return start
        bodies = whole_bodies(data, start, size, asked, self.link.fast_path_size)
        taken = self.broker.request_batch(self, self._service, bodies, asked)
        return start + taken * len(asked) + sum(map(len, bodies[:taken]))

    def on_message(self, data: bytes, start: int, end: int) -> None:
        if data.startswith(CLIENT, start):
            at = start + SERVICE_AT
            # "Frame 2: Service name (printable string)"; "Frames 3+: Request body (opaque binary)"
            after = at + 2 + data[at + 1] if at + 2 <= end else end + 1
            if after < end and data[at] == 1 and data[at + 1]:
                self._asked = data[start:after]
                self._service = data[at + 2 : after]
                self.broker.request(self, self._service, cut(data, after, end), self._asked)
            elif after == end and data[at] == 0 and data[at + 1]:  # without a body, which crashes published brokers
                self.broker.request(self, data[at + 2 : after], b"", CLIENT + b"\x01" + data[at + 1 : after])
            else:
                self._slow_path(data, start, end)
        elif data.startswith(REPLY, start):
            body = start + BODY_AT
            worker = self.worker
            laid_out = data[body - 2 : body] == DELIMITER and body < end and not self.dialect
            if laid_out and worker is not None and worker.alive:
                token = data[body - 14 : body - 2]
                if token in worker.held:
                    self.broker.final(worker, token, cut(data, body, end))
                    return
            self._slow_path(data, start, end)
        else:
            self._slow_path(data, start, end)

    def _slow_path(self, data: bytes, start: int, end: int) -> None:
        """The slow path: all messages except normal requests and replies, parsed frame by frame."""
        frames = split(data[start:end])
        if len(frames) < 3 or frames[0]:
            self._invalid("no empty frame, header and command")
        elif frames[1] == b"MDPC01":
            plain = join(frames)
            if plain == data[start:end]:
                self._invalid("request without a service, or for one whose name is not 1 to 255 bytes long")
            else:  # frames in the long form where the short form would suffice
                self.on_message(plain, 0, len(plain))
        elif frames[1] == b"MDPW01":
            command = DIGITS.get(frames[2], frames[2])
            if command is not frames[2] and command == b"\x01" and self.worker is None:
                self.dialect = GUIDE_DIGITS
                self.has_fast_path = False
            if not self.finished:
                self._command(command, frames[3:])
            elif command == b"\x03" and len(frames) > 3:
                self._reply(frames[3:])
        else:
            self._invalid(f"header {frames[1][:16]!r} on an MDP/0.1 connection")

    def _command(self, command: bytes, rest: list[bytes]) -> None:
        if command == b"\x01" and len(rest) == 1:
            # "There is no response to a READY."
            self.on_ready(rest[0], self.broker.tuning.mdp_beat)
        elif command == b"\x03" and rest:
            self._reply(rest)
        elif command == b"\x04" and not rest:
            worker = self.live_worker("HEARTBEAT")
            if worker is not None:
                self.broker.heartbeat(worker)
        elif command == b"\x05" and not rest:
            # "When the broker receives DISCONNECT from a worker it MUST send no further commands to that worker."
            self.end_worker("DISCONNECT")
        elif command == b"\x02":
            self.reject_worker("REQUEST from a worker")
        else:
            self._invalid(f"worker command {command[:8]!r} with {len(rest)} frames")

    def _reply(self, rest: list[bytes]) -> None:
        """A reply that did not take the fast path: client address, empty frame, body. The dialect ``guide-php`` has no empty frame."""
        # "The REPLY command SHALL contain precisely one client address frame ... followed by an empty (zero sized) frame."
        if self.dialect != GUIDE_DIGITS and (len(rest) < 2 or rest[1]):
            self.dialect = GUIDE_PHP
            self.has_fast_path = False
        self.slow_reply(rest[0], join(rest[1:] if self.dialect == GUIDE_PHP else rest[2:]), True)

    def _invalid(self, what: str) -> None:
        """ "The broker SHOULD respond to invalid messages by dropping them and treating that peer as invalid." """
        self.link.violation(ProtocolViolation(what))

    def send_final(self, request: Request, body: Body) -> None:
        last = body or EMPTY_FRAME
        # The envelope of a reply is the same as that of the request.
        self.link.send_pieces((request.ref, last), len(last))

    def deliver(self, worker: Worker, request: Request) -> None:
        self._token = token = request.token
        self._due = b"".join((REPLY, token, DELIMITER))
        body = request.body or EMPTY_FRAME
        head = REQUEST_DIGITS if self.dialect and self.dialect == GUIDE_DIGITS else REQUEST
        self.link.send_pieces((head, token, DELIMITER, body), len(body))

    def send_heartbeat(self, worker: Worker) -> None:
        self.link.send(HEARTBEAT_DIGITS if self.dialect == GUIDE_DIGITS else HEARTBEAT)

    def send_disconnect(self) -> None:
        self.link.send(DISCONNECT_DIGITS if self.dialect == GUIDE_DIGITS else DISCONNECT)

    def on_worker_expired(self, worker: Worker) -> None:
        """Sends DISCONNECT, which makes a worker register again. The Guide's Lua worker sends heartbeats only when it has heard nothing
        for 2,500 s, so it would wait for ever. Others get it a little earlier: an expired worker that sends a heartbeat gets it too."""
        if not self.finished:
            self.send_disconnect()
            self.finished = True
            self.broker.set_timer(ZOMBIE_TIME, self, ZOMBIE)
