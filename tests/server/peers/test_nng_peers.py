"""memo01 with real NNG peers (pynng REQ sockets with many contexts), over real sockets."""

import contextlib
import io
import threading
from collections.abc import Callable
from pathlib import Path

import cbor2
import pynng
import pytest

import polydomo
import polydomo.testing

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = 1, 2, 3, 4, 5
PATIENCE = 60_000  # milliseconds: a build machine may be slow, a broken dialog never ends
QUEUED = {"memo.queue_expiry": "10m"}


def dump(*header: object, payload: bytes = b"") -> bytes:
    return bytes(cbor2.dumps(["memo01", *header], canonical=True)) + payload


def load(message: bytes) -> tuple[list[object], bytes]:
    stream = io.BytesIO(message)
    header = cbor2.load(stream)
    assert header[0] == "memo01"
    return header[1:], stream.read()


def ask(context: pynng.Context, *header: object, payload: bytes = b"") -> tuple[list[object], bytes]:
    return exchange(context, dump(*header, payload=payload))


def exchange(context: pynng.Context, message: bytes) -> tuple[list[object], bytes]:
    context.send(message)
    return load(context.recv())


class Nng:
    """A REQ socket with many contexts, and a thread for each worker on it."""

    def __init__(self, url: str, **options: object) -> None:
        timeouts = {"recv_timeout": PATIENCE, "send_timeout": PATIENCE}
        self.socket = pynng.Req0(dial=url, recv_max_size=0, **timeouts, **options)
        self.contexts: list[pynng.Context] = []
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()  # NNG aborts the process if a socket is closed while a context of it sends
        self.closed = False

    def __enter__(self) -> "Nng":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.socket.close()
        for thread in self.threads:
            thread.join(PATIENCE / 1000)
        for context in self.contexts:
            with contextlib.suppress(pynng.Closed):  # it is, with its socket; this tells pynng
                context.close()

    def context(self) -> pynng.Context:
        self.contexts.append(self.socket.new_context())
        return self.contexts[-1]

    def call(self, service: str, payload: bytes) -> bytes:
        header, result = ask(self.context(), JOB, b"", service, 600_000, payload=payload)
        assert header == [RESULT, b""]
        return result

    def work(self, services: list[str], function: Callable[[bytes], bytes]) -> list[int]:
        """A worker as the authors of memo01 would write it: a context, a thread, a loop. Returns the messages it receives."""
        heard: list[int] = []
        services = sorted(services, key=lambda name: (len(name), name))
        thread = threading.Thread(target=self.serve, args=(self.context(), services, function, heard))
        self.threads.append(thread)
        thread.start()
        return heard

    def serve(
        self, context: pynng.Context, services: list[str], function: Callable[[bytes], bytes], heard: list[int]
    ) -> None:
        message = dump(READY, b"", services)
        while True:
            try:
                with self.lock:
                    if self.closed:
                        return
                    context.send(message)
                header, payload = load(context.recv())
            except pynng.NNGException:
                return  # the test closed the socket
            kind, worker = header[:2]
            assert isinstance(kind, int)
            heard.append(kind)
            if kind == JOB:
                message = dump(RESULT, worker, payload=function(payload))
            elif kind == HEARTBEAT:
                message = dump(HEARTBEAT, worker)
            else:
                assert kind == DISCONNECT
                message = dump(READY, b"", services)


@pytest.fixture(params=["tcp4", "tcp6", "ipc"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"tcp4": "tcp://127.0.0.1:0", "tcp6": "tcp://[::1]:0", "ipc": f"ipc://{tmp_path}/memo.socket"}[request.param]


def test_many_clients_and_workers_share_one_socket(url: str) -> None:
    with polydomo.testing.broker(url, QUEUED) as broker, Nng(broker.url) as peer:
        for _ in range(20):
            peer.work(["up", "shout"], bytes.upper)
        broker.wait_for("up", 20)
        contexts = [peer.context() for _ in range(100)]
        for number, context in enumerate(contexts):
            context.send(dump(JOB, b"", "up", 600_000, payload=b"job %d" % number))
        for number, context in reversed(list(enumerate(contexts))):
            assert load(context.recv()) == ([RESULT, b""], b"JOB %d" % number)


def test_payloads_from_none_to_many_megabytes(url: str) -> None:
    with polydomo.testing.broker(url, QUEUED) as broker, Nng(broker.url) as work, Nng(broker.url) as client:
        work.work(["echo"], bytes)
        for size in (0, 1, 1000, 70_000, 8 << 20):
            payload = (b"0123456789abcdef" * (size // 16 + 1))[:size]
            assert client.call("echo", payload) == payload


def test_a_request_that_nng_repeats_is_run_once(broker: polydomo.testing.Broker) -> None:
    runs: list[bytes] = []
    repeated = threading.Event()

    def slow(payload: bytes) -> bytes:
        runs.append(payload)
        repeated.wait(PATIENCE / 1000)
        return b"done"

    with Nng(broker.url) as work, Nng(broker.url, resend_time=20) as client:
        work.work(["slow"], slow)
        broker.wait_for("slow")
        job = dump(JOB, b"", "slow", 600_000, payload=b"x")
        context = client.context()
        before: list[int] = []
        broker.wait_until(lambda server: not before.append(server.hub.received))  # type: ignore[func-returns-value]
        context.send(job)
        broker.wait_until(lambda server: server.hub.received > before[0] + 5 * len(job))
        repeated.set()
        assert load(context.recv()) == ([RESULT, b""], b"done")
        assert client.call("slow", b"y") == b"done"
    assert runs == [b"x", b"y"]


def test_a_worker_that_dies_with_its_socket_gives_its_job_to_another(broker: polydomo.testing.Broker) -> None:
    with Nng(broker.url) as client, Nng(broker.url) as other:
        with Nng(broker.url) as doomed:
            context = doomed.context()
            context.send(dump(READY, b"", ["echo"]))
            broker.wait_for("echo")
            waiting = client.context()
            waiting.send(dump(JOB, b"", "echo", 600_000, payload=b"x"))
            header, payload = load(context.recv())
            assert header[0] == JOB and payload == b"x"
            other.work(["echo"], bytes.upper)
            broker.wait_for("echo", 2)
        assert load(waiting.recv()) == ([RESULT, b""], b"X")
        broker.wait_for("echo", 1)


def test_workers_register_again_with_a_broker_that_was_restarted(broker: polydomo.testing.Broker) -> None:
    with Nng(broker.url, reconnect_time_min=10, reconnect_time_max=50) as peer:
        heard = [peer.work(["echo"], bytes) for _ in range(3)]
        broker.wait_for("echo", 3)
        assert peer.call("echo", b"before") == b"before"
        broker.kill()
        broker.start()
        broker.wait_for("echo", 3)
        assert peer.call("echo", b"after") == b"after"
    assert sum(DISCONNECT in kinds for kinds in heard) == 1  # the one that had an id


def test_the_disconnecting_flag(broker: polydomo.testing.Broker) -> None:
    with Nng(broker.url) as peer:
        worker, client = peer.context(), peer.context()
        worker.send(dump(READY, b"", ["echo"]))
        client.send(dump(JOB, b"", "echo", 600_000, payload=b"x"))
        header, payload = load(worker.recv())
        assert header[0] == JOB and header[2:] == ["echo", 600_000] and payload == b"x"
        assert ask(worker, RESULT, header[1], True, payload=b"y") == ([DISCONNECT, header[1]], b"")
        assert load(client.recv()) == ([RESULT, b""], b"y")
        broker.wait_for("echo", 0)


def test_the_window_is_the_number_of_requests_to_submit(broker: polydomo.testing.Broker) -> None:
    with Nng(broker.url) as work, Nng(broker.url) as client:
        for _ in range(4):
            work.work(["echo"], bytes)
        broker.wait_for("echo", 4)
        assert int(client.call("polydomo.window", b"echo")) >= 4


def test_our_client_reaches_an_nng_worker(broker: polydomo.testing.Broker) -> None:
    with Nng(broker.url) as peer, polydomo.Client(broker.url, protocol="memo") as client:
        peer.work(["up"], bytes.upper)
        broker.wait_for("up")
        assert client.call("up", "hello").text == "HELLO"


@pytest.mark.parametrize("protocol", ["memo", "mdp1", "mdp2"])
def test_an_nng_client_reaches_our_worker(broker: polydomo.testing.Broker, protocol: str) -> None:
    worker = polydomo.Worker(broker.url, protocol=protocol)
    worker.add("up", lambda call: call.text.upper())
    with worker, Nng(broker.url) as client:
        assert client.call("up", b"hello") == b"HELLO"
        assert client.call("up", b"again") == b"AGAIN"


def test_a_pub_socket_is_turned_away(broker: polydomo.testing.Broker, caplog: pytest.LogCaptureFixture) -> None:
    text = "protocol violation: SP protocol 0x0020 (PUB): REP talks to REQ only"
    with pynng.Pub0(dial=broker.url), Nng(broker.url) as client:
        assert client.call("mmi.service", b"nobody") == b"404"
        broker.wait_until(lambda server: any(text in str(vars(record)) for record in caplog.records))
