"""The bridge: two brokers on one connection, each a worker and a client of the other. Both sides use this session class.

    HELLO    identity window bytes prefix*                 the sender's identity, its limits of requests and bytes, topics to forward
    OFFER    service path                                  the service is offered; path: the brokers on the route, the sender first
    RETRACT  service                                       the service is no longer offered
    ENTRY    name path address information                 a service is in the catalog of the last broker of the path; its address
    GONE     name                                          it is not in the catalog any more
    REQUEST  id service deadline trace parent path [origin] [options] body*
                                                           deadline: milliseconds left, 0: none; path: the brokers it has passed;
                                                           origin: its principal, if both sides have the extension
                                                           options: its marks, likewise (``request_options.marks_of``)
    PARTIAL  id body*
    PROGRESS id share text                                 if both sides have the extension
    FINAL    id route body*                                route: the brokers it passed after this one, with its name at each
    FAILURE  id code text route [1]                        1: between processes, its worker still has it, and ENDED follows
    CANCEL   id [1]                                        1: likewise, to be answered by ENDED when its worker has ended it
    PUBLISH  origin number topic body*
    BEAT

Every message begins with the frames ``PDBR01`` and its command. docs/protocols/bridge.md describes the protocol. Between the processes of
one broker there are more messages (``sibling_messages``, ``broker/cluster/siblings.py``).
"""

from polydomo.errors import ProtocolViolation
from polydomo.limits import (
    MAX_BRIDGE_PREFIXES,
    MAX_FAILURE_TEXT,
    MAX_HOPS,
    MAX_OUTSTANDING,
    MAX_SERVICE_NAME,
    MAX_TOPIC,
)
from polydomo.model import principals
from polydomo.model.broker_api import BrokerApi
from polydomo.model.jobs.facts import JobFacts
from polydomo.model.listener_roles import SIBLING
from polydomo.model.outcomes import read_failure
from polydomo.model.progress import read_share, read_text, write_share, write_text
from polydomo.model.records import DONE, Path, Publication, Request, Service, Worker
from polydomo.model.registration import Refusal
from polydomo.model.request_options import PLAIN as PLAIN_OPTIONS
from polydomo.model.request_options import marks_of, read_marks
from polydomo.model.session import ProtocolSession
from polydomo.protocols.bridge.frames import IDENTITY_SIZE, is_identity, is_number, read_path, take, take_all
from polydomo.protocols.bridge.sibling_messages import (
    CALL,
    CALL_SIZE,
    PLAIN,
    PLAIN_SIZE,
    PLAIN_TAIL,
    PREFIX,
    REPLY,
    REPLY_SIZE,
    TOKEN_SIZE,
    RelayedFacts,
    SiblingCall,
    details,
    trace_from,
    trace_prefix,
)
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import Body, cut, end_of_last, frame, join, more
from polydomo.wire.link import PAUSE_NOT_READING, Link

HEADER = b"PDBR01"
MAX_WORD = 16
NUMBERS = (1 << 36) - 1  # bits of a request's number that a token has (``broker/requests/tokens.py``)
MAX_NAME = 128  # characters of a trace, or of the name of a request at another broker


class BridgedRequest:
    """The route of a request before and after this broker. ``Request.ref`` of a request that came over a bridge."""

    def __init__(
        self, key: bytes, path: Path, trace: str, parent: str, facts: RelayedFacts | None = None, origin: str = ""
    ) -> None:
        self.origin = origin  # the principal that caused it, as this broker names it
        self.key = key  # its id on the bridge it came over
        self.path = path  # the brokers it has passed, in order
        self.trace = trace
        self.parent = parent  # its name at the broker that sent it
        self.route: list[str] | None = (
            None  # the brokers it passed after this one, from their answer; None: they are not asked for
        )
        self.facts = facts  # from another process of this broker
        self.counts = False  # it has ended, and that process counts it as running until ENDED


def trace_of(identity: bytes, number: int) -> str:
    """W3C trace context for a request that began here. The trace id is derived from its number, so no state is needed."""
    number &= NUMBERS
    return f"00-{identity.decode()}{number:016x}-{number:016x}-01"


def bridge_trace_of(request: Request) -> "tuple[str, str]":
    """The trace of a request that crosses a bridge, and its name at the sending broker; both empty for local requests."""
    if isinstance(request.ref, BridgedRequest):
        return request.ref.trace, request.ref.parent
    worker = request.worker
    if worker is not None and isinstance(worker.session, BridgeSession):
        return trace_of(worker.session.broker.identity(), request.number), ""
    return "", ""


class BridgeSession(ProtocolSession):
    protocol = "bridge"
    takes_partials = True
    windowed = True
    is_bridge = True
    origin_is_principal = False
    charges_origin = False

    def __init__(self, broker: BrokerApi, link: Link, caller: bool = False, sibling: bool = False) -> None:
        super().__init__(broker, link)
        self.caller = caller  # we opened the connection, so we send HELLO first
        if caller and not self.principal:
            self.principal = principals.BRIDGE_OUT
        if sibling:
            self.become_sibling()
        self.peer_identity = b""  # the other broker's identity, after its HELLO
        self.worker: Worker | None = None
        self.open: dict[bytes, Request] = {}  # the other side's requests, by their ids
        self.peer_bytes = 0  # bytes of our requests that the other side accepts at a time
        self.away_bytes = 0  # bytes it currently has; both sides count the same, because they see the ends of requests in the same order
        self._away: dict[bytes, int] = {}  # ... by their ids
        self.prefixes: list[bytes] = []  # topic prefixes that are forwarded
        self._path: Path = ()  # of a request that began at the other side
        self._trace = ""  # the beginning of the traces of such requests
        self._asked: Service | None = None  # the service of the last CALL that was sent
        self._asked_frame = b""
        self._came = b""  # the service of the last CALL that was received
        self._came_frame = b""

    # --- from the other broker -----------------------------------------------------------------------------------------------

    def fast_path(self, data: bytes, start: int, size: int) -> int:
        """The fast path between processes: CALLs for the service of the last one, without deadline and facts, and REPLYs."""
        worker = self.worker
        if worker is None:
            return start
        most = self.link.fast_path_size
        while self.worker is worker:
            if data.startswith(REPLY, start):
                token = start + REPLY_SIZE
                body = token + TOKEN_SIZE
                end = end_of_last(data, body, size, most)
                if end > size:
                    break
                key = data[token:body]
                self._back(key)
                self.broker.bridge_final(worker, key, data[body:end])
            elif data.startswith(CALL, start):
                token = start + CALL_SIZE
                service = token + TOKEN_SIZE
                details = service + len(self._came_frame)
                body = details + PLAIN_SIZE
                end = end_of_last(data, body, size, most)
                if (
                    end > size
                    or data[service:details] != self._came_frame
                    or data[details : details + 2] != PLAIN
                    or data[body - 2 : body] != PLAIN_TAIL
                    or data[token:service] in self.open
                ):
                    break
                parent = data[details + 2 : body - 2].decode("ascii", "replace")
                self._accept(data[token:service], self._came, data[body:end], parent, 0.0)
            else:
                break
            worker.last_heard = self.broker.now
            start = end
            if self.link.state or self.link.pauses:
                break
        return start

    def on_open(self) -> None:
        if self.caller:
            self._hello(self._topics())

    def on_message(self, data: bytes, start: int, end: int) -> None:
        try:
            if not data.startswith(PREFIX, start):
                raise ProtocolViolation("not a bridge message")
            (word,), at = take(data, start + len(PREFIX), end, 1)
            worker = self.worker
            if worker is None:
                if self.peer_identity:
                    return  # the bridge has ended (shutdown or silence), but the other side does not know yet
                if word != b"HELLO":
                    raise ProtocolViolation(f"{word[:MAX_WORD]!r} before HELLO")
                self._on_hello(take_all(data, at, end))
                return
            worker.last_heard = self.broker.now
            if word == b"CALL" and self.is_sibling and data.startswith(CALL, start):
                self._on_call(SiblingCall(data, start, end), data, end)
            elif word == b"REPLY" and self.is_sibling:
                (key,), body = take(data, at, end, 1)
                self._back(key)
                self.broker.bridge_final(worker, key, cut(data, body, end))
            elif word == b"REQUEST":
                self._on_request(data, at, end)
            elif word == b"FINAL":
                (key, route), body = take(data, at, end, 2)
                self._answered(worker, key, route)
                self.broker.bridge_final(worker, key, cut(data, body, end))
            elif word == b"PARTIAL":
                (key,), body = take(data, at, end, 1)
                self.broker.partial(worker, key, cut(data, body, end))
            elif word == b"PUBLISH":
                self._on_publish(data, at, end)
            else:
                self._on_other(worker, word, take_all(data, at, end))
        except ProtocolViolation as error:
            self.link.violation(error)

    def _on_other(self, worker: Worker, word: bytes, rest: "list[bytes]") -> None:
        broker = self.broker
        if word == b"BEAT" and not rest:
            broker.heartbeat(worker)
        elif word == b"FAILURE" and (len(rest) == 4 or (self.is_sibling and rest[4:] == [b"1"])):
            self._answered(worker, rest[0], rest[3])
            broker.bridge_failed(worker, rest[0], *read_failure(rest[1], rest[2]), runs=len(rest) == 5)
        elif word == b"PROGRESS" and len(rest) == 3 and self.carries_progress():
            share = read_share(rest[1])
            if share is None:
                raise ProtocolViolation("PROGRESS without a share from 0 to 1")
            broker.progress(worker, rest[0], share, read_text(rest[2]))
        elif word == b"CANCEL" and (len(rest) == 1 or (self.is_sibling and rest[1:] == [b"1"])):
            request = self.open.get(rest[0])
            if request is not None:  # otherwise it crossed the answer
                del self.open[rest[0]]
                broker.cancel(request, "cancelled by the other broker")
                journey = request.ref
                if len(rest) == 2 and isinstance(journey, BridgedRequest):
                    limits = request.service.limits
                    journey.counts = True
                    if limits is None or not limits.runs(request):
                        self.send_ended(request)
        elif word == b"OFFER" and len(rest) == 2:
            path = read_path(rest[1])
            if not path or path[0] != self.peer_identity:
                raise ProtocolViolation("OFFER whose path does not begin with the sending broker")
            if len(rest[0]) <= MAX_SERVICE_NAME:
                broker.bridge_offers(worker, rest[0], path)
        elif word == b"RETRACT" and len(rest) == 1:
            broker.bridge_offers(worker, rest[0], ())
        elif word == b"ENTRY" and len(rest) == 4 and self.carries_catalog():
            path = read_path(rest[1])
            if not path or path[0] != self.peer_identity:
                raise ProtocolViolation("ENTRY whose path does not begin with the sending broker")
            if len(rest[0]) <= MAX_SERVICE_NAME:
                broker.bridge_entry(worker, rest[0], path, rest[2], rest[3])
        elif word == b"GONE" and len(rest) == 1 and self.carries_catalog():
            broker.bridge_entry(worker, rest[0], (), b"", b"")
        elif not self.is_sibling or not broker.sibling_message(worker, word, rest):
            raise ProtocolViolation(f"{word[:MAX_WORD]!r} with {len(rest)} frames")

    def become_sibling(self) -> None:
        """The other side is another process of this broker. It has checked the requests that it sends."""
        self.is_sibling = True
        self.may_request = True
        self.principal = principals.PROCESS
        self.has_fast_path = True
        self.counted_as = "process"

    def _topics(self) -> "list[bytes]":
        """Topic prefixes that are forwarded. Between the processes of one broker, all topics are."""
        return [b""] if self.is_sibling else list(self.broker.tuning.bridge_topics)

    def _on_hello(self, rest: "list[bytes]") -> None:
        accept = self.broker.tuning.bridge_accept
        if self.role is SIBLING:
            self.become_sibling()
        elif not self.caller and (accept == "none" or (accept == "local" and not self.link.local)):
            self.link.close(CloseCause.REFUSED, f"this listener does not accept bridges (bridge.accept is {accept})")
            return
        if len(rest) < 3 or not is_identity(rest[0]) or not is_number(rest[1], 9) or not is_number(rest[2], 18):
            raise ProtocolViolation("a HELLO without identity, window and bytes")
        wanted = rest[3:]
        if len(wanted) > MAX_BRIDGE_PREFIXES or any(len(prefix) > MAX_TOPIC for prefix in wanted):
            raise ProtocolViolation(f"a HELLO with over {MAX_BRIDGE_PREFIXES} topics, or one of over {MAX_TOPIC} bytes")
        self.peer_identity = rest[0]
        self._path = (rest[0],)
        self._trace = trace_prefix(rest[0])
        self.peer_bytes = int(rest[2])
        if not self.caller:  # prefixes of either side are forwarded in both directions
            mine = [prefix for prefix in self._topics() if prefix not in wanted]
            wanted = wanted + mine
            self._hello(wanted)
        worker = self.broker.open_bridge(self, self.peer_identity, min(int(rest[1]), MAX_OUTSTANDING))
        if isinstance(worker, Refusal):
            self.link.close(CloseCause.REFUSED, worker.text)
            return
        self.worker = worker
        self.prefixes = wanted
        for prefix in wanted:
            self.broker.subscribe(self, prefix)

    def carries_origins(self) -> bool:
        """Whether a REQUEST names the principal that caused it: between processes, and between brokers that both know the extension."""
        return self.is_sibling or self.link.extensions.origin

    def carries_options(self) -> bool:
        """The same for its marks."""
        return self.is_sibling or self.link.extensions.options

    def carries_progress(self) -> bool:
        """Whether the other side understands how far a request is."""
        return self.is_sibling or self.link.extensions.progress

    def _named(self, claimed: bytes) -> str:
        """The origin of a request. A process of this broker is believed; another broker's name for it is qualified by the bridge's own
        principal, whose rights are all that it has."""
        name = claimed[:MAX_NAME].decode("ascii", "backslashreplace")
        return name if self.is_sibling else principals.named_by(self.principal, name) if self.principal else ""

    def origin_of(self, request: Request) -> str:
        journey = request.ref
        return journey.origin if isinstance(journey, BridgedRequest) else self.principal

    def _on_request(self, data: bytes, at: int, end: int) -> None:
        count = 6 + self.carries_origins() + self.carries_options()
        envelope, body = take(data, at, end, count)
        key, service, left, trace, parent, way = envelope[:6]
        claimed = envelope[6] if self.carries_origins() else b""
        options = read_marks(envelope[-1]) if self.carries_options() else PLAIN_OPTIONS
        path = read_path(way)
        broker = self.broker
        if not key or len(key) > 255 or not is_number(left, 12) or len(trace) > MAX_NAME or len(parent) > MAX_NAME:
            raise ProtocolViolation("a REQUEST without id, deadline, trace and parent")
        if not path or path[-1] != self.peer_identity or broker.identity() in path:
            raise ProtocolViolation("a REQUEST whose path does not end at the sending broker")
        if key in self.open:
            raise ProtocolViolation("a REQUEST with an id that is still open")
        journey = BridgedRequest(key, path, trace.decode("ascii", "replace"), parent.decode("ascii", "replace"))
        journey.origin = self._named(claimed)
        journey.route = []
        deadline = broker.now + int(left) / 1000 if int(left) else 0.0
        request = broker.request(self, service, cut(data, body, end), journey, deadline, options)
        if request is not None and request.state != DONE:
            self.open[key] = request

    def _on_call(self, call: SiblingCall, data: bytes, end: int) -> None:
        if call.token in self.open:
            raise ProtocolViolation("a CALL with an id that is still open")
        self._came = call.service
        self._came_frame = frame(call.service, True)
        deadline = self.broker.now + call.milliseconds / 1000 if call.milliseconds else 0.0
        body = cut(data, call.body, end)
        self._accept(call.token, call.service, body, call.parent, deadline, call)

    def _accept(
        self,
        token: bytes,
        service: bytes,
        body: Body,
        parent: str,
        deadline: float,
        call: SiblingCall | None = None,
    ) -> None:
        """A request of a client of the other process. ``call`` has its facts, origin and marks; None: there are none."""
        journey = BridgedRequest(token, self._path, trace_from(self._trace, token), parent)
        options = PLAIN_OPTIONS
        if call is not None:
            journey.facts, journey.origin, options = call.facts, call.origin, call.options
        request = self.broker.request(self, service, body, journey, deadline, options)
        if request is not None and request.state != DONE:
            self.open[token] = request

    def _on_publish(self, data: bytes, at: int, end: int) -> None:
        (origin, number, topic), body = take(data, at, end, 3)
        if not is_identity(origin) or not is_number(number, 18) or len(topic) > MAX_TOPIC:
            raise ProtocolViolation("a PUBLISH without origin, number and topic")
        self.broker.relay_publication(self, topic, cut(data, body, end), origin, int(number))

    def _answered(self, worker: Worker, key: bytes, route: bytes) -> None:
        """Records the route of the answer."""
        self._back(key)
        request = worker.held.get(key)
        if request is not None and route:
            hops = [
                hop[: MAX_NAME + IDENTITY_SIZE + 1].decode("ascii", "replace") for hop in route.split(b",")[:MAX_HOPS]
            ]
            if isinstance(request.ref, BridgedRequest):
                request.ref.route = hops
            self.broker.record_route(request, hops)

    # --- to the other broker, as a client ----------------------------------------------------------------------------------------

    def send_partial(self, request: Request, body: Body) -> None:
        journey = request.ref
        assert isinstance(journey, BridgedRequest)
        self._say(b"PARTIAL", [journey.key], body)

    def send_progress(self, request: Request, share: float, text: str) -> None:
        journey = request.ref
        if isinstance(journey, BridgedRequest) and self.carries_progress():
            self._say(b"PROGRESS", [journey.key, write_share(share), write_text(text)])

    def send_final(self, request: Request, body: Body) -> None:
        journey = request.ref
        assert isinstance(journey, BridgedRequest)
        key = journey.key
        self.open.pop(key, None)
        if self.is_sibling and journey.route is None and len(key) == TOKEN_SIZE and body:
            self.link.send_pieces((REPLY, key, body), len(body))
        else:
            self._say(b"FINAL", [key, self._route(request, journey)], body)

    def send_failure(self, request: Request, code: str, text: str) -> None:
        journey = request.ref
        assert isinstance(journey, BridgedRequest)
        self.open.pop(journey.key, None)
        said = [code.encode("utf-8", "replace"), text.encode("utf-8", "replace")[:MAX_FAILURE_TEXT]]
        limits = request.service.limits
        journey.counts = self.is_sibling and limits is not None and limits.runs(request)
        runs = [b"1"] if journey.counts else []
        self._say(b"FAILURE", [journey.key, *said, self._route(request, journey), *runs])

    def _route(self, request: Request, journey: BridgedRequest) -> bytes:
        here = f"{self.broker.identity().decode()}:{self.broker.request_name(request)}"
        return ",".join([here, *(journey.route or ())]).encode()

    # --- to the other broker, as a worker ----------------------------------------------------------------------------------------

    def deliver(self, worker: Worker, request: Request) -> None:
        broker = self.broker
        journey = request.ref
        left = request.time_left(broker.now)
        milliseconds = max(1, round(left * 1000)) if left else 0
        size = len(request.body)
        self._away[request.token] = size
        self.away_bytes += size
        if self.is_sibling and size and not isinstance(journey, BridgedRequest):
            self._call(request, milliseconds)
            return
        identity = broker.identity()
        if isinstance(journey, BridgedRequest):
            trace = journey.trace
            path = (*journey.path, identity)
        else:
            trace = trace_of(identity, request.number)
            path = (identity,)
        envelope = [
            request.token,
            request.service.name,
            b"%d" % milliseconds,
            trace.encode(),
            broker.request_name(request).encode(),
            b",".join(path),
        ]
        if self.carries_origins():
            envelope.append(request.origin.encode("ascii", "backslashreplace")[:MAX_NAME])
        if self.carries_options():
            envelope.append(marks_of(request.options))
        self._say(b"REQUEST", envelope, request.body)

    def _call(self, request: Request, milliseconds: int) -> None:
        service = request.service
        if service is not self._asked:
            self._asked = service
            self._asked_frame = frame(service.name, True)
        job = request.session.job_of(request)
        headers = request.session.headers_of(request)
        facts = RelayedFacts(request.session.protocol, headers, job).encode() if headers or job is not None else b""
        known = details(self.broker.request_name(request), milliseconds, facts, request.origin, request.options)
        body = request.body
        self.link.send_pieces((CALL, request.token, self._asked_frame, known, body), len(body))

    def job_of(self, request: Request) -> JobFacts | None:
        journey = request.ref
        return journey.facts.job if isinstance(journey, BridgedRequest) and journey.facts is not None else None

    def headers_for(self, request: Request, protocol: str) -> bytes:
        journey = request.ref
        if isinstance(journey, BridgedRequest) and journey.facts is not None and journey.facts.protocol == protocol:
            return journey.facts.headers
        return b""

    def path_of(self, request: Request) -> Path:
        journey = request.ref
        assert isinstance(journey, BridgedRequest)
        return journey.path

    def send_to_sibling(self, word: bytes, rest: "list[bytes]") -> None:
        self._say(word, rest)

    def send_started(self, request: Request) -> None:
        journey = request.ref
        if self.is_sibling and isinstance(journey, BridgedRequest):
            self._say(b"STARTED", [journey.key])

    def send_ended(self, request: Request) -> None:
        journey = request.ref
        if isinstance(journey, BridgedRequest) and journey.counts:
            journey.counts = False
            self._say(b"ENDED", [journey.key])

    def has_room(self) -> bool:
        """Whether the other side accepts one more request. The last one may exceed the byte limit, so that large requests can be sent at
        all."""
        return self.away_bytes < self.peer_bytes

    def _back(self, key: bytes) -> None:
        self.away_bytes -= self._away.pop(key, 0)

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        self._back(request.token)
        if self.is_sibling and request.service.limits is not None:
            self._say(b"CANCEL", [request.token, b"1"])
            return False  # it counts as running until the worker of the other process has ended it
        self._say(b"CANCEL", [request.token])
        return True

    def send_heartbeat(self, worker: Worker) -> None:
        self._say(b"BEAT", [])

    def on_worker_expired(self, worker: Worker) -> None:
        self.link.close(CloseCause.SILENT, abort=True)

    def on_worker_gone(self, worker: Worker) -> None:
        self.worker = None

    def offer_service(self, name: bytes, path: Path) -> None:
        """Offers a service of this broker, or of brokers behind it."""
        self._say(b"OFFER", [name, b",".join(path)])

    def withdraw_service(self, name: bytes) -> None:
        self._say(b"RETRACT", [name])

    def carries_catalog(self) -> bool:
        return self.is_sibling or self.link.extensions.catalog

    def announce_entry(self, name: bytes, path: Path, address: bytes, info: bytes) -> None:
        self._say(b"ENTRY", [name, b",".join(path), address, info])

    def withdraw_entry(self, name: bytes) -> None:
        self._say(b"GONE", [name])

    def can_announce(self) -> bool:
        return not self.link.pauses & PAUSE_NOT_READING

    # --- what is published ---------------------------------------------------------------------------------------------------

    def send_publication(self, publication: Publication) -> None:
        if publication.number and publication.origin != self.peer_identity:
            origin = publication.origin or self.broker.identity()
            self.link.send(more([HEADER, b"PUBLISH", origin, b"%d" % publication.number]), publication.message)

    def send_last_value(self, publication: Publication) -> None:
        self.send_publication(publication)

    def _hello(self, prefixes: "list[bytes]") -> None:
        tuning = self.broker.tuning
        self._say(
            b"HELLO", [self.broker.identity(), b"%d" % tuning.bridge_window, b"%d" % tuning.bridge_bytes, *prefixes]
        )

    def _say(self, word: bytes, rest: "list[bytes]", body: Body = b"") -> None:
        if body:
            self.link.send(more([HEADER, word, *rest]), body)
        else:
            self.link.send(join([HEADER, word, *rest]))


BEGINNING = frame(HEADER, True)
