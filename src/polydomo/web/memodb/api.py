"""MemoDB's REST API (docs/memodb/rest-api.md of bcdb): ``/cid``, ``/head``, ``/call`` and ``/worker``."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

from polydomo.limits import (
    MAX_CONTROL,
    MAX_HTTP_TIMEOUT,
    MAX_NODE_DEPTH,
    MAX_SERVICE_NAME,
    MEMODB_POLL,
    MEMODB_TIMEOUT,
    SMALL_VALUE,
)
from polydomo.model.alarm import Alarm
from polydomo.model.broker_api import BrokerApi
from polydomo.model.detached_link import DetachedLink
from polydomo.model.jobs.messages import INVALID_ARGUMENTS
from polydomo.model.outcomes import FAILED
from polydomo.model.records import Request, Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.session import ProtocolSession
from polydomo.protocols.memo.cid import DAG_CBOR, Cid, CidError, parse_cid
from polydomo.protocols.memo.node import Node, NodeError, decode, encode
from polydomo.protocols.memo.node_json import from_json, to_json
from polydomo.web.call import duration, preferences
from polydomo.web.content import JSON, OCTETS
from polydomo.web.memodb.calls import Evaluation, MemoService, Waiter
from polydomo.web.memodb.pages import (
    CBOR,
    HTML,
    TAG_SIZE,
    Arguments,
    Following,
    ListPage,
    NodePage,
    NodeUpload,
    html_page,
    media_for,
    send,
)
from polydomo.web.memodb.reader import CborReader, JsonReader, NodeReader, OctetsReader
from polydomo.web.session import STATUS, Endpoint, HttpSession, Poll
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.frames import split
from polydomo.wire.http.head import HttpError, RequestHead
from polydomo.wire.link import Hub, LinkHandler

IMMUTABLE: Final = b"Cache-Control: max-age=604800, immutable\r\n"
MUTABLE: Final = b"Cache-Control: no-cache\r\n"
EPHEMERAL: Final = b"Cache-Control: no-store\r\n"

BAD_CID: Final = "/problems/invalid-or-unsupported-cid"
EXPECTED_CID: Final = "/problems/expected-cid"
BAD_STRING: Final = "/problems/invalid-string"
UNKNOWN_CID: Final = "/problems/unknown-cid"
BAD_WORKER: Final = "/problems/invalid-worker-info"


def read_node(head: RequestHead, body: bytes) -> Node:
    """A small Node in a request: a link, or options. Raises HttpError."""
    media = media_of(head)
    if len(body) > SMALL_VALUE:
        raise HttpError(
            413, f"the body has {len(body):,} bytes; a link or options have at most {SMALL_VALUE:,}", close=False
        )
    try:
        return body if media == OCTETS else from_json(body) if media == JSON else decode(body)
    except NodeError as error:
        raise HttpError(400, str(error), close=False) from None


def media_of(head: RequestHead) -> str:
    """The media type of a Node in a request. Raises HttpError."""
    media = head.headers.get("content-type", JSON).split(";")[0].strip().lower()
    if media not in (JSON, CBOR, OCTETS):
        raise HttpError(415, f"a Node is {JSON}, {CBOR} or {OCTETS}, not {media[:64]}", close=False)
    return media


def reader_of(head: RequestHead, body: bytes) -> NodeReader:
    """For a large Node."""
    media = media_of(head)
    return JsonReader(body) if media == JSON else CborReader(body) if media == CBOR else OctetsReader(body)


def read_cid_text(text: str) -> Cid:
    try:
        return parse_cid(text)
    except CidError as error:
        raise HttpError(400, f"{text[:100]!r}: {error}", close=False, type_=BAD_CID) from None


def read_link(head: RequestHead, body: bytes) -> Cid:
    node = read_node(head, body)
    if not isinstance(node, Cid):
        raise HttpError(400, 'the body must be a link, such as {"cid": "uAXEAAfY"}', close=False, type_=EXPECTED_CID)
    return node


def read_string(text: str) -> str:
    if not text or "\0" in text:
        raise HttpError(400, "a name must not be empty", close=False, type_=BAD_STRING)
    return text


class NodeEndpoint(Endpoint):
    """Shared by the endpoints: sends Nodes in the form that the client prefers."""

    def __init__(self, memo: MemoService) -> None:
        self.memo = memo

    def demand(self, session: HttpSession, right: str, name: str) -> None:
        """Raises HttpError if the client does not have the right."""
        why = session.broker.denial(session, right, name)
        if why:
            raise HttpError(403, why, close=False)

    def send_node(self, session: HttpSession, head: RequestHead, node: Node, cache: bytes, status: int = 200) -> None:
        """Sends a small Node."""
        media = media_for(head, isinstance(node, bytes))
        depth = self._depth(head)
        if depth and status == 200 and not isinstance(node, bytes):
            session.http.run(NodePage(self.memo, session, head, DAG_CBOR, encode(node), depth, cache))
            return
        if media == CBOR:
            content = encode(node)
        elif isinstance(node, bytes) and media == OCTETS:
            content = node
        elif media == HTML:
            content = html_page(head.path, to_json(node))
        else:
            content = to_json(node).encode("utf-8", "surrogatepass")
        send(session, head, status, media, content, blake2b(content, digest_size=TAG_SIZE).hexdigest(), cache)

    def send_list(
        self, session: HttpSession, head: RequestHead, after: "Callable[[int], list[str]]", cache: bytes = MUTABLE
    ) -> None:
        session.http.run(ListPage(self.memo, session, head, after, cache))

    def _depth(self, head: RequestHead) -> int:
        text = head.parameters().get("depth", "0")
        if not (text.isascii() and text.isdigit()) or len(text) > 3 or int(text) > MAX_NODE_DEPTH:
            raise HttpError(400, f"depth must be a number up to {MAX_NODE_DEPTH}", close=False)
        return int(text)


class CidEndpoint(NodeEndpoint):
    methods: "tuple[str, ...]" = ("GET", "HEAD", "POST")
    takes_payload = True
    right: "tuple[str, str] | None" = ("call", "memodb")

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        if path in ([], [""]):
            if head.method != "POST":
                raise HttpError(405, "POST a Node here, or GET /cid/CID", close=False)
            if len(body) <= SMALL_VALUE:
                self.created(session, self.memo.put(read_node(head, body)))
            else:
                session.http.run(NodeUpload(self.memo, session, reader_of(head, body), self.created))
            return
        if head.method == "POST" or len(path) > 1:
            raise HttpError(405 if head.method == "POST" else 404, "GET /cid/CID", close=False)
        cid = read_cid_text(path[0])
        if cid.content() is not None:  # it contains its Node, or bytes that are not a Node
            known, node = self.memo.get(cid)
            if known:
                self.send_node(session, head, node, IMMUTABLE)
                return
        data = self.memo.store.node(cid) if cid.content() is None else None
        if data is None:
            raise HttpError(404, f"{cid.text()} is not in the store", close=False)
        session.http.run(NodePage(self.memo, session, head, cid.content_type, data, self._depth(head), IMMUTABLE))

    def created(self, session: HttpSession, cid: Cid) -> None:
        session.respond(201, f"Location: /cid/{cid.text()}\r\n".encode())


class HeadEndpoint(NodeEndpoint):
    methods: "tuple[str, ...]" = ("GET", "HEAD", "PUT")
    right: "tuple[str, str] | None" = ("call", "memodb")

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        store = self.memo.store
        if path in ([], [""]):
            if head.method == "PUT":
                raise HttpError(405, "PUT /head/NAME", close=False)
            self.send_list(session, head, Following(store.heads, lambda name: f"/head/{quote(name, safe='/')}").next)
            return
        name = read_string("/".join(path))
        if head.method == "PUT":
            store.set_head(name, read_link(head, body))
            session.respond(201, b"")
            return
        cid = store.head(name)
        if cid is None:
            raise HttpError(404, f"unknown head {name[:100]!r}", close=False)
        self.send_node(session, head, cid, MUTABLE)


class EvaluatePoll(Waiter):
    """A ``POST .../evaluate`` that waits for the result (``Prefer: wait``)."""

    def __init__(
        self, session: HttpSession, endpoint: "MemoCallEndpoint", head: RequestHead, evaluation: Evaluation
    ) -> None:
        self.session = session
        self.endpoint = endpoint
        self.head = head
        self.evaluation = evaluation
        evaluation.waiters[self] = None

    def done(self) -> None:
        self.evaluation.waiters.pop(self, None)
        self.session.carried = None

    def abandoned(self) -> None:
        self.done()

    def on_poll_over(self) -> None:
        self.done()
        self.session.respond(202, EPHEMERAL)

    def evaluated(self, result: Cid) -> None:
        self.done()
        self.endpoint.send_node(self.session, self.head, result, MUTABLE)

    def failed(self, code: str, text: str) -> None:
        self.done()
        send_failure(self.session, code, text)


def send_failure(session: HttpSession, code: str, text: str) -> None:
    session.problem(
        STATUS.get(code, 502), code if code in STATUS else FAILED, text, code="" if code in STATUS else code
    )


class MemoCallEndpoint(NodeEndpoint):
    methods: "tuple[str, ...]" = ("GET", "HEAD", "PUT", "POST", "DELETE")

    def __init__(self, memo: MemoService, workers: "MemoWorkers") -> None:
        super().__init__(memo)
        self.workers = workers

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        method = head.method
        reads = method in ("GET", "HEAD")
        if path in ([], [""]):
            self._allow(reads, "GET, HEAD")
            self.demand(session, "call", "memodb")
            self.send_list(
                session, head, Following(self.memo.store.funcs, lambda func: f"/call/{quote(func, safe='')}").next
            )
            return
        func = read_string(path[0])
        if len(func.encode()) > MAX_SERVICE_NAME:
            raise HttpError(
                400, f"a function's name has at most {MAX_SERVICE_NAME} bytes", close=False, type_=BAD_STRING
            )
        if session.broker.is_reserved(func.encode()):
            raise HttpError(403, f"{func!r} is a built-in service and has no stored calls; use /v1/call", close=False)
        # putting or deleting results is a worker's right
        self.demand(session, "offer" if method in ("PUT", "DELETE") else "call", func)
        if len(path) == 1:
            self._allow(reads or method == "DELETE", "DELETE, GET, HEAD")
            self._func(session, head, func)
            return
        args = [read_cid_text(text) for text in path[1].split(",")]
        if len(path) == 2:
            self._allow(reads or method == "PUT", "GET, HEAD, PUT")
            self._result(session, head, func, args, body)
        elif path[2:] == ["evaluate"]:
            self._allow(method == "POST", "POST")
            self._evaluate(session, head, func, args, body)
        else:
            raise HttpError(404, "only /evaluate may follow the arguments", close=False)

    def _allow(self, allowed: bool, methods: str) -> None:
        if not allowed:
            raise HttpError(405, f"the method is not allowed here; use {methods}", close=False)

    def _func(self, session: HttpSession, head: RequestHead, func: str) -> None:
        if head.method == "DELETE":
            self.memo.store.delete_calls(func)
            session.respond(204, b"")
            return
        last: list[Cid] = []

        def after(most: int) -> "list[str]":
            calls = self.memo.store.calls(func, last, most)
            if calls:
                last[:] = calls[-1]
            return [f"/call/{quote(func, safe='')}/{','.join(cid.text() for cid in args)}" for args in calls]

        self.send_list(session, head, after)

    def _result(self, session: HttpSession, head: RequestHead, func: str, args: "list[Cid]", body: bytes) -> None:
        if head.method == "PUT":
            result = read_link(head, body)
            self.memo.settle(func, args, result)
            self.workers.settle(func, args, result)
            session.respond(201, b"")
            return
        found = self.memo.store.call(func, args)
        if found is None:
            raise HttpError(404, "the call has no result in the store", close=False)
        self.send_node(session, head, found, MUTABLE)

    def _evaluate(self, session: HttpSession, head: RequestHead, func: str, args: "list[Cid]", body: bytes) -> None:
        found = self.memo.store.call(func, args)
        if found is not None:
            self.send_node(session, head, found, MUTABLE)
            return
        timeout = self._timeout(head, body)
        evaluation = self.memo.find(func, args)
        if evaluation is not None:
            self._wait(session, head, func, args, evaluation)
            return

        def then(frames: "list[bytes]") -> None:
            started = self.memo.evaluate(session.principal, func, args, timeout, frames)
            self._wait(session, head, func, args, started)

        session.http.run(Arguments(self.memo, args, then, lambda why: send_failure(session, INVALID_ARGUMENTS, why)))

    def _wait(
        self,
        session: HttpSession,
        head: RequestHead,
        func: str,
        args: "list[Cid]",
        evaluation: "Evaluation | tuple[str, str]",
    ) -> None:
        if isinstance(evaluation, tuple):
            send_failure(session, *evaluation)
            return
        found = self.memo.store.call(func, args)  # the call may have ended already
        if found is not None:
            self.send_node(session, head, found, MUTABLE)
            return
        wait = preferences(head).get("wait")
        if wait is None:
            session.respond(202, EPHEMERAL)
        else:
            session.carried = EvaluatePoll(session, self, head, evaluation)
            session.broker.set_timer(min(duration(wait, "Prefer: wait"), MEMODB_POLL), session, session.carried)

    def _timeout(self, head: RequestHead, body: bytes) -> float:
        if not body:
            return MEMODB_TIMEOUT
        options = read_node(head, body)
        timeout = options.get("timeout", MEMODB_TIMEOUT) if isinstance(options, dict) else None
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_HTTP_TIMEOUT:
            raise HttpError(400, 'the body must be a map; its "timeout" is a number of seconds', close=False)
        return float(timeout)


# --- POST /worker ------------------------------------------------------------------------------------------------------------


class MemoWorkers:
    """The workers that poll with ``POST /worker``, and the call that each of them holds."""

    def __init__(self, broker: BrokerApi, memo: MemoService) -> None:
        self.broker = broker
        self.memo = memo
        self.hub = Hub()
        self.holding: dict[tuple[str, tuple[Cid, ...]], list[HttpMemoWorker]] = {}

    def settle(self, func: str, args: "list[Cid]", result: Cid) -> None:
        """A result was put: it ends the requests of workers that hold this call."""
        for worker in self.holding.pop((func, tuple(args)), []):
            worker.answer(result)


class HttpMemoWorker(ProtocolSession):
    """One ``POST /worker``: it gets one call, and ends when the result is put."""

    protocol = "memodb"

    def __init__(self, workers: MemoWorkers, poll: "WorkerPoll", peer: str) -> None:
        super().__init__(workers.broker, DetachedLink(workers.hub, LinkHandler(), peer))
        self.all = workers
        self.poll: WorkerPoll | None = poll
        self.worker: Worker | None = None
        self.token = b""
        self.key: tuple[str, tuple[Cid, ...]] | None = None
        self.alarm = Alarm(self)  # of the poll, then of the call

    def start(self, funcs: "list[bytes]") -> str:
        """Registers the worker; returns the reason if that is refused."""
        broker = self.broker
        broker.session_opened(self)
        worker = broker.register_worker(self, funcs, None, WorkerTerms())
        if isinstance(worker, Refusal):
            broker.session_closed(self, CloseReason(CloseCause.REFUSED))
            return worker.text
        self.worker = worker
        broker.add_credit(worker)
        return ""

    def deliver(self, worker: Worker, request: Request) -> None:
        poll, self.poll = self.poll, None
        self.token = request.token
        func = request.service.name.decode("utf-8", "replace")
        evaluation = request.ref
        if isinstance(evaluation, Evaluation):
            args = evaluation.key[1]
        else:  # a client of another protocol: each frame is an argument
            args = tuple(self.all.memo.put(frame) for frame in split(request.body))
        self.key = (func, args)
        self.all.holding.setdefault(self.key, []).append(self)
        self.alarm.set(request.max_run or MEMODB_TIMEOUT)
        if poll is not None:
            poll.session.carried = None
            poll.endpoint.send_node(poll.session, poll.head, {"func": func, "args": list(args)}, EPHEMERAL)

    def on_timer(self, key: object) -> None:
        if key is self:
            self.broker.session_closed(self, CloseReason(CloseCause.SILENT, "no result in time"))
        elif key is self.poll:
            self._end_poll()
            self.broker.session_closed(self, CloseReason(CloseCause.COMPLETE, "no call arrived"))

    def _end_poll(self) -> None:
        """Answers the poll with null: no call arrived."""
        poll, self.poll = self.poll, None
        if poll is not None:
            poll.session.carried = None
            poll.endpoint.send_node(poll.session, poll.head, None, EPHEMERAL)

    def answer(self, result: Cid) -> None:
        frames, why = self.all.memo.reply_of(result)
        if self.worker is not None:
            if why:
                self.broker.fail(self.worker, self.token, FAILED, why)
            else:
                self.broker.final(self.worker, self.token, frames)
        self.broker.session_closed(self, CloseReason(CloseCause.COMPLETE, "answered"))

    def dismiss(self, worker: Worker) -> None:
        self._end_poll()

    def on_worker_gone(self, worker: Worker) -> None:
        self._end_poll()
        if self.key is not None:
            held = self.all.holding.get(self.key, [])
            if self in held:
                held.remove(self)
                if not held:
                    del self.all.holding[self.key]


class WorkerPoll(Poll):
    def __init__(self, session: HttpSession, endpoint: "MemoWorkerEndpoint", head: RequestHead) -> None:
        self.session = session
        self.endpoint = endpoint
        self.head = head
        self.worker: HttpMemoWorker | None = None

    def abandoned(self) -> None:
        if self.worker is not None:
            self.worker.poll = None
            self.worker.broker.session_closed(
                self.worker, CloseReason(CloseCause.CONNECTION_LOST, "the poll was closed")
            )


class MemoWorkerEndpoint(NodeEndpoint):
    methods: "tuple[str, ...]" = ("POST",)

    def __init__(self, memo: MemoService, workers: MemoWorkers) -> None:
        super().__init__(memo)
        self.workers = workers

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        cid = read_link(head, body)
        data = self.memo.store.node(cid)
        if data is not None and len(data) > MAX_CONTROL:
            raise HttpError(
                400, f"the worker info has more than {MAX_CONTROL:,} bytes (MAX_CONTROL)", close=False, type_=BAD_WORKER
            )
        known, info = self.memo.get(cid)
        if not known:
            raise HttpError(400, f"{cid.text()} is not in the store", close=False, type_=UNKNOWN_CID)
        funcs = info.get("funcs") if isinstance(info, dict) else None
        if not isinstance(funcs, list) or not all(isinstance(func, str) and func for func in funcs) or not funcs:
            raise HttpError(
                400, 'the worker info must be a map with "funcs", a list of names', close=False, type_=BAD_WORKER
            )
        poll = WorkerPoll(session, self, head)
        for func in funcs:
            self.demand(session, "offer", str(func))
        worker = poll.worker = HttpMemoWorker(self.workers, poll, session.http.peer)
        worker.principal = session.principal
        session.carried = poll
        worker.alarm.set(MEMODB_POLL)
        why = worker.start([func.encode() for func in funcs if isinstance(func, str)])
        if why:
            session.carried = None
            raise HttpError(503, why, close=False)
