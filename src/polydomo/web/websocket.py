"""``/v1/ws``: calls, subscriptions and workers over one WebSocket, as JSON messages. docs/http.md lists the messages."""

import json

from polydomo.limits import (
    COST_SUBSCRIPTION,
    MAX_CREDIT,
    MAX_FAILURE_CODE,
    MAX_FAILURE_TEXT,
    MAX_HTTP_TIMEOUT,
    MAX_IDEMPOTENCY_KEY,
    MAX_MARK,
    MAX_SERVICE_NAME,
    MAX_SUBSCRIPTIONS,
    MAX_TOPIC,
    WEBSOCKET_BEAT,
    WEBSOCKET_BEATS_MISSED,
)
from polydomo.model.broker_api import BrokerApi
from polydomo.model.progress import is_share, progress_row
from polydomo.model.records import DONE, Publication, Request, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.request_options import mark_fault, options_of
from polydomo.model.session import ProtocolSession
from polydomo.model.shared_run import first_ref
from polydomo.protocols.pubsub.backlog import Backlog
from polydomo.web.content import body_from_json, dump, frames_json, frames_to_json
from polydomo.web.json_frames import JsonFrames
from polydomo.web.session import Endpoint, Exchange, HttpSession, failure_problem
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import MORE, Body, bounds
from polydomo.wire.http.head import RequestHead
from polydomo.wire.http.link import HttpLink
from polydomo.wire.http.websocket import BAD_DATA, GOING_AWAY, LargeText, WebSocket, accept_key
from polydomo.wire.link import PAUSE_NOT_READING

Message = dict[str, object]
Key = str | int


class WebSocketEndpoint(Endpoint):
    methods: "tuple[str, ...]" = ("GET",)

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        accept_key(head)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        key = accept_key(head)
        link = session.http
        session.hand_over("upgraded to WebSocket")
        upgraded = WebSocketSession(session.broker, link)
        upgraded.role = session.role
        link.handler = upgraded
        link.upgrade(f"Upgrade: websocket\r\nSec-WebSocket-Accept: {key}\r\n".encode(), upgraded)
        upgraded.start()


class SocketCall(Exchange):
    """A call over the WebSocket."""

    takes_partials = True

    def __init__(self, session: "WebSocketSession", key: Key, progress: bool) -> None:
        self.session = session
        self.key = key
        self.wants_progress = progress

    def partial(self, request: Request, body: Body) -> None:
        self.session.say_frames({"op": "partial", "id": self.key}, body)

    def progress(self, request: Request, share: float, text: str) -> None:
        if self.wants_progress:
            self.session.say({"op": "progress", "id": self.key, **progress_row(share, text)})

    def final(self, request: Request, body: Body) -> None:
        session = self.session
        session.calls.pop(self.key, None)
        name = session.broker.request_name(request)
        session.say_frames({"op": "final", "id": self.key, "request": name}, body)

    def failure(self, request: Request, code: str, text: str) -> None:
        session = self.session
        session.calls.pop(self.key, None)
        problem = failure_problem(request, code, text, session.broker.request_name(request))
        session.say({"op": "failure", "id": self.key, "problem": problem})


class MessageError(ValueError):
    """A message that is answered with {"op": "error"}."""


class WebSocketSession(ProtocolSession):
    """One WebSocket."""

    protocol = "http"
    dialect = "websocket"
    takes_partials = True
    refuses_at_limit = True

    http: HttpLink  # ``link``, by its own type

    def __init__(self, broker: BrokerApi, link: HttpLink) -> None:
        super().__init__(broker, link)
        self.http = link
        self.socket = WebSocket(link.reader.max_body)
        self.calls: dict[Key, Request | None] = {}
        self.worker: Worker | None = None
        self.told_of_cancelled = False  # the worker asked to get cancellations
        self.subscriptions: dict[bytes, None] = {}
        self.backlog = Backlog(self, self._send)
        self._messages: list[str | bytes | LargeText] = []  # that wait for a large one to be read

    def held(self) -> int:
        """Bytes queued for the client, besides those in its connection."""
        return super().held() + self.backlog.size + COST_SUBSCRIPTION * len(self.subscriptions)

    def start(self) -> None:
        self.broker.session_opened(self)
        self.say({"op": "hello", "broker": self.broker.identity().decode(), "client": f"c{self.number}"})

    # --- bytes

    def on_tunnel_data(self, data: bytes) -> None:
        if self.worker is not None:
            self.worker.last_heard = self.broker.now
        self._messages += self.socket.receive(data)
        self._handle()

    def _handle(self) -> None:
        """Handles the messages that have arrived. A large one is read in steps, and those after it wait for it."""
        while self._messages and self.http.steps is None:
            message = self._messages.pop(0)
            if isinstance(message, str):
                self._take(message)
            elif isinstance(message, LargeText):
                self.http.run(JsonFrames(message.data, self._take_large, self._malformed))
            else:
                self.socket.fail(BAD_DATA, "messages are JSON in text frames")
                break
        self._write()

    def _take_large(self, message: Message) -> None:
        self._try(message)
        self.http.steps = None
        self._handle()

    def _malformed(self, why: str) -> None:
        self.say({"op": "error", "text": why})
        self.http.steps = None
        self._handle()

    def unfinished(self) -> int:
        return self.socket.unfinished()

    def drop_unfinished(self) -> None:
        self.socket.drop_unfinished()

    def _write(self) -> None:
        data = self.socket.out()
        if data:
            self.http.send(data)
        if self.socket.finished:
            reason = self.socket.close_reason
            self.http.close(CloseCause.OTHER if reason else CloseCause.PEER_CLOSED, reason)

    def say(self, message: Message) -> None:
        self._send(dump(message))

    def say_frames(self, message: Message, body: Body) -> None:
        """A message that ends with the frames of a body; a large one in fragments."""
        pieces = frames_json(body, dump(message)[:-1] + b',"frames":', b"}")
        first = True
        while pieces:
            piece = pieces.pop()
            self.socket.send_encoded(piece, first, not pieces)
            self._write()
            first = False

    def _send(self, text: bytes) -> None:
        self.socket.send_encoded(text)
        self._write()

    # --- messages

    def _take(self, text: str) -> None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            self.say({"op": "error", "text": "the message is not JSON"})
            return
        if isinstance(message, dict):
            self._try(message)
        else:
            self.say({"op": "error", "text": "the message is not an object"})

    def _try(self, message: Message) -> None:
        key = message.get("id")
        try:
            self._obey(message)
        except MessageError as error:
            self.say({"op": "error", "text": str(error), **({"id": key} if isinstance(key, str | int) else {})})

    def _obey(self, message: Message) -> None:
        op = message.get("op")
        if op == "call":
            self._call(message)
        elif op == "cancel":
            request = self.calls.pop(_key(message), None)
            if request is not None and request.state != DONE:
                self.broker.cancel(request, "cancelled by the client")
        elif op == "subscribe":
            self._subscribe(message)
        elif op == "unsubscribe":
            topic = _bytes(message, "topic", MAX_TOPIC)
            if topic in self.subscriptions:
                del self.subscriptions[topic]
                self.broker.unsubscribe(self, topic)
        elif op == "publish":
            self.broker.publish(self, _bytes(message, "topic", MAX_TOPIC), _frames(message))
        elif op == "work":
            self._work(message)
        elif op in ("reply", "fail"):
            self._reply(message, op == "fail")
        elif op == "progress":
            self._progress(message)
        elif op == "leave":
            if self.worker is not None:
                self.broker.worker_left(self.worker, "left")
        elif op == "ping":
            self.say({"op": "pong"})
        else:
            raise MessageError("unknown op; see docs/http.md")

    def _call(self, message: Message) -> None:
        key = _key(message)
        if key in self.calls:
            raise MessageError("a call with this id is open")
        service = _bytes(message, "service", MAX_SERVICE_NAME)
        if not service:
            raise MessageError("service must not be empty")
        timeout = _number(message, "timeout")
        deadline = self.broker.now + timeout if timeout is not None else 0.0
        needs_worker = _number(message, "wait") is None
        once = _bytes(message, "key", MAX_IDEMPOTENCY_KEY) if "key" in message else b""
        group, near = _mark(message, "group"), _mark(message, "near")
        body = _frames(message)
        self.calls[key] = None
        options = options_of(needs_worker, once, group, near)
        exchange = SocketCall(self, key, message.get("progress") is True)
        request = self.broker.request(self, service, body, exchange, deadline, options)
        if request is not None and key in self.calls:
            self.calls[key] = request

    def _subscribe(self, message: Message) -> None:
        topic = _bytes(message, "topic", MAX_TOPIC)
        if topic in self.subscriptions:
            return
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise MessageError(f"a connection has at most {MAX_SUBSCRIPTIONS} subscriptions")
        self.subscriptions[topic] = None
        self.broker.subscribe(self, topic)

    # --- as a client

    def send_partial(self, request: Request, body: Body) -> None:
        if isinstance(request.ref, Exchange):
            request.ref.partial(request, body)

    def send_progress(self, request: Request, share: float, text: str) -> None:
        if isinstance(request.ref, Exchange):
            request.ref.progress(request, share, text)

    def send_final(self, request: Request, body: Body) -> None:
        if isinstance(request.ref, Exchange):
            request.ref.final(request, body)

    def send_failure(self, request: Request, code: str, text: str) -> None:
        if isinstance(request.ref, Exchange):
            request.ref.failure(request, code, text)

    # --- as a worker

    def _work(self, message: Message) -> None:
        service = _bytes(message, "service", MAX_SERVICE_NAME)
        credit = message.get("credit", 1)
        if not service or isinstance(credit, bool) or not isinstance(credit, int) or not 1 <= credit <= MAX_CREDIT:
            raise MessageError(f"work needs a service and a credit from 1 to {MAX_CREDIT}")
        broker = self.broker
        if message.get("cancel") is True:
            self.told_of_cancelled = True
        if self.worker is None:
            silence = WEBSOCKET_BEAT * WEBSOCKET_BEATS_MISSED
            # pings are answered by the browser itself, so it is strict
            terms = WorkerTerms(heartbeat_interval=WEBSOCKET_BEAT, max_silence=silence, strict=True)
            worker = broker.register_worker(self, [service], None, terms)
            if isinstance(worker, Refusal):
                raise MessageError(worker.text)
            self.worker = worker
            broker.add_credit(worker, credit)
        else:
            refusal = broker.add_service(self.worker, service)
            if refusal is not None:
                raise MessageError(refusal.text)

    def deliver(self, worker: Worker, request: Request) -> None:
        message: Message = {
            "op": "job",
            "token": request.token.decode("latin-1"),
            "service": request.service.name.decode("utf-8", "replace"),
            "request": self.broker.request_name(request),
        }
        left = request.time_left(self.broker.now)
        if left:
            message["timeout"] = round(left, 3)
        job = request.session.job_of(request)
        if job is not None:
            message["job"] = job.id
            message["attempt"] = request.attempts
            if job.key:
                message["key"] = job.key
        ref = first_ref(request.ref)
        trace = ref.trace if isinstance(ref, Exchange) else job.trace if job is not None else ""
        if trace:
            message["traceparent"] = trace
        self.say_frames(message, request.body)

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        if self.told_of_cancelled:
            self.say({"op": "cancel", "token": request.token.decode("latin-1")})
        return False  # it holds the request until it answers

    def _reply(self, message: Message, failed: bool) -> None:
        worker = self.worker
        token = _bytes(message, "token", MAX_SERVICE_NAME)
        if worker is None:
            raise MessageError("a reply before work")
        broker = self.broker
        if failed:
            code, text = message.get("code", "failed"), message.get("text", "")
            if not isinstance(code, str) or not isinstance(text, str):
                raise MessageError("code and text must be strings")
            known = broker.fail(worker, token, code[:MAX_FAILURE_CODE], text[:MAX_FAILURE_TEXT])
        elif message.get("final", True):
            known = broker.final(worker, token, _frames(message))
        else:
            known = broker.partial(worker, token, _frames(message))
            if known:
                return
        if not known:
            raise MessageError("the broker no longer waits for this reply")
        if worker.alive:
            broker.add_credit(worker)

    def _progress(self, message: Message) -> None:
        """How far a request is that the worker holds. One that has ended is ignored, because the two may have crossed."""
        token = _bytes(message, "token", MAX_SERVICE_NAME)
        share, text = message.get("share"), message.get("text", "")
        if isinstance(share, bool) or not isinstance(share, int | float) or not is_share(share):
            raise MessageError("share must be a number from 0 to 1")
        if not isinstance(text, str):
            raise MessageError("text must be a string")
        if self.worker is None:
            raise MessageError("progress before work")
        self.broker.progress(self.worker, token, float(share), text)

    def send_heartbeat(self, worker: Worker) -> None:
        self.socket.ping()
        self._write()

    def dismiss(self, worker: Worker) -> None:
        self.socket.close(GOING_AWAY, "the broker is shutting down")
        self._write()

    def on_worker_gone(self, worker: Worker) -> None:
        if self.worker is worker:
            self.worker = None

    # --- as a subscriber

    def send_publication(self, publication: Publication) -> None:
        if self.catching_up or self.backlog.messages or self.http.pauses & PAUSE_NOT_READING:
            self.backlog.add(_published(publication), skip_slow=True)
        else:
            self._send(_published(publication))

    def send_last_value(self, publication: Publication) -> None:
        self._send(_published(publication))

    def can_send_values(self) -> bool:
        return not self.http.pauses & PAUSE_NOT_READING

    def on_caught_up(self) -> None:
        missed = self.backlog.release()
        if missed:
            self.say({"op": "missed", "count": missed})

    def on_writable(self) -> None:
        self.on_caught_up()


def _published(publication: Publication) -> bytes:
    """The message as JSON text, built for each subscriber."""
    message = publication.message
    _, end, flags = bounds(message, 0)
    body = message[end:] if flags & MORE else b""
    topic = publication.topic.decode("utf-8", "replace")
    return dump({"op": "message", "topic": topic, "frames": frames_to_json(body)})


def _mark(message: Message, name: str) -> bytes:
    """The group of a call, or what it is near to."""
    if name not in message:
        return b""
    value = _bytes(message, name, MAX_MARK)
    fault = mark_fault(value)
    if fault:
        raise MessageError(f"{name} {fault}")
    return value


def _key(message: Message) -> Key:
    key = message.get("id")
    if (
        isinstance(key, bool)
        or not isinstance(key, str | int)
        or (isinstance(key, str) and len(key) > MAX_SERVICE_NAME)
    ):
        raise MessageError("id must be a number or a string of at most 255 characters")
    return key


def _bytes(message: Message, name: str, most: int) -> bytes:
    value = message.get(name)
    if not isinstance(value, str):
        raise MessageError(f"{name} must be a string")
    content = value.encode("utf-8", "replace")
    if len(content) > most:
        raise MessageError(f"{name} has at most {most} bytes")
    return content


def _number(message: Message, name: str) -> float | None:
    value = message.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_HTTP_TIMEOUT:
        raise MessageError(f"{name} must be a number of seconds")
    return float(value)


def _frames(message: Message) -> bytes:
    try:
        if "frames" not in message and "body" in message:
            return body_from_json([message["body"]])
        return body_from_json(message.get("frames", []))
    except ValueError as error:
        raise MessageError(str(error)) from None
