"""MDX ("Protocol 0.1 (Draft)"), the broker's side: request ids, concurrent requests, PARTIAL and FINAL, PING and PONG.

The draft does not define frame 0; ours is ``MDXC01`` for clients and ``MDXW01`` for workers, and both are settings. One
connection may be a client, a worker, or both. Peers that announced it (``wire.zmtp.extensions``) may also use deadlines, cancellation and
credit. The commands are in ``commands.py``, the other end in ``ends.py``; docs/protocols/mdx.md describes the dialog,
docs/protocols/extensions.md the extensions.
"""

from math import ceil

from polydomo.model.broker_api import BrokerApi
from polydomo.model.outcomes import CLIENT_CANCELLED, CLIENT_TIMEOUT, REFUSED, read_failure
from polydomo.model.progress import read_share, read_text, write_share, write_text
from polydomo.model.records import Request, Worker
from polydomo.model.request_options import GROUP, NEAR, PLAIN, RequestOptions, mark_fault
from polydomo.model.window import set_window
from polydomo.protocols.mdp.single_worker import SingleWorkerSession
from polydomo.protocols.mdx.commands import (
    CANCEL,
    CREDIT,
    DELIMITER_AND_MORE,
    DISCONNECT,
    DISCONNECT_HEADER,
    EXPIRED,
    FAILURE,
    KEPT,
    KEY,
    KEYED,
    LEAVE,
    MAX_OPTIONS,
    MAX_WITHIN,
    PONG,
    PROGRESS,
    READY,
    RELEASED,
    REQUEST,
    SHORT,
    TIME,
    TOKEN_FRAME,
    WITH,
    WITHIN,
    WORK,
    WORKER_FINAL,
    WORKER_PARTIAL,
    words_for,
)
from polydomo.wire.frames import DELIMITER, EMPTY_FRAME, Body, cut, end_of_last, frame, join, split
from polydomo.wire.link import Link


def _job_identity(request: Request, otherwise: bytes) -> bytes:
    """The id frame of an attempt of a job: a mark with the job's id and key; a worker returns it unread, or uses it."""
    job = request.session.job_of(request)
    mark = job.mark() if job is not None else b""
    return SHORT[len(mark)] + mark if mark else otherwise


class MdxSession(SingleWorkerSession):
    """One MDX connection. ``Request.ref`` is the request's service and id frames, which the replies' envelope repeats."""

    protocol = "mdx"
    takes_partials = True
    has_fast_path = True
    deadline_is_patience = True
    has_client_ids = True

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(broker, link)
        tuning = broker.tuning
        self.words = words_for(tuning.mdx_client_header, tuning.mdx_worker_header)
        self.extended = link.extensions  # what the peer understands
        self.ids: dict[bytes, Request | None] = {}  # id frames of open requests; None: it cannot cancel
        self._asked = (
            b""  # cache of the envelope of the last request before its id, because most requests have the same
        )
        self._named = 0  # where in it the service begins
        self._within = 0.0  # the deadline in it, in seconds; 0: none
        self._options = PLAIN  # the options in it
        self._service = b""
        self._due = b""  # expected envelope of the FINAL for the last dispatched request
        self._token = b""  # of that attempt
        self._milliseconds = 0  # of the last request that was delivered with a deadline, and its first frames
        self._within_work = b""

    # --- from the peer

    def fast_path(self, data: bytes, start: int, size: int) -> int:
        """The fast path: a FINAL, or requests for the same service as before, each with a body of one frame."""
        worker = self.worker
        if self.finished:
            return start
        if worker is not None:
            if worker.auto_credit > 1:
                return self._finals(worker, data, start, size)
            body = start + len(self._due)
            if body + 2 <= size and data[start:body] == self._due and worker.alive:
                end = (
                    body + 2 + data[body + 1]
                    if data[body] == 0
                    else end_of_last(data, body, size, self.link.fast_path_size)
                )
                if end <= size:
                    worker.last_heard = self.broker.now
                    self.broker.final(worker, self._token, data[body:end])
                    return end
            return start
        asked = self._asked
        length = len(asked)
        ids = self.ids
        deadline = self.broker.now + self._within if self._within else 0.0
        while length:
            mark = start + length
            if mark + 2 > size or data[start:mark] != asked or data[mark] != 1:
                break
            body = mark + 2 + data[mark + 1]
            end = end_of_last(data, body, size, self.link.fast_path_size)
            identity = data[mark:body]
            if end > size or len(identity) == 2 or identity in ids:
                break
            ids[identity] = None
            ref = data[start + self._named : body]
            request = self.broker.request(self, self._service, data[body:end], ref, deadline, self._options)
            if request is None or self.extended.cancel:
                self._asked_for(identity, ref, request)
            start = end
            if self.link.state or self.link.pauses:
                break
        return start

    def _finals(self, worker: Worker, data: bytes, start: int, size: int) -> int:
        """FINALs of a worker with credit, in any order, each with a token of ours, an id in a short frame and a body of one frame."""
        words = self.words
        broker = self.broker
        link = self.link
        while worker.alive:
            token = start + words.worker_size
            mark = token + 14
            if (
                mark + 4 > size
                or not data.startswith(words.worker_final, start)
                or data[token : token + 2] != TOKEN_FRAME
                or data[mark : mark + 3] != DELIMITER_AND_MORE
                or not data[mark + 3]
            ):
                break
            body = mark + 4 + data[mark + 3]
            if body + 2 > size or data[body] & 1:
                break
            end = body + 2 + data[body + 1] if data[body] == 0 else end_of_last(data, body, size, link.fast_path_size)
            if end > size:
                break
            worker.last_heard = broker.now
            broker.final(worker, data[token + 2 : mark], data[body:end])
            start = end
            if link.state or link.pauses:
                break
        return start

    def on_message(self, data: bytes, start: int, end: int) -> None:
        if self.finished:
            return
        words = self.words
        if data.startswith(words.request, start):
            service = start + words.request_size
            if data[service] == 1 and data[service + 1]:
                mark = service + 2 + data[service + 1]
                if data[mark] == 1 and data[mark + 1]:
                    body = mark + 2 + data[mark + 1]
                    identity = data[mark:body]
                    ids = self.ids
                    if identity in ids:
                        return  # "each request has a unique id": a repeat is the same request, and is answered once
                    ids[identity] = None
                    worker = self.worker
                    if worker is not None:
                        worker.last_heard = self.broker.now
                    ref = data[service:body]
                    self._asked = data[start:mark]
                    self._named = words.request_size
                    self._within = 0.0
                    self._options = PLAIN
                    self._service = data[service + 2 : mark]
                    request = self.broker.request(self, self._service, cut(data, body, end), ref)
                    self._asked_for(identity, ref, request)
                    return
        elif data.startswith(words.worker_final, start):
            if self._reply(data, start + words.worker_size, end, True):
                return
        elif data.startswith(words.worker_partial, start):
            if self._reply(data, start + words.worker_size, end, False):
                return
        elif data.startswith(words.ping, start) and end - start == words.ping_size:
            self._ping()
            return
        elif data.startswith(words.within, start) and self.extended.deadline:
            if self._request_within(data, start, end):
                return
        elif data.startswith(words.keyed, start) and self.extended.key:
            if self._request_keyed(data, start + words.keyed_size, end):
                return
        elif data.startswith(words.with_options, start) and self.extended.options:
            if self._request_with(data, start, end):
                return
        self._slow_path(data[start:end])

    def _reply(self, data: bytes, token: int, end: int, final: bool) -> bool:
        """PARTIAL and FINAL of a worker, from its client address frame on. False: not laid out as a reply."""
        if data[token] != 1 or not data[token + 1]:
            return False
        # "precisely one client address frame. This frame MUST be followed by an empty (zero sized) frame."
        mark = token + 2 + data[token + 1]
        if not data.startswith(DELIMITER, mark):
            return False
        # "precisely one request id frame. This frame MUST follow an empty (zero sized) frame"
        flags = data[mark + 2]
        size = data[mark + 3]
        if flags > 1 or not size:
            return False
        worker = self.worker
        broker = self.broker
        if worker is None:
            self.reject_worker("a reply before READY")
            return True
        worker.last_heard = broker.now
        body: Body = b""
        if flags:
            begin = mark + 4 + size
            if final and data.startswith(FAILURE, begin):
                report = split(data[begin:end])
                if len(report) == 4:
                    code, text = read_failure(report[2], report[3])
                    if not broker.fail(worker, data[token + 2 : mark], code, text) and not worker.alive:
                        self.reject_worker("a reply from a worker that was declared lost")
                    return True
            body = cut(data, begin, end)
        # The token identifies the attempt. The client's id is restored from the broker's record, not from the worker's copy.
        if final:
            known = broker.final(worker, data[token + 2 : mark], body)
        else:
            known = broker.partial(worker, data[token + 2 : mark], body)
        if not known and not worker.alive:
            self.reject_worker("a reply from a worker that was declared lost")
        return True

    def _ping(self) -> None:
        worker = self.worker
        if worker is None:
            self.reject_worker("PING before READY")  # "PING commands are valid at any time, after a READY command."
        elif not worker.alive:
            self.reject_worker("PING from a worker that was declared lost")
        else:
            # "The router MUST send PONG (or other non-DISCONNECT) as a response to a worker PING."
            self.broker.heartbeat(worker)
            worker.last_sent = self.broker.now
            self.link.send(self.words.pong)

    def _slow_path(self, message: bytes) -> None:
        """The slow path: READY, DISCONNECT, invalid messages, and frames in a longer form than necessary."""
        frames = split(message)
        plain = join(frames)
        if plain != message:
            self.on_message(plain, 0, len(plain))
            return
        count = len(frames)
        header = frames[0]
        command = frames[1] if count > 1 else b""
        words = self.words
        if count == 2 and command == LEAVE and header in (DISCONNECT_HEADER, words.worker):
            # "When the broker receives DISCONNECT from a worker it MUST send no further commands to that worker."
            self.end_worker("DISCONNECT from the worker")
        elif header == words.worker and command == READY and count == 3:
            tuning = self.broker.tuning
            self.on_ready(frames[2], tuning.mdx_beat, we_beat=False, busy=tuning.mdx_busy)
        elif header == words.worker and command == PONG and count == 2:
            self.reject_worker("PONG from a worker")
        elif header == words.worker and command == WORK and count > 4 and frames[2] and not frames[3] and frames[4]:
            self.reject_worker("REQUEST from a worker")
        elif header == words.client and command == WITHIN and self.extended.deadline:
            self._invalid(f"WITHIN of {count} frames that is not milliseconds, service, request id and body")
        elif header == words.client and command == KEYED and self.extended.key:
            self._invalid(f"KEYED of {count} frames that is not milliseconds, key, service, request id and body")
        elif header == words.client and command == WITH and self.extended.options:
            self._invalid(
                f"WITH of {count} frames that is not names and values, an empty frame, service, request id and body"
            )
        elif header == words.client and command == CANCEL and self.extended.cancel and 3 <= count <= 4:
            self._cancel(frames[2], count == 4 and frames[3] == EXPIRED)
        elif header == words.worker and command in (CREDIT, RELEASED, KEPT) and self.extended.credit:
            self._credit_command(command, frames)
        elif header == words.worker and command == PROGRESS and self.extended.progress:
            self._progress(frames)
        elif header not in (words.client, words.worker):
            self._invalid(f"frame 0 is {header[:16]!r}")
        elif command in (REQUEST, READY):
            self._invalid(self._wrong_start(frames))
        elif header == words.worker and command in (WORK, WORKER_PARTIAL, WORKER_FINAL):
            self._invalid("not client address, empty frame, request id after the command")
        else:
            self._invalid(f"command {command[:16]!r} with {count} frames and frame 0 {header[:16]!r}")

    # --- extensions

    def _request_within(self, data: bytes, start: int, end: int) -> bool:
        """WITHIN milliseconds service id body+: a REQUEST, and how long its client waits for the reply. False: not laid out as one."""
        time = start + self.words.within_size
        if data[time] != 1 or not 0 < data[time + 1] <= MAX_WITHIN:
            return False
        service = time + 2 + data[time + 1]
        digits = data[time + 2 : service]
        if not digits.isdigit() or data[service] != 1 or not data[service + 1]:
            return False
        mark = service + 2 + data[service + 1]
        if data[mark] != 1 or not data[mark + 1]:
            return False
        body = mark + 2 + data[mark + 1]
        identity = data[mark:body]
        ids = self.ids
        if identity in ids:
            return True
        ids[identity] = None
        worker = self.worker
        if worker is not None:
            worker.last_heard = self.broker.now
        self._asked = data[start:mark]
        self._named = service - start
        self._within = max(1, int(digits)) / 1000
        self._options = PLAIN
        self._service = data[service + 2 : mark]
        ref = data[service:body]
        deadline = self.broker.now + self._within
        self._asked_for(identity, ref, self.broker.request(self, self._service, cut(data, body, end), ref, deadline))
        return True

    def _request_keyed(self, data: bytes, time: int, end: int) -> bool:
        """KEYED milliseconds key service id body+: a REQUEST with an idempotency key. False: not laid out as one."""
        places = [time]  # of milliseconds, key, service, id and body
        for _ in range(4):
            at = places[-1]
            if data[at] != 1 or not data[at + 1]:
                return False
            places.append(at + 2 + data[at + 1])
        _, key, service, mark, body = places
        digits = data[time + 2 : key]
        if not digits.isdigit() or len(digits) > MAX_WITHIN:
            return False
        identity = data[mark:body]
        if identity in self.ids:
            return True
        self.ids[identity] = None
        broker = self.broker
        if self.worker is not None:
            self.worker.last_heard = broker.now
        ref = data[service:body]
        deadline = broker.now + int(digits) / 1000 if int(digits) else 0.0
        name, content = data[service + 2 : mark], cut(data, body, end)
        request = broker.request(self, name, content, ref, deadline, RequestOptions(key=data[key + 2 : service]))
        self._asked_for(identity, ref, request)
        return True

    def _request_with(self, data: bytes, start: int, end: int) -> bool:
        """WITH (name value)* "" service id body+: a REQUEST with named options. An unknown name is ignored. False: not laid out as one."""
        at = start + self.words.with_size
        left = 0
        key = group = near = b""
        for _ in range(MAX_OPTIONS + 1):
            if data[at] != 1:
                return False
            value = at + 2 + data[at + 1]
            if not data[at + 1]:  # the empty frame
                at = value
                break
            if data[value] != 1 or not data[value + 1]:
                return False
            name = data[at + 2 : value]
            at = value + 2 + data[value + 1]
            content = data[value + 2 : at]
            if name == TIME:
                if not content.isdigit() or len(content) > MAX_WITHIN:
                    return False
                left = int(content)
            elif name == KEY:
                key = content
            elif name in (GROUP, NEAR):
                if mark_fault(content):
                    return False
                if name == GROUP:
                    group = content
                else:
                    near = content
        else:
            return False
        service = at
        if data[service] != 1 or not data[service + 1]:
            return False
        mark = service + 2 + data[service + 1]
        if data[mark] != 1 or not data[mark + 1]:
            return False
        body = mark + 2 + data[mark + 1]
        identity = data[mark:body]
        if identity in self.ids:
            return True
        self.ids[identity] = None
        broker = self.broker
        if self.worker is not None:
            self.worker.last_heard = broker.now
        options = RequestOptions(key=key, group=group, near=near) if key or group or near else PLAIN
        within = left / 1000
        name = data[service + 2 : mark]
        if not key:  # requests of one group often follow each other; each has another key
            self._asked = data[start:mark]
            self._named = service - start
            self._within = within
            self._options = options
            self._service = name
        ref = data[service:body]
        deadline = broker.now + within if within else 0.0
        self._asked_for(identity, ref, broker.request(self, name, cut(data, body, end), ref, deadline, options))
        return True

    def _asked_for(self, identity: bytes, ref: bytes, request: Request | None) -> None:
        """The broker has accepted the request, or refused it (None); it may have ended already."""
        if identity in self.ids:
            if request is None:
                self._fail(ref, REFUSED, "the request was refused")
            elif self.extended.cancel:
                self.ids[identity] = request

    def _cancel(self, identity: bytes, expired: bool) -> None:
        """The client does not wait for the reply any more, and gets none. Its FINAL may have been sent a moment ago."""
        request = self.ids.get(frame(identity, True)) if 0 < len(identity) < 256 else None
        if request is not None:
            self.broker.cancel(request, CLIENT_TIMEOUT if expired else CLIENT_CANCELLED, expired)
            self.ids.pop(frame(identity, True), None)

    def _credit_command(self, command: bytes, frames: "list[bytes]") -> None:
        name = command.decode()
        if len(frames) != (4 if command == CREDIT else 3):
            self._invalid(f"{name} of {len(frames)} frames")
            return
        worker = self.live_worker(name)
        if worker is None:
            return
        if command == RELEASED:
            self.broker.release(worker, frames[2])
        elif command == KEPT:
            self.broker.kept(worker, frames[2])
        elif not set_window(self.broker, worker, frames[2], frames[3]):
            self._invalid("CREDIT without two numbers")

    def _progress(self, frames: "list[bytes]") -> None:
        """PROGRESS token share text: how far a request is that the worker holds."""
        share = read_share(frames[3]) if len(frames) == 5 else None
        if share is None:
            self._invalid(f"PROGRESS of {len(frames)} frames that is not token, share from 0 to 1 and text")
            return
        worker = self.live_worker("PROGRESS")
        if worker is not None:
            self.broker.progress(worker, frames[2], share, read_text(frames[4]))

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        if self.extended.cancel and not self.finished:
            self.link.send(self.words.cancel + frame(request.token, False))
        return False  # it holds the request until it answers

    def revoke_request(self, worker: Worker, request: Request) -> None:
        if not self.finished:
            self.link.send(self.words.revoke + frame(request.token, False))

    def _wrong_start(self, frames: "list[bytes]") -> str:
        """The error in a READY or a client's REQUEST, which both are 01."""
        if frames[0] == self.words.worker and (frames[0] != self.words.client or len(frames) < 3):
            return f"READY of {len(frames)} frames, not 3"
        if len(frames) < 5:
            return f"REQUEST of {len(frames)} frames, not 5 or more"
        if not 0 < len(frames[2]) < 256:
            return f"a service name of {len(frames[2])} bytes, not 1 to 255"
        return f"a request id of {len(frames[3])} bytes, not 1 to 255"

    # --- ends of the dialog

    def _invalid(self, what: str) -> None:
        """ "The broker SHOULD respond to invalid messages by dropping them and treating that peer as invalid." """
        if self.worker is not None:
            self.reject_worker(what)
        else:
            self.broker.report_violation(self, what)

    def end_worker(self, why: str) -> None:
        """Ends the dialog in both roles: nothing more is sent to this peer."""
        super().end_worker(why)
        for request in list(self.requests):
            self.broker.cancel(request, why)
        self.ids.clear()

    def send_disconnect(self) -> None:
        self.link.send(DISCONNECT)

    # --- to a client

    def send_partial(self, request: Request, body: Body) -> None:
        ref = request.ref
        if isinstance(ref, bytes) and not self.finished:
            self.link.send(self.words.partial + ref, body or EMPTY_FRAME)

    def send_progress(self, request: Request, share: float, text: str) -> None:
        ref = request.ref
        if isinstance(ref, bytes) and self.extended.progress and not self.finished:
            identity = ref[2 + ref[1] :]
            said = frame(write_share(share), True) + frame(write_text(text), False)
            self.link.send(self.words.progress + identity + said)

    def send_final(self, request: Request, body: Body) -> None:
        ref = request.ref
        if isinstance(ref, bytes) and not self.finished:
            self.ids.pop(ref[2 + ref[1] :], None)
            last = body or EMPTY_FRAME  # "a multipart message of 5 or more frames"
            self.link.send_pieces((self.words.final, ref, last), len(last))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        ref = request.ref
        if isinstance(ref, bytes) and not self.finished:
            self._fail(ref, code, text)

    def client_id_of(self, request: Request) -> bytes:
        ref = request.ref
        return ref[2 + ref[1] + 2 :] if isinstance(ref, bytes) else b""

    def _fail(self, ref: bytes, code: str, text: str) -> None:
        """ "followed by exactly 1 FINAL RESPONSE messages per REQUEST issued": so a failure is a FINAL too."""
        self.ids.pop(ref[2 + ref[1] :], None)
        said = frame(code.encode("utf-8", "replace"), True) + frame(text.encode("utf-8", "replace"), False)
        self.link.send(self.words.final + ref + FAILURE + said)

    # --- to a worker

    def deliver(self, worker: Worker, request: Request) -> None:
        token = request.token
        address = SHORT[len(token)] + token
        ref = request.ref
        if isinstance(ref, bytes) and isinstance(request.session, MdxSession):
            identity = ref[2 + ref[1] :]
        elif request.session.is_internal or request.session.is_sibling:
            identity = _job_identity(request, address)
        else:
            identity = address  # a client of another protocol has no MDX id, so the token is used
        work = self.words.work
        if request.time_limits is not None and self.extended.deadline_jobs:
            work = self._work_within(request)
        body = request.body
        if body:
            address += DELIMITER + identity
            self._due = self.words.worker_final + address
            self._token = token
            self.link.send_pieces((work, address, body), len(body))
        else:
            self.link.send(work + address + DELIMITER + b"\x00" + identity[1:])

    def _work_within(self, request: Request) -> bytes:
        """The first frames of a request to a worker, with the time that is left. Most requests that did not wait have the same, so the
        last one is kept."""
        left = request.time_left(self.broker.now)
        if not left:
            return self.words.work
        milliseconds = ceil(left * 1000 - 0.01)  # without the error of the subtraction
        if milliseconds != self._milliseconds:
            self._milliseconds = milliseconds
            self._within_work = self.words.work_within + frame(b"%d" % milliseconds, True)
        return self._within_work
