"""``call`` and ``work`` with other brokers: loops over libzmq and NNG, written from each protocol's document."""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import cbor2
import pynng
import pytest
import zmq

from tests.cli.shell import PATIENCE, Running, complaint, run, run_into_timeout
from tests.server.harness import wait_for

Frames = list[bytes]
DGBX = b"DGBX\x01"


class Router:
    """One worker and one client at a ROUTER; ``step`` takes each message and says what to send to whom."""

    def __init__(self, step: "Callable[[Router, bytes, Frames], None]") -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.url = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.step = step
        self.worker = b""
        self.waiting: deque[tuple[bytes, Frames]] = deque()
        self.registered = threading.Event()
        self.strange: list[Frames] = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        with self.socket, suppress(zmq.ContextTerminated):  # an open socket would let close() wait for ever
            self.socket.linger = 0
            while True:
                peer, *message = self.socket.recv_multipart()
                self.step(self, peer, message)

    def send(self, peer: bytes, *frames: bytes) -> None:
        self.socket.send_multipart([peer, *frames])

    def register(self, peer: bytes) -> None:
        self.worker = peer
        self.registered.set()

    def close(self) -> None:
        self.context.term()
        self.thread.join(PATIENCE)


def mdp1(broker: Router, peer: bytes, message: Frames) -> None:
    empty, header, *rest = message
    assert empty == b""
    if header == b"MDPC01":
        broker.send(broker.worker, b"", b"MDPW01", b"\x02", peer, b"", *rest[1:])
    elif rest[0] == b"\x01":
        broker.register(peer)
    elif rest[0] == b"\x03":
        broker.send(rest[1], b"", b"MDPC01", b"upper", *rest[3:])
    elif rest[0] not in (b"\x04", b"\x05"):
        broker.strange.append(message)


def mdp2(broker: Router, peer: bytes, message: Frames) -> None:
    header, command, *rest = message
    if header == b"MDPC02":
        assert command == b"\x01"
        broker.send(broker.worker, b"MDPW02", b"\x02", peer, b"", *rest[1:])
    elif command == b"\x01":
        broker.register(peer)
    elif command in (b"\x03", b"\x04"):
        broker.send(rest[0], b"MDPC02", bytes((command[0] - 1,)), b"upper", *rest[2:])
    elif command not in (b"\x05", b"\x06"):
        broker.strange.append(message)


def mdx(broker: Router, peer: bytes, message: Frames) -> None:
    """With a frame 0 of its own: the draft leaves it open."""
    header, command, *rest = message
    if header != b"PROTO" and message != [b"MDPW02", b"\x06"]:
        broker.strange.append(message)
    elif command == b"\x01" and len(rest) == 1:
        broker.register(peer)
    elif command == b"\x01":
        broker.send(broker.worker, b"PROTO", b"\x02", peer, b"", rest[1], *rest[2:])
    elif command == b"PING":
        broker.send(peer, b"PROTO", b"PONG")
    elif command in (b"\x03", b"\x04"):
        broker.send(rest[0], b"PROTO", bytes((command[0] - 1,)), b"upper", rest[2], *rest[3:])


def dcp(broker: Router, peer: bytes, message: Frames) -> None:
    """As DagBox's own broker: a type of four bytes and nothing else."""
    empty, header, kind, *rest = message
    if (empty, header, len(kind)) != (b"", DGBX, 4):
        broker.strange.append(message)
        return
    number = int.from_bytes(kind, "little")
    if number == 1:
        broker.send(peer, *message)
        broker.register(peer)
    elif number == 2:
        broker.send(peer, b"", DGBX, b"\x03\0\0\0")
    elif number == 4:
        service, after, *parts = rest
        assert after == b""
        broker.send(broker.worker, b"", DGBX, kind, service, peer, b"", *parts)
    elif number == 5:
        broker.send(rest[0], *message)


def emqp(broker: Router, peer: bytes, message: Frames) -> None:
    """Like EventMQ's router, which also notifies the client that its job was dispatched."""
    _, header, command, msgid, *rest = message
    assert header == b"eMQP/1.0"
    if command == b"INFORM":
        broker.register(peer)
        broker.send(peer, b"", header, b"ACK", b"r1", msgid)
        broker.send(peer, b"", header, b"HEARTBEAT", b"r2", b"1.0")
    elif command == b"REQUEST":
        broker.waiting.append((peer, [msgid]))
        broker.send(broker.worker, b"", header, b"REQUEST", msgid, *rest)
        broker.send(peer, b"", header, b"REPLY", b"r3", b'{"sent": true}')
    elif command == b"REPLY":
        client, (asked,) = broker.waiting.popleft()
        broker.send(client, b"", header, b"REPLY", b"r4", rest[0], asked)
    elif command not in (b"READY", b"HEARTBEAT", b"DISCONNECT"):
        broker.strange.append(message)


ROUTERS: dict[str, tuple[Callable[[Router, bytes, Frames], None], list[str]]] = {
    "mdp1": (mdp1, []),
    "mdp2": (mdp2, []),
    "mdx": (mdx, ["--frame0", "PROTO"]),
    "dcp": (dcp, ["--type-size", "4"]),
    "emqp": (emqp, []),
}


@contextmanager
def router(protocol: str) -> Iterator[Router]:
    broker = Router(ROUTERS[protocol][0])
    try:
        yield broker
    finally:
        broker.close()


@pytest.mark.parametrize("protocol", ROUTERS)
def test_a_worker_and_a_call(protocol: str) -> None:
    with router(protocol) as broker:
        words = ["--to", broker.url, "--protocol", protocol, *ROUTERS[protocol][1]]
        with Running("work", "upper", *words, "--", "tr", "a-z", "A-Z"):
            assert broker.registered.wait(PATIENCE)
            for body in ("hello", "again"):
                result = run("call", "upper", body, "--no-ask", *words)
                assert (result.returncode, result.stdout) == (0, body.upper().encode() + b"\n"), result.stderr
        assert broker.strange == []


@pytest.mark.parametrize("protocol", ROUTERS)
def test_no_broker_answers(protocol: str) -> None:
    """With --no-ask such a broker is asked nothing but the call."""
    seen: list[Frames] = []
    broker = Router(lambda _, peer, message: seen.append(message))
    try:
        words = ["--to", broker.url, "--protocol", protocol, *ROUTERS[protocol][1]]
        run_into_timeout("call", "upper", "hello", "--no-ask", *words)
        wait_for(lambda: bool(seen), "the call")
    finally:
        broker.close()
    assert len(seen) == 1 and b"upper" in seen[0]


def test_memo_with_an_nng_rep_socket() -> None:
    """memo01's broker in a few lines: two contexts of a REP socket, one for the worker's poll and one for the client's job."""
    with pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=int(PATIENCE * 1000)) as socket:
        url = str(socket.listeners[0].local_address)
        url = url if url.startswith("tcp://") else f"tcp://{url}"
        failures: list[BaseException] = []

        def serve() -> None:
            try:
                with socket.new_context() as poll, socket.new_context() as job:
                    ready = poll.recv()
                    assert cbor2.loads(ready) == ["memo01", 1, b"", ["upper"]]
                    registered.set()
                    asked = io.BytesIO(job.recv())
                    *head, milliseconds = cbor2.CBORDecoder(asked).decode()
                    assert head == ["memo01", 2, b"", "upper"] and 0 < milliseconds <= 20_000
                    poll.send(cbor2.dumps(["memo01", 2, b"w1", "upper", milliseconds], canonical=True) + asked.read())
                    result = io.BytesIO(poll.recv())
                    assert cbor2.CBORDecoder(result).decode() == ["memo01", 3, b"w1"]
                    job.send(cbor2.dumps(["memo01", 3, b""], canonical=True) + result.read())
            except BaseException as error:
                failures.append(error)

        registered = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        with Running("work", "upper", "--to", url, "--protocol", "memo", "--", "tr", "a-z", "A-Z"):
            assert registered.wait(PATIENCE)
            result = run("call", "upper", "hello", "--to", url, "--protocol", "memo", "--no-ask", "--timeout", "20")
            thread.join(PATIENCE)
            assert failures == []
            assert (result.returncode, result.stdout) == (0, b"HELLO\n"), result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--type-size", "4"], "--type-size: only dcp has this option, not mdx"),
        (["--type-size", "2", "--protocol", "dcp"], "--type-size: must be 1 or 4, not 2"),
        (["--frame0", "X", "--protocol", "memo"], "--frame0: only mdx has this option, not memo"),
    ],
)
@pytest.mark.parametrize("command", [["call", "echo", "x"], ["work", "echo", "--echo"]])
def test_options_that_a_protocol_does_not_support(command: list[str], words: list[str], says: str) -> None:
    result = run(*command, *words)
    assert result.returncode == 2
    assert complaint(result) == says


def test_a_dbp_client_sends_no_requests() -> None:
    result = run("call", "echo", "x", "--protocol", "dbp")
    assert result.returncode == 2
    assert complaint(result) == "--protocol: dbp clients send no requests; use another protocol, or `polydomo catalog`"
