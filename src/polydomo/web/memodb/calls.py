"""MemoDB's calls: a call is a request for the service of that name, evaluated once by a worker of any protocol.

The session has no connection: it is a client of the broker on behalf of all clients that want the same result, and continues after they
have disconnected. A worker gets one frame for each argument: a byte string or text unchanged, any other Node as MemoDB JSON. Its reply is
a byte string Node, or a list of them if it has several frames.
"""

from typing import Final

from polydomo.limits import MAX_BODY_FRAMES, MAX_CONTROL, MAX_EVALUATIONS, MAX_FAILED_EVALUATIONS
from polydomo.model import principals
from polydomo.model.broker_api import BrokerApi
from polydomo.model.detached_link import DetachedLink
from polydomo.model.records import Request
from polydomo.model.request_options import RequestOptions
from polydomo.model.session import ProtocolSession
from polydomo.protocols.memo.cid import RAW, Cid
from polydomo.protocols.memo.node import CborHeads, Node, NodeError, node_cid, node_from
from polydomo.protocols.memo.node_json import to_json
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.web.session import Poll
from polydomo.wire.frames import Body, join, split
from polydomo.wire.link import Hub, LinkHandler

Key = tuple[str, tuple[Cid, ...]]

MISSING: Final = "an argument is not in the store: "


class Waiter(Poll):
    """Is notified when an evaluation ends."""

    def evaluated(self, result: Cid) -> None:
        raise NotImplementedError

    def failed(self, code: str, text: str) -> None:
        raise NotImplementedError


class Evaluation:
    """A call that is being evaluated; ``Request.ref`` of its request."""

    def __init__(self, key: Key, principal: str) -> None:
        self.key = key
        self.principal = (
            principal  # of the client that asked first: its request needs the right, and is charged to its quota
        )
        self.waiters: dict[Waiter, None] = {}


class MemoService(ProtocolSession):
    """See the module docstring."""

    protocol = "memodb"
    refuses_at_limit = True
    principal = principals.MEMO
    origin_is_principal = False
    charges_origin = True

    def __init__(self, broker: BrokerApi, store: MemoValues) -> None:
        super().__init__(broker, DetachedLink(Hub(), LinkHandler(), "the broker's memo store"))
        self.store = store
        self.running: dict[Key, Evaluation] = {}
        self.failures: dict[Key, tuple[str, str]] = {}  # failures of evaluations, until a client has received them
        self._opened = False

    def origin_of(self, request: Request) -> str:
        return request.ref.principal if isinstance(request.ref, Evaluation) else ""

    # --- Nodes

    def put(self, node: Node) -> Cid:
        cid, data = node_cid(node)
        self.store.put_node(cid, data)
        return cid

    def put_data(self, cid: Cid, data: bytes) -> None:
        """Stores a Node that is encoded already."""
        self.store.put_node(cid, data)

    def get(self, cid: Cid) -> "tuple[bool, Node]":
        """(known, Node). A CID may contain bytes that are not a Node; then it is not known."""
        data = self.store.node(cid)
        if data is None:
            return False, None
        try:
            return True, node_from(cid, data)
        except NodeError:
            return False, None

    def reply_of(self, cid: Cid) -> "tuple[bytes, str]":
        """A result as the reply for a client of another protocol, or why it cannot be one."""
        data = self.store.node(cid)
        if data is None:
            return b"", "the result is not in the store"
        if cid.content_type == RAW:
            return join([data]), ""
        if len(data) > MAX_CONTROL and not is_list_of_octets(data):
            return (
                b"",
                f"the result has {len(data):,} bytes; one that is not a byte string, or a list of them, has at most {MAX_CONTROL:,}",
            )
        known, node = self.get(cid)
        return (frames_of(node), "") if known else (b"", "the result is not a Node")

    # --- calls

    def find(self, func: str, args: "list[Cid]") -> "Evaluation | tuple[str, str] | None":
        """The running evaluation of a call, or the code and text of its failure. None if it can be started."""
        key = (func, tuple(args))
        evaluation = self.running.get(key)
        if evaluation is not None:
            return evaluation
        failure = self.failures.pop(key, None)
        if failure is not None:
            return failure
        if len(self.running) >= MAX_EVALUATIONS:
            return "refused", f"{MAX_EVALUATIONS} calls are being evaluated"
        return None

    def evaluate(
        self, principal: str, func: str, args: "list[Cid]", timeout: float, frames: "list[bytes]"
    ) -> "Evaluation | tuple[str, str]":
        """Starts the evaluation of a call whose arguments have these frames, or returns the running one. If it fails at once, returns
        the code and text."""
        key = (func, tuple(args))
        running = self.running.get(key)
        if running is not None:
            return running
        if not self._opened:
            self._opened = True
            self.broker.session_opened(self)
        evaluation = self.running[key] = Evaluation(key, principal)
        self.broker.request(self, func.encode(), join(frames), evaluation, 0.0, RequestOptions(max_run=timeout))
        return self.failures.pop(key, None) or evaluation  # it may have been refused at once

    def settle(self, func: str, args: "list[Cid]", result: Cid) -> None:
        """Called when the result of a call is known."""
        self.store.set_call(func, args, result)
        key = (func, tuple(args))
        self.failures.pop(key, None)
        evaluation = self.running.pop(key, None)
        if evaluation is not None:
            for waiter in list(evaluation.waiters):
                waiter.evaluated(result)

    # --- as a client

    def send_final(self, request: Request, body: Body) -> None:
        evaluation = request.ref
        if isinstance(evaluation, Evaluation) and self.running.get(evaluation.key) is evaluation:
            func, args = evaluation.key
            self.settle(func, list(args), self.put(node_of(body)))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        evaluation = request.ref
        if isinstance(evaluation, Evaluation) and self.running.get(evaluation.key) is evaluation:
            del self.running[evaluation.key]
            if evaluation.waiters:
                for waiter in list(evaluation.waiters):
                    waiter.failed(code, text)
            else:
                self.failures[evaluation.key] = code, text
                if len(self.failures) > MAX_FAILED_EVALUATIONS:
                    del self.failures[next(iter(self.failures))]


def is_list_of_octets(data: bytes) -> bool:
    """Whether the CBOR is a list of byte strings, and has no more of them than a message has frames."""
    reader = CborHeads(data)
    major, count = reader.next()
    if major != 4 or count > MAX_BODY_FRAMES:
        return False
    for _ in range(count):
        major, size = reader.next()
        if major != 2:
            return False
        reader.at += size
    return True


def frame_of(node: Node) -> bytes:
    """An argument in the form that workers get."""
    if isinstance(node, bytes):
        return node
    if isinstance(node, str):
        return node.encode()
    return to_json(node).encode()


def node_of(body: Body) -> Node:
    """The Node for a worker's reply."""
    frames = split(body)
    if len(frames) == 1:
        return frames[0]
    return list(frames)


def frames_of(node: Node) -> bytes:
    """The reply for a client of another protocol: a list of byte strings has one frame for each."""
    if isinstance(node, list) and node and all(isinstance(item, bytes) for item in node):
        return join([item for item in node if isinstance(item, bytes)])
    return join([frame_of(node)])
