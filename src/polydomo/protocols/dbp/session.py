"""DBP, the Core Catalog Service's protocol, as the broker speaks it: ``"" command time [body]``.

    client -> broker    u_U names                 broker -> client    o_O {name: information}
    service -> broker   UwU {information}         broker -> service   OwO [{changes}] or (O_O) reason
                        UoU {name, changes}                           u.u [{timing}] or (O_O) reason
                        <3 name                                       u.u
                        </3 [name]                                    (nothing)
                        u.u                                           (nothing)
    broker -> service   u_U body                  service -> broker   o_O body or (O_O) reason

It fills and reads the catalog. A service that says so takes requests: "B: REQUEST, S: REPLY", one at a time. Each peer is answered with
the kind of time it used, and every answer has a body frame, since the published receivers need one. docs/protocols/dbp.md has the tables.
"""

import json
import math
import struct
from typing import Final

from polydomo.limits import (
    BIG_BODY,
    MAX_CATALOG_INFO,
    MAX_FUNCTIONS,
    MAX_LISTED,
    MAX_VALUES_ANSWER,
    WORK_MESSAGE,
    WORK_ROW,
    ZOMBIE_TIME,
)
from polydomo.model import peer_json
from polydomo.model.broker_api import BrokerApi
from polydomo.model.outcomes import FAILED, read_failure
from polydomo.model.records import Request, Worker
from polydomo.model.session import ProtocolSession
from polydomo.protocols.dbp.info import ERROR, FUNCTION, VALUES, timing, values_to_json, wrong_name
from polydomo.wire import frames
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import Body
from polydomo.wire.link import Link
from polydomo.wire.zmtp.link import ZmtpLink

INFO_REQUEST = b"u_U"
INFO_REPLY = b"o_O"
REGISTRATION = b"UwU"
UPDATE = b"UoU"
APPROVED = b"OwO"
DENIED = b"(O_O)"
CATALOG = "polydomo.catalog"  # name of the right to look up services
DENIED_SEEN = b"OmO"  # the published code's DENIED
HEARTBEAT = b"<3"
DISCONNECT = b"</3"
EXIT_SEEN = b"<\\3"  # the published code's exit
ACKNOWLEDGE = b"u.u"

COMMANDS = frozenset(
    (
        INFO_REQUEST,
        INFO_REPLY,
        REGISTRATION,
        UPDATE,
        APPROVED,
        DENIED,
        DENIED_SEEN,
        HEARTBEAT,
        DISCONNECT,
        EXIT_SEEN,
        ACKNOWLEDGE,
    )
)  # frame 1 of every message, by which DBP is detected on the shared port

REQUEST_START = frames.more([b"", INFO_REQUEST])  # the command, and then the time
REPLY_START = frames.more([b"", INFO_REPLY])

# the kinds of time
FLOAT: Final = "float"
DOUBLE: Final = "double"
DECIMAL: Final = "decimal"
WHOLE: Final = "whole"

MAX_TIME_FRAME = 32  # bytes of a decimal time; "1794724735.6532495" has 18


def kind_of_time(content: bytes) -> str:
    """The format of a "current epoch time"; "" if it is invalid. The published code uses only a native 4-byte float."""
    if len(content) == 4:
        return FLOAT if math.isfinite(struct.unpack("=f", content)[0]) else ""
    if len(content) == 8:
        return DOUBLE if math.isfinite(struct.unpack("=d", content)[0]) else ""
    if not content or len(content) > MAX_TIME_FRAME or not content.isascii():
        return ""
    text = content.decode("ascii")
    if text.isdigit():
        return WHOLE
    whole, point, part = text.partition(".")
    return DECIMAL if point and (whole + part).isdigit() else ""


def write_time(seconds: float, kind: str) -> bytes:
    if kind == DOUBLE:
        return struct.pack("=d", seconds)
    if kind == DECIMAL:
        return b"%.6f" % seconds
    if kind == WHOLE:
        return b"%d" % seconds
    return struct.pack("=f", seconds)


def host_of(peer: str) -> str:
    """The IP address of a link's peer: "tcp://192.0.2.1:5678" or "tcp://[::1]:5678". Peers on local sockets count as this machine."""
    scheme, _, rest = peer.rpartition("://")
    if scheme == "ipc":
        return "127.0.0.1"
    host, colon, _ = rest.rpartition(":")
    host = (host if colon else rest).strip("[]")
    return host[7:] if host.startswith("::ffff:") and "." in host else host  # IPv4 on an IPv6 listener


class DbpSession(ProtocolSession):
    """A connection of a client or a service. A registration outlives its connection, because the published client registers on a REQ socket
    and closes it."""

    protocol = "dbp"

    def __init__(self, broker: BrokerApi, link: Link, called: str = "") -> None:
        super().__init__(broker, link)
        self.address = host_of(link.peer)
        self.called = called  # the service that the broker connected to, at the address that it registered
        self.time = DOUBLE  # the time format of the peer
        self.name = called  # the service that registered on this connection
        self.worker: Worker | None = (
            None  # of that service, if it takes requests; kept after its loss, to recognise late replies
        )
        self.token = b""  # of the request that the peer has not answered yet
        self.interval = 0.0  # its agreed heartbeat interval, at which the broker also sends heartbeats
        self.beating = False  # a timer for our next heartbeat is running
        self.last_sent = 0.0  # time of our last message
        self.ended = False  # the dialog has ended: nothing more is sent, and messages are ignored

    def on_message(self, data: bytes, start: int, end: int) -> None:
        if self.ended:
            return
        if self.token and data.startswith(REPLY_START, start):
            at, after, flags = frames.bounds(data, start + len(REPLY_START))
            if self._is_time(data[at:after]):
                self._reply(frames.cut(data, after, end) if flags & frames.MORE else b"")
            return
        message = frames.split(data[start:end])
        if len(message) < 3 or message[0] or message[1] not in COMMANDS:
            self._invalid("not a DBP message")
            return
        if not self._is_time(message[2]):
            return
        command = message[1]
        body = message[3:]
        # "Any received command except DISCONNECT acts as a heartbeat."
        if self.name and command not in (DISCONNECT, EXIT_SEEN):
            self.broker.directory.heartbeat(self.name, self.address)
        if command == INFO_REQUEST:
            self._info(body)
        elif command == REGISTRATION:
            self._register(body)
        elif command == UPDATE:
            self._update(body)
        elif command == HEARTBEAT:
            self._heartbeat(body)
        elif command in (DISCONNECT, EXIT_SEEN):
            self._disconnect(body)
        elif command == ACKNOWLEDGE and self.name:
            pass  # it acknowledges a heartbeat of ours
        elif command == INFO_REPLY and self.token:
            self._reply(frames.join(body))
        elif command in (DENIED, DENIED_SEEN) and self.token:
            self._refused(body)
        else:
            self._unexpected(command)

    def _is_time(self, content: bytes) -> bool:
        kind = kind_of_time(content)
        if kind:
            self.time = kind
        else:
            self._invalid(f"an invalid time frame of {len(content)} bytes")
        return bool(kind)

    # --- DBP/Info Request ------------------------------------------------------------------------------------------------------

    def _info(self, body: "list[bytes]") -> None:
        """ "either a specified services name or a list of currently active services available" """
        parts = [part.decode(errors="replace") for part in body]
        asked = ",".join(part for part in parts if not part.startswith(FUNCTION))
        functions = [part.removeprefix(FUNCTION) for part in parts if part.startswith(FUNCTION)]
        size = sum(map(len, parts))
        if size > MAX_CATALOG_INFO or len(functions) > MAX_FUNCTIONS:
            self._invalid(f"an info request of {size} characters for {len(functions)} functions")
            return
        names = dict.fromkeys(name.strip() for name in asked.split(",") if name.strip())
        if functions or any(not name.startswith(VALUES) for name in names) or not names:
            why = self.broker.denial(self, "inspect", CATALOG)
            if why:
                self._say(DENIED, why.encode("utf-8", "replace"))
                return
        if not names and not functions:
            self._say(INFO_REPLY, self.broker.directory.page())
            return
        found: list[str] = []
        if functions:
            directory = self.broker.directory
            self.link.charge(WORK_ROW * directory.size() >> 2)
            for name, row in directory.with_functions(functions).items():
                names.pop(name, None)
                found.append(f"{json.dumps(name)}: {row}")
        room = MAX_VALUES_ANSWER  # for all names together
        for name in [name for name in names if name.startswith(VALUES)]:
            del names[name]
            prefix = name.removeprefix(VALUES).encode(errors="replace")
            values, room = values_to_json(self.broker.last_values(self, prefix, MAX_LISTED), room)
            found.append(f"{json.dumps(name)}: {json.dumps(values)}")
        missing: list[str] = []
        for name in names:
            text = self.broker.directory.text_of(name)
            if text is None:
                missing.append(name)
            else:
                found.append(f"{json.dumps(name)}: {text}")
        if missing:
            # "Information that is not available should be responded with by an inactive warning."
            warning = "No Registered Service With the Name " + ", ".join(missing)
            found.append(f"{json.dumps(ERROR)}: {json.dumps(warning)}")
        self.link.charge(WORK_ROW * len(names) + (MAX_VALUES_ANSWER - room >> 6))
        self._say(INFO_REPLY, f"{{{', '.join(found)}}}".encode())

    # --- DBP/Service Registration ----------------------------------------------------------------------------------------------

    def _register(self, body: "list[bytes]") -> None:
        info = _read_object(body)
        if info is None:
            self._say(DENIED, b"service information must be a JSON object")
            return
        name = info.get("name")
        wrong = wrong_name(name)
        if wrong or not isinstance(name, str):
            self._say(DENIED, wrong.encode())
            return
        if self.name and name != self.name:
            self._unexpected(REGISTRATION)  # "The service node MUST NOT send a further READY."
            return
        interval = timing(info, self.broker.tuning.dbp_beat)
        if interval is None:
            self._say(DENIED, b"the heartbeat interval must be a number of seconds above 0")
            return
        if self.token and (self.worker is None or not self.worker.alive):
            # It was lost with a request that it may still answer. On a new connection, its late reply cannot be taken for another.
            self._unexpected(REGISTRATION)
            return
        denial = self.broker.directory.register(self, name, self.address, info, interval)
        if denial:
            self._say(DENIED, denial.encode("utf-8", "replace"))
            return
        self.name = name
        agreed = self.broker.directory.interval(name)
        self._agree(agreed)
        # "Optional configuration changes"
        self._say(APPROVED, _timing(agreed))
        self.broker.directory.begin_requests()

    def _update(self, body: "list[bytes]") -> None:
        changes = _read_object(body)
        if changes is None:
            self._say(DENIED, b"updated values must be a JSON object")
            return
        name = changes.get("name", self.name)
        if not isinstance(name, str) or not name:
            self._say(DENIED, b"an update must contain the service's name")
            return
        denial = self.broker.directory.update(self, name, self.address, changes)
        if denial:
            self._say(DENIED, denial.encode("utf-8", "replace"))
            return
        agreed = self.broker.directory.interval(name)
        if name == self.name:
            self._agree(agreed)
        self._say(ACKNOWLEDGE, _timing(agreed))
        self.broker.directory.begin_requests()

    # --- requests to a service -------------------------------------------------------------------------------------------------

    def on_open(self) -> None:
        """The broker connected to a service at the address that it registered."""
        if not self.called:
            return
        directory = self.broker.directory
        refusal = directory.serve(self, self.called)
        if refusal:
            self.link.close(CloseCause.REFUSED, refusal)
            return
        self._agree(directory.interval(self.called))
        directory.begin_requests()

    def can_deliver(self) -> bool:
        """A REQ socket would take a request for the reply to its next question. A connection whose last request is not answered gets no
        worker either: its late reply could be taken for that of the next request."""
        return not self._is_req() and not self.ended and (not self.token or self._is_worker())

    def on_service_worker(self, worker: Worker) -> None:
        self.worker = worker

    def deliver(self, worker: Worker, request: Request) -> None:
        """ "B: REQUEST": the frames of the document's REQUEST, with the body of the request as the last ones."""
        self.token = request.token
        self.last_sent = self.broker.now
        body = request.body or frames.EMPTY_FRAME
        moment = write_time(self.broker.now + self.broker.wall, self.time)
        self.link.send_pieces((REQUEST_START, frames.frame(moment, True), body), len(body))

    def _reply(self, body: Body) -> None:
        """ "S: REPLY": to the one request that was sent and not answered."""
        worker, token = self.worker, self.token
        self.token = b""
        known = self.broker.directory.heartbeat(self.name, self.address)
        if worker is not None:
            self.broker.final(worker, token, body)  # recorded as stale if the worker was lost
        if not known:
            self._unexpected(INFO_REPLY)  # DISCONNECT makes it register again

    def _refused(self, reasons: "list[bytes]") -> None:
        """A service answers a request with DENIED: it failed. "Frame 3+: Reasons for denial": a code and a text, or the text alone."""
        worker, token = self.worker, self.token
        self.token = b""
        code, reason = (reasons[0], reasons[1]) if len(reasons) > 1 else (FAILED.encode(), b"".join(reasons))
        if worker is not None:
            self.broker.fail(worker, token, *read_failure(code, reason))
        if not self.broker.directory.heartbeat(self.name, self.address):
            self._unexpected(DENIED)

    def _is_worker(self) -> bool:
        return self.worker is not None and self.worker.alive

    def dismiss(self, worker: Worker) -> None:
        if not self.ended:
            self._say(DISCONNECT, b"")
            self.ended = True
            self.broker.set_timer(ZOMBIE_TIME, self, DISCONNECT)

    # --- DBP/Heartbeats ----------------------------------------------------------------------------------------------------------

    def _heartbeat(self, body: "list[bytes]") -> None:
        name = (body[0].decode(errors="replace") if body else "") or self.name
        if name and self.broker.directory.heartbeat(name, self.address):
            self._say(ACKNOWLEDGE, b"")
        else:
            self._unexpected(HEARTBEAT)  # "HEARTBEAT commands are valid at any time, after a READY command."

    def _disconnect(self, body: "list[bytes]") -> None:
        """ "When the broker receives DISCONNECT from a service node it MUST send no further commands to that service node." """
        name = (body[0].decode(errors="replace") if body else "") or self.name
        if name and (name == self.name or not self.broker.denial(self, "register", name)):
            self.broker.directory.remove(name, self.address, "DISCONNECT")
        self._end()

    def _agree(self, interval: float) -> None:
        """ "Both broker and worker MUST send heartbeats at regular and agreed-upon intervals." Not to a REQ socket, which would take a
        heartbeat for the reply to its next request."""
        if self._is_req():
            return
        self.interval = interval
        if interval and not self.beating:
            self.beating = True
            self.broker.set_timer(interval, self, HEARTBEAT)

    def on_timer(self, key: object) -> None:
        if key != HEARTBEAT:
            self.link.close(CloseCause.AFTER_DISCONNECT)
            return
        self.beating = False
        # "If the broker detects that the worked has disconnected, it SHOULD stop sending it messages of any type."
        if self.ended or not self.interval or self.broker.directory.lookup(self.name) is None:
            return
        self.beating = True
        wait = self.last_sent + self.interval - self.broker.now
        if wait <= 0:
            if not self.broker.directory.beats_by_udp(self.name):  # otherwise it receives our broadcast
                self._say(HEARTBEAT, self.name.encode())
            wait = self.interval
        self.broker.set_timer(wait, self, HEARTBEAT)

    def probe(self, name: str) -> None:
        """ "In the event of a missing beat, heartbeats will switch over to reliable TCP connections": any answer is a beat."""
        if self.interval and name == self.name and not self.ended:
            self._say(HEARTBEAT, name.encode())

    def dismiss_service(self, name: str) -> None:
        """ "The broker MAY send DISCONNECT at any time": not to a REQ socket, which would take it for the reply to its next request."""
        if name == self.name and not self.ended and not self._is_req():
            self._say(DISCONNECT, b"")
            self.ended = True

    def _is_req(self) -> bool:
        link = self.link
        return isinstance(link, ZmtpLink) and link.peer_type == b"REQ"

    # --- violations ------------------------------------------------------------------------------------------------------------

    def _unexpected(self, command: bytes) -> None:
        """ "The broker MUST respond to any valid but unexpected command by sending DISCONNECT and then no further commands" """
        self.broker.report_violation(self, f"unexpected {command.decode()}")
        self._say(DISCONNECT, b"")
        self._end()

    def _invalid(self, what: str) -> None:
        """ "The broker SHOULD respond to invalid messages by dropping them and treating that peer as invalid." """
        self.broker.report_violation(self, what)
        self._end()

    def _end(self) -> None:
        self.ended = True
        if self.worker is not None and self.worker.alive:
            self.broker.worker_left(self.worker, "the dialog ended")
        self.broker.set_timer(ZOMBIE_TIME, self, DISCONNECT)

    def _say(self, command: bytes, body: bytes) -> None:
        self.last_sent = self.broker.now
        moment = write_time(self.broker.now + self.broker.wall, self.time)
        self.link.charge(WORK_MESSAGE + (len(body) >> 6))
        if len(body) < BIG_BODY:
            self.link.send(frames.join([b"", command, moment, body]))
        else:  # one object shared by all clients, not copied
            self.link.send(frames.more([b"", command, moment]) + frames.head(len(body), False), body)


def _timing(interval: float) -> bytes:
    """The agreed heartbeat interval, as the body of an answer."""
    return json.dumps({"heartbeat": interval}).encode() if interval else b""


def _read_object(body: "list[bytes]") -> "dict[str, object] | None":
    """A JSON object; "Frame 3+": in several frames if need be."""
    content = b"".join(body)
    if len(content) > 4 * MAX_CATALOG_INFO:  # room for spaces and escapes; the catalog limits the content
        return None
    try:
        document = peer_json.read(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
