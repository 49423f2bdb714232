"""A client and a worker that send and parse plain HTTP, as curl or a browser would."""

import json
from collections import deque
from typing import Any
from urllib.parse import quote

import httptools

from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols import registry
from polydomo.protocols.ends import Cancelled, ClientEnd, Delivery, Event, Failure, Frames, Reply, WorkerEnd
from polydomo.web.content import FRAMES_JSON, frame_from_json, frame_to_json
from polydomo.wire.link import Hub, Link, LinkHandler

LEASE = 20  # seconds; shorter than the silence that the other protocols are allowed


def request(path: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


def frames_body(body: Frames) -> bytes:
    return json.dumps({"frames": [frame_to_json(frame) for frame in body]}).encode()


def read_frames(value: dict[str, list[object]]) -> Frames:
    return [frame_from_json(frame) for frame in value["frames"]]


def read_message(data: bytes) -> Frames:
    """A message from ``HttpPeerLink``."""
    return [part.encode("latin-1") for part in json.loads(data)]


def client_end(protocol: str) -> ClientEnd:
    """Of any protocol, HTTP included."""
    return HttpClientEnd() if protocol == "http" else registry.client_end(protocol)


def worker_end(protocol: str) -> WorkerEnd:
    return HttpWorkerEnd() if protocol == "http" else registry.worker_end(protocol)


class HttpPeerLink(Link):
    """A connection of an HTTP client: each piece of a response is a message [status, headers as JSON, content, whether it is the last]."""

    wire = "http"

    def __init__(self, hub: Hub, handler: LinkHandler, peer: str) -> None:
        super().__init__(hub, handler, peer)
        self.messages: list[Frames] = []
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}

    @property
    def open(self) -> bool:
        return not self.closed

    def receive(self, data: bytes) -> int:
        while data:
            try:
                self._parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade:  # pragma: no cover
                raise
        for message in self.messages:
            joined = json.dumps([part.decode("latin-1") for part in message]).encode()
            self.handler.on_message(joined, 0, len(joined))
        self.messages.clear()
        return self.pauses

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._emit(body, False)

    def on_message_complete(self) -> None:
        self._emit(b"", True)

    def _emit(self, body: bytes, last: bool) -> None:
        status = b"%d" % self._parser.get_status_code()
        self.messages.append([status, json.dumps(self._headers).encode(), body, b"end" if last else b""])


class HttpClientEnd(ClientEnd):
    """Streams lines of JSON, so that partial replies arrive one by one. Responses arrive in the order of the requests."""

    protocol = "http"
    wire = "http"

    def __init__(self) -> None:
        super().__init__()
        self.keys: deque[int] = deque()  # requests without a complete response
        self.forgotten: set[int] = set()
        self.body = b""
        self.prefer = ""  # "wait=30" waits for a worker that has not registered yet

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        self.keys.append(key)
        path = "/v1/call/" + quote(service.decode(), safe="")
        fields = {"Content-Type": FRAMES_JSON, "Accept": "application/x-ndjson"}
        if self.prefer:
            fields["Prefer"] = self.prefer
        self.out.append([request(path, fields, frames_body(body))])

    def forget(self, key: int) -> None:
        self.forgotten.add(key)

    def receive(self, message: Frames) -> list[Event]:
        status, _, content, last = message
        key = self.keys[0]
        self.body += content
        events: list[Event] = []
        if status == b"200":
            *lines, self.body = self.body.split(b"\n")
            events += [self._event(key, json.loads(line)) for line in lines]
        elif last:
            events.append(self._event(key, {"event": "failure", **json.loads(self.body)}))
        if last:
            self.keys.popleft()
            self.body = b""
        return [] if key in self.forgotten else events

    def _event(self, key: int, row: dict[str, Any]) -> Event:
        if row["event"] == "failure":
            return Failure(key, row.get("code") or row["type"].rpartition(":")[2], row["detail"])
        return Reply(key, read_frames(row), row["event"] == "final")


class HttpWorkerEnd(WorkerEnd):
    """Polls over one persistent connection; it is lost with that connection."""

    protocol = "http"
    wire = "http"
    interval = 5.0
    patience = 0.0  # the answer to a poll waits for a request, so silence has no meaning

    def __init__(self) -> None:
        super().__init__()
        self.service = b""
        self.held: Delivery | None = None
        self.unwanted: Delivery | None = None  # the broker does not wait for the answer to this one
        self.asked: deque[bool] = deque()  # requests without a response, and whether each also asks for the next job
        self.body = b""

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        (self.service,) = services
        self.poll()

    def poll(self) -> None:
        path = f"/v1/work/{quote(self.service.decode(), safe='')}?wait=300&lease={LEASE}&bound"
        self.asked.append(False)
        self.out.append([request(path, {"Accept": "application/json"}, b"")])

    def receive(self, message: Frames) -> list[Event]:
        status, fields, content, last = message
        headers = json.loads(fields)
        self.body += content
        if not last:
            return []
        body, self.body = self.body, b""
        asks_next = self.asked.popleft()
        if status == b"200":
            self.held = Delivery(self.service, read_frames(json.loads(body)), headers["polydomo-token"])
            return [self.held]
        if status == b"204" and "polydomo-worker" in headers:
            self.poll()
        if status == b"410" and self.held is not None and self.unwanted is not self.held:
            self.unwanted = self.held
            return [Cancelled(self.held)]
        if status == b"409" and asks_next:
            self.poll()  # the request had ended before the reply that asked for the next one
        return []

    def say(self, delivery: Delivery, what: str, body: bytes, kind: str = FRAMES_JSON) -> None:
        headers = {"Polydomo-Token": str(delivery.ref), "Content-Type": kind, "Accept": "application/json"}
        self.asked.append("next" in what)
        self.out.append([request(f"/v1/reply?{what}", headers, body)])

    def beat(self) -> None:
        if self.held is not None and self.held is not self.unwanted:
            self.say(self.held, "heartbeat", b"")

    def partial(self, delivery: Delivery, body: Frames) -> None:
        if delivery is not self.unwanted:
            self.say(delivery, "partial", frames_body(body))

    def release(self, delivery: Delivery) -> bool:
        if delivery is self.unwanted:
            self.held = None
            self.poll()
        return True

    def final(self, delivery: Delivery, body: Frames) -> None:
        if delivery is self.unwanted:
            self.release(delivery)
            return
        self.held = None
        self.say(delivery, "next&wait=300&bound", frames_body(body))

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        if delivery is self.unwanted:
            self.release(delivery)
            return False
        self.held = None
        self.say(delivery, f"failure={quote(code, safe='')}&next&wait=300&bound", text.encode(), "text/plain")
        return False
