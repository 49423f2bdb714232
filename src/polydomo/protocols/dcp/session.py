"""DCP v1 (DagBox Communication Protocol), the broker's side: metadata, chaining, and workers that ask for more while busy.

Every message is ``"" "DGBX"+01 type ...``. The type has 1 byte in the document and 4 bytes, little-endian, in DagBox itself. The broker
answers in the size that the connection used last. Peers that announced it (``wire.zmtp.extensions``) may also cancel requests, give back
single ones, and name a window. The other end is in ``ends.py``; docs/protocols/dcp.md describes the dialog.
"""

from math import ceil
from typing import Final

from polydomo.limits import JOURNAL_CLIENT_ID, MAX_SERVICE_NAME
from polydomo.model.broker_api import BrokerApi
from polydomo.model.outcomes import CLIENT_CANCELLED, CLIENT_TIMEOUT, read_failure
from polydomo.model.records import Request, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.session import ProtocolSession
from polydomo.model.tuning import AUTO, STRICT
from polydomo.model.window import set_window
from polydomo.wire.frames import DELIMITER, EMPTY_FRAME, Body, bounds, cut, frame, join, more, split
from polydomo.wire.link import Link

REGISTER: Final = 1
PING: Final = 2
PONG: Final = 3
REQUEST: Final = 4
REPLY: Final = 5
RECONNECT: Final = 6
GIVE_BACK: Final = 7  # extension, of a worker: it failed, and the request is to be tried again
CANCEL: Final = (
    8  # extension: a client cancels the request with this metadata; to a worker: the one with this address is cancelled
)
WITHIN: Final = 9  # extension, to a worker: a request, and the milliseconds that are left for it
CREDIT: Final = 10  # extension, of a worker: its window, and how many requests it runs at once
REVOKE: Final = 11  # extension, to a worker: another one could start the request with this address now
RELEASED: Final = 12  # extension, of a worker: it will not run the request with this address
KEPT: Final = 13  # extension, of a worker: it has started the request that was revoked
FAIL: Final = 14  # extension, of a worker: it failed, and another attempt cannot succeed
EXPIRED = b"timeout"  # last frame of a CANCEL whose deadline passed
NAMES = ("", "registration", "ping", "pong", "request", "reply", "reconnect")

PROTOCOL = b"DGBX\x01"  # "the characters `DGBX` followed by an unsigned 8-bit number describing the supported version"
TYPE_SIZES = (1, 4)

OWN_ADDRESS = b"broker"  # the address part of a reply of the broker itself
SHORT = [bytes((1, size)) for size in range(256)]  # the head of a short frame with more to follow


class DcpConstants:
    """The fixed bytes of a dialog, for one size of the type."""

    def __init__(self, size: int) -> None:
        header = more([b"", PROTOCOL])
        self.size = size
        self.register = header + frame(REGISTER.to_bytes(size, "little"), True)
        self.request = header + frame(REQUEST.to_bytes(size, "little"), True)
        self.cancel = header + frame(CANCEL.to_bytes(size, "little"), True)
        self.within = header + frame(WITHIN.to_bytes(size, "little"), True)
        self.revoke = header + frame(REVOKE.to_bytes(size, "little"), True)
        self.reply = header + frame(REPLY.to_bytes(size, "little"), True)
        self.ping = header + frame(PING.to_bytes(size, "little"), False)  # "header-only"
        self.pong = header + frame(PONG.to_bytes(size, "little"), False)
        self.reconnect = header + frame(RECONNECT.to_bytes(size, "little"), False)
        self.length = len(self.ping)  # of every header


ONE_BYTE = DcpConstants(1)
FOUR_BYTES = DcpConstants(4)


class Passed:
    """``Request.ref`` of a chain in which a worker changed the metadata: the next worker sees the changed metadata ("The broker MUST NOT
    modify these parts"), and the client gets its own back."""

    def __init__(self, client: bytes, onward: bytes) -> None:
        self.client = client
        self.onward = onward


def metadata_end(data: bytes, position: int) -> int:
    """The position of the metadata delimiter, the first empty frame from ``position`` on; -1 if there is none."""
    while True:
        flags = data[position]
        if flags < 2:
            size = data[position + 1]
            if not size:
                return position
            position += 2 + size
        else:
            start, position, _ = bounds(data, position)
            if start == position:
                return -1  # an empty frame in the long form, which must first be converted to the short form
        if not flags & 1:
            return -1


class DcpSession(ProtocolSession):
    """One DCP connection, a client and possibly a worker. ``Request.ref`` is its metadata frames unchanged, or ``Passed``."""

    protocol = "dcp"
    has_client_ids = True

    worker: Worker | None = None  # the registered worker; kept after its loss, to recognise late replies

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(broker, link)
        self.words = ONE_BYTE
        self.windowed = False  # the worker has named a window: its pings are only heartbeats

    # --- from the peer

    def on_message(self, data: bytes, start: int, end: int) -> None:
        words = self.words
        if data.startswith(words.request, start):
            service = start + words.length
            if data[service] == 1:
                mark = service + 2 + data[service + 1]
                if data.startswith(DELIMITER, mark):  # no address: the peer's own request
                    last = metadata_end(data, mark + 2)
                    if last >= 0:
                        worker = self.worker
                        if worker is not None:
                            worker.last_heard = self.broker.now
                        body = cut(data, last + 2, end) if data[last] else b""
                        self.broker.request(self, data[service + 2 : mark], body, data[mark + 2 : last])
                        return
                elif data[mark] == 1:
                    delimiter = mark + 2 + data[mark + 1]
                    if data.startswith(DELIMITER, delimiter):
                        last = metadata_end(data, delimiter + 2)
                        if last >= 0:
                            body = cut(data, last + 2, end) if data[last] else b""
                            token = data[mark + 2 : delimiter]
                            self._pass_on(token, data[service + 2 : mark], data[delimiter + 2 : last], body)
                            return
        elif data.startswith(words.reply, start):
            address = start + words.length
            if data[address] == 1 and data[address + 1]:
                mark = address + 2 + data[address + 1]
                if data.startswith(DELIMITER, mark):
                    last = metadata_end(data, mark + 2)
                    if last >= 0:
                        body = cut(data, last + 2, end) if data[last] else b""
                        worker = self.worker
                        if worker is None:
                            self._invalid("a reply from a peer that is not registered")
                            return
                        worker.last_heard = self.broker.now
                        # The client's metadata is restored from the broker's record, not from the worker's copy.
                        self.broker.final(worker, data[address + 2 : mark], body)
                        return
        elif data.startswith(words.ping, start) and end - start == words.length:
            self._ping()
            return
        self._slow_path(data[start:end])

    def _pass_on(self, token: bytes, service: bytes, metadata: bytes, body: Body) -> None:
        """A request with an address. "This part is optional for clients": it may be the peer's own. Otherwise a worker responds "with a
        request for another service to complete the rest". From anyone but the worker that holds that very request, another address
        would redirect replies."""
        worker = self.worker
        broker = self.broker
        held = worker.held.get(token) if worker is not None else None
        if held is None and token == self.link.identity:
            if worker is not None:
                worker.last_heard = broker.now
            broker.request(self, service, body, metadata)
            return
        if worker is None:
            self._invalid("a request with the address of another client")
            return
        worker.last_heard = broker.now
        ref: object = None
        if held is not None:
            ref = held.ref
            if isinstance(held.session, DcpSession):
                if isinstance(ref, Passed):
                    ref = Passed(ref.client, metadata)
                elif isinstance(ref, bytes) and ref != metadata:
                    ref = Passed(ref, metadata)
        if not broker.forward(worker, token, service, body, ref):
            # The worker may have lost the request a moment ago, so it stays registered.
            broker.report_violation(self, "a request with a client address that this worker does not hold")

    def _ping(self) -> None:
        worker = self.worker
        broker = self.broker
        if worker is None or not worker.alive:
            # "If the broker receives a heartbeat message from a worker that is not registered for any service, the broker MUST
            # respond with a reconnect message."
            self.link.send(self.words.reconnect)
            return
        broker.heartbeat(worker)
        worker.last_sent = broker.now
        self.link.send(self.words.pong)  # "The broker MUST respond to every ping message with a pong message."
        held = len(worker.held)
        if held and not self.windowed and held + worker.credit < broker.tuning.dcp_max_held:
            broker.add_credit(worker, 1)  # "Respond with a heartbeat to ask for more work"

    def _slow_path(self, message: bytes) -> None:
        """The slow path: registrations, the other type size, invalid messages, and frames in a longer form than necessary."""
        frames = split(message)
        plain = join(frames)
        if plain != message:
            self.on_message(plain, 0, len(plain))
            return
        if len(frames) < 3 or frames[0] or frames[1] != PROTOCOL:
            self._invalid(f"not a DCP v1 header: {[part[:16] for part in frames[:2]]!r}")
            return
        count = len(frames)
        size = len(frames[2])
        kind = int.from_bytes(frames[2], "little") if size in TYPE_SIZES else 0
        if kind == GIVE_BACK and count == 4 and self.link.extensions.give_back and self.worker is not None:
            self.broker.give_back(self.worker, frames[3], "the worker failed")
        elif kind == FAIL and count == 6 and self.link.extensions.fail and self.worker is not None:
            self.broker.fail(self.worker, frames[3], *read_failure(frames[4], frames[5]))
        elif kind == CANCEL and 4 <= count <= 5 and self.link.extensions.cancel:
            self._cancel(frame(frames[3], True), frames[-1] == EXPIRED)
        elif CREDIT <= kind <= KEPT and kind != REVOKE and self.link.extensions.window:
            self._credit_message(kind, frames)
        elif not REGISTER <= kind <= RECONNECT:
            self._invalid(f"message type {frames[2][:16]!r}")
        elif size != self.words.size:
            self.words = ONE_BYTE if size == 1 else FOUR_BYTES
            self.on_message(plain, 0, len(plain))
        elif kind == REGISTER and len(frames) == 4:
            self._register(frames[3])
        elif kind in (PONG, RECONNECT):
            self._invalid(f"a {NAMES[kind]}, which only the broker may send")
        else:
            self._invalid(f"an invalid {NAMES[kind]} of {len(frames)} parts")

    def _cancel(self, metadata: bytes, expired: bool) -> None:
        """The client does not wait for the reply any more."""
        self.link.charge(len(self.requests) >> 4)
        for request in self.requests:
            ref = request.ref
            if (ref.client if isinstance(ref, Passed) else ref) == metadata:
                self.broker.cancel(request, CLIENT_TIMEOUT if expired else CLIENT_CANCELLED, expired)
                return

    def _credit_message(self, kind: int, frames: "list[bytes]") -> None:
        worker = self.worker
        if len(frames) != (5 if kind == CREDIT else 4):
            self._invalid(f"message type {kind} of {len(frames)} parts")
        elif worker is None or not worker.alive:
            return  # its registration was refused, or it was declared lost: its next ping is answered with reconnect
        else:
            worker.last_heard = self.broker.now
            if kind == RELEASED:
                self.broker.release(worker, frames[3])
                return
            if kind == KEPT:
                self.broker.kept(worker, frames[3])
                return
            self.windowed = True
            if not set_window(self.broker, worker, frames[3], frames[4]):
                self._invalid("a window that is not two numbers")

    def _register(self, service: bytes) -> None:
        broker = self.broker
        worker = self.worker
        if len(service) > MAX_SERVICE_NAME:
            self._invalid(f"a service name of {len(service)} bytes")
            return
        echo = self.words.register + frame(service, False)
        # Credit follows the echo, so that the confirmation is the first message after a registration.
        if worker is None or not worker.alive:
            tuning = broker.tuning
            # "Workers MUST periodically send heartbeat messages". DagBox's own worker, whose type has four bytes, cannot while it works.
            strict = tuning.dcp_busy == STRICT or (tuning.dcp_busy == AUTO and self.words is ONE_BYTE)
            terms = WorkerTerms(auto_credit=1, max_silence=tuning.dcp_beat * tuning.beats_missed, strict=strict)
            registered = broker.register_worker(self, [service], None, terms)
            if isinstance(registered, Refusal):
                # "If the registration is successful, the broker will confirm it": otherwise nothing is sent.
                broker.report_refusal(self, "registration", registered)
                return
            self.worker = worker = registered
            self.windowed = False
            credit = 1
        else:
            worker.last_heard = broker.now
            credit = worker.credit
            if service not in [known.name for known in worker.services]:
                broker.clear_credit(worker)
                refusal = broker.add_service(worker, service)
                if refusal is not None:
                    broker.report_refusal(self, "registration", refusal)
                    if credit:
                        broker.add_credit(worker, credit)
                    return
            else:
                credit = 0
        worker.last_sent = broker.now
        self.link.send(echo)
        if credit:
            broker.add_credit(worker, credit)

    def _invalid(self, what: str) -> None:
        """Drops the message. A worker that violates the format may never answer its requests, so it is unregistered, and its next ping is
        answered with reconnect."""
        self.broker.report_violation(self, what)
        worker = self.worker
        if worker is not None and worker.alive:
            self.broker.worker_left(worker, what)

    # --- to a client

    def send_final(self, request: Request, body: Body) -> None:
        ref = request.ref
        metadata = ref if isinstance(ref, bytes) else ref.client if isinstance(ref, Passed) else b""
        # A client that has chosen an identity knows it as its address; another gets the address that its worker used.
        address = self.link.identity or request.token or OWN_ADDRESS
        envelope = self.words.reply + SHORT[len(address)] + address + DELIMITER + metadata
        if body:
            self.link.send_pieces((envelope, DELIMITER, body), len(body))
        else:
            self.link.send(envelope, EMPTY_FRAME)

    def client_id_of(self, request: Request) -> bytes:
        ref = request.ref
        metadata = ref.client if isinstance(ref, Passed) else ref if isinstance(ref, bytes) else b""
        parts: list[bytes] = []
        at = 0
        while at < len(metadata) and at <= 3 * JOURNAL_CLIENT_ID:
            start, at, _ = bounds(metadata, at)
            parts.append(metadata[start:at])
        return b" ".join(parts)

    def headers_of(self, request: Request) -> bytes:
        ref = request.ref
        return ref if isinstance(ref, bytes) else ref.onward if isinstance(ref, Passed) else b""

    # --- to a worker

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        if self.link.extensions.cancel_jobs:
            self.link.send(self.words.cancel + frame(request.token, False))
        return False  # it holds the request until it answers or gives it back

    def revoke_request(self, worker: Worker, request: Request) -> None:
        self.link.send(self.words.revoke + frame(request.token, False))

    def deliver(self, worker: Worker, request: Request) -> None:
        metadata = b""  # a client of another protocol has none; an attempt of a durable job has its mark
        if isinstance(request.session, DcpSession):
            metadata = self.headers_of(request)
        elif request.session.is_internal or request.session.is_sibling:
            job = request.session.job_of(request)
            mark = job.mark() if job is not None else b""
            metadata = SHORT[len(mark)] + mark if mark else request.session.headers_for(request, self.protocol)
        service = request.service.name
        token = request.token
        words = self.words.request
        if request.time_limits is not None and self.link.extensions.deadline_jobs:
            left = request.time_left(self.broker.now)
            if left:
                words = self.words.within + frame(b"%d" % ceil(left * 1000 - 0.01), True)
        envelope = words + SHORT[len(service)] + service + SHORT[len(token)] + token + DELIMITER + metadata
        body = request.body
        if body:
            self.link.send_pieces((envelope, DELIMITER, body), len(body))
        else:
            self.link.send(envelope, EMPTY_FRAME)
