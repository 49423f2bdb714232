"""``polydomo up --processes``: real processes behind one address."""

import asyncio
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

from polydomo import Client
from polydomo.client.catalog import AsyncCatalog
from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.reader import Reader
from polydomo.journal.schema import KINDS
from polydomo.limits import SIBLING_ANSWER
from tests.cli.shell import PATIENCE, Broker, Gate, Running, complaint, run, script
from tests.server.harness import wait_for


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", "--processes", "2") as broker:
        yield broker


async def look(url: str, times: int) -> "list[dict[str, object]]":
    """The catalog over DBP, over a connection of its own each time."""
    found = []
    for _ in range(times):
        async with AsyncCatalog(url) as catalog:
            services, _ = await catalog.look()
            found.append(services)
    return found


def whole(ask: Callable[[], Any]) -> Any:
    """An answer that is about both processes: one that took as long as a process waits for another may not be."""
    end = time.monotonic() + PATIENCE
    while True:
        began = time.monotonic()
        answer = ask()
        if time.monotonic() < began + SIBLING_ANSWER or began > end:
            return answer


def asked(broker: Broker, what: str) -> Any:
    return whole(lambda: broker.ask(what))


def pids(broker: Broker) -> dict[int, int]:
    return {row["process"]: row["pid"] for row in asked(broker, "status")["processes"]}


def metrics(broker: Broker) -> str:
    with urllib.request.urlopen(broker.url.replace("tcp", "http") + "/metrics", timeout=PATIENCE) as response:
        page: bytes = response.read()
    return page.decode()


def places(rows: "list[dict[str, Any]]") -> set[int]:
    """The processes of these workers."""
    return {int(row["worker"][1:]) // 1_000_000 for row in rows}


def spread(broker: Broker, stack: ExitStack, service: str, *words: str) -> None:
    """Workers of the service until both processes have one."""
    for _ in range(20):
        stack.enter_context(broker.worker(service, *words))
        if len(places([row for row in asked(broker, "workers") if service in row["services"]])) == 2:
            return
    raise AssertionError("no worker came to one of the processes")


def test_calls_cross_in_several_protocols_and_answers_are_about_all(broker: Broker) -> None:
    with ExitStack() as stack:
        stack.enter_context(broker.worker("echo", "--echo", "--protocol", "mdp1"))
        for protocol in ("mdx", "mdp1", "mdp2", "dcp", "emqp", "memo"):
            for number in range(6):  # of six connections some come to either process
                with Client(broker.url, protocol, timeout=PATIENCE) as client:
                    assert client.call("echo", f"{protocol} {number}").text == f"{protocol} {number}"
        for _ in range(4):
            status = asked(broker, "status")
            assert status["workers"] == 1 and status["answered"] == 36
            assert [row["process"] for row in status["processes"]] == [0, 1]
            assert [row["name"] for row in asked(broker, "services")] == ["echo"]
            page: str = whole(lambda: metrics(broker))
            assert 'polydomo_processes{state="answered"} 2' in page
            assert 'polydomo_service_workers{service="echo"} 1' in page
            answered = [
                float(line.rpartition(" ")[2])
                for line in page.splitlines()
                if line.startswith("polydomo_requests_total")
                and 'outcome="ok"' in line
                and 'protocol="process"' not in line
            ]
            assert sum(answered) == 36
        watched = whole(lambda: run("watch", "--once", "--json", "--to", broker.url))
        assert json.loads(watched.stdout)["workers"]["ready"] == 1


def test_http_dbp_jobs_and_topics_work_at_whichever_process_they_arrive(broker: Broker) -> None:
    host, port = broker.url.removeprefix("tcp://").split(":")
    with ExitStack() as stack:
        stack.enter_context(broker.worker("upper", "--", "tr", "a-z", "A-Z"))
        for number in range(8):
            request = urllib.request.Request(f"http://{host}:{port}/v1/call/upper", data=b"abc %d" % number)
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                assert response.read() == b"ABC %d" % number
        for number in range(8):
            job = run("submit", "upper", f"job {number}", "--to", broker.url)
            assert job.returncode == 0, job.stderr
            result = run("result", job.stdout.decode().strip(), "--wait", "60", "--to", broker.url)
            assert result.stdout.decode().strip() == f"JOB {number}"
        context = stack.enter_context(zmq.Context())
        context.linger = 0
        subscribers = []
        for _ in range(6):
            subscriber = stack.enter_context(context.socket(zmq.SUB))
            subscriber.subscribe(b"news")
            subscriber.connect(broker.url)
            subscriber.rcvtimeo = int(PATIENCE * 1000)
            subscribers.append(subscriber)
        publisher = stack.enter_context(context.socket(zmq.PUB))
        publisher.connect(broker.url)
        waiting = list(subscribers)

        def heard() -> bool:
            """Publishes once more: what is published before a subscription has arrived does not reach its subscriber."""
            publisher.send_multipart([b"news", b"1"])
            waiting[:] = [subscriber for subscriber in waiting if not subscriber.poll(20)]
            return not waiting

        wait_for(heard, "the news at every subscriber", PATIENCE)
        for subscriber in subscribers:
            assert subscriber.recv_multipart() == [b"news", b"1"]
        assert all("upper" in services for services in asyncio.run(look(broker.url, 8)))


def test_a_process_that_is_killed_is_started_again_and_the_other_serves_on(broker: Broker) -> None:
    with ExitStack() as stack:
        spread(broker, stack, "echo", "--echo", "--concurrency", "2")
        before = pids(broker)
        survivor = stack.enter_context(Client(broker.url, timeout=PATIENCE, retries=5))
        assert survivor.call("echo", "1").text == "1"
        os.kill(before[1], signal.SIGKILL)
        broker.logged("a process died and is started again", process=1)
        assert survivor.call("echo", "2").text == "2"
        broker.logged("a process is back", process=1)
        wait_for(lambda: len(pids(broker)) == 2, "both processes", PATIENCE)
        after = pids(broker)
        assert after[0] == before[0] and after[1] != before[1]
        workers = 2 * len({entry["worker"] for entry in broker.entries if entry["message"] == "worker registered"})
        assert workers
        for number in range(8):
            with Client(broker.url, timeout=PATIENCE) as client:
                assert client.call("echo", str(number)).text == str(number)
        os.kill(after[0], signal.SIGKILL)  # the one that has the catalog, jobs and HTTP
        broker.logged("a process is back", process=0)
        assert survivor.call("echo", "3").text == "3"


def test_requests_in_flight_in_both_processes_finish_before_it_stops(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    words = ("--processes=2", "--grace=5m", "--journal=requests")
    with Broker(tmp_path / "data", *words) as broker, ExitStack() as stack:
        stack.enter_context(broker.worker("slow", *script(f"{gate.script}; echo done")))
        calls = [stack.enter_context(Running("call", "slow", "--to", broker.url)) for _ in range(4)]
        gate.wait()
        wait_for(lambda: len(broker.ask("requests")) == 4, "four requests", PATIENCE)
        broker.send(signal.SIGTERM)
        broker.logged("stopping")
        gate.open()
        for _ in range(3):
            gate.wait()
            gate.open()
        assert [call.line() for call in calls] == [b"done\n"] * 4
        assert broker.status() == 0
        assert broker.entries[-1]["message"] == "stopped"
    reader = Reader([tmp_path / "data" / "journal"])
    rows = [row for kind in KINDS for row in reader.rows(kind)]
    assert audit(rows) == []
    requests = [row for row in rows if row.get("service") == "slow" and row.get("outcome")]
    assert len(requests) >= 4 and {row["outcome"] for row in requests} == {"ok"}
    assert len({row["run"] for row in rows}) == 2, "each process has its own run"


def test_the_supervisor_is_killed_and_nothing_is_left(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", "--processes", "2") as broker:
        children = pids(broker)
        broker.process.kill()
        broker.process.wait()

        def gone() -> bool:
            return not any(Path(f"/proc/{pid}").exists() for pid in children.values())

        wait_for(gone, "the end of the processes", PATIENCE)


def test_durable_requests_are_durable_at_every_process(tmp_path: Path) -> None:
    """eMQP's ``guarantee``, and a ``durable`` service: stored by process 0, wherever they arrive."""
    words = ["--processes", "2", "--service", "kept.durable"]
    with Broker(tmp_path / "data", *words) as broker, ExitStack() as stack:
        stack.enter_context(broker.worker("echo", "--echo"))
        stack.enter_context(broker.worker("kept", "--echo"))
        for number in range(6):  # of six connections some come to either process
            with Client(broker.url, "emqp", timeout=PATIENCE) as client:
                headers = {"guarantee": True}
                assert client.call("echo", f"e {number}", headers=headers).text == f"e {number}"
            with Client(broker.url, timeout=PATIENCE) as client:
                assert client.call("kept", f"k {number}").text == f"k {number}"
        with Client(broker.url, timeout=PATIENCE) as client:
            assert client.call("echo", "plain").text == "plain"
        status = asked(broker, "status")
        assert (status["jobs"]["done"], status["answered"], status["open_requests"]) == (12, 13, 0)
        os.kill(pids(broker)[0], signal.SIGKILL)
        with Client(broker.url, timeout=PATIENCE, retries=5) as client:  # waits until process 0 is back
            assert client.call("kept", "again").text == "again"


def test_headers_reach_a_worker_of_another_process(broker: Broker) -> None:
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        context.linger = 0
        worker = stack.enter_context(context.socket(zmq.DEALER))
        worker.rcvtimeo = int(PATIENCE * 1000)
        worker.connect(broker.url)
        worker.send_multipart([b"", b"eMQP/1.0", b"INFORM", b"i", b"echo", b"worker"])
        for _ in range(6):
            worker.send_multipart([b"", b"eMQP/1.0", b"READY", b"r"])
        broker.logged("worker registered")
        for number in range(6):  # of six connections some come to either process
            client = stack.enter_context(context.socket(zmq.DEALER))
            client.rcvtimeo = int(PATIENCE * 1000)
            client.connect(broker.url)
            client.send_multipart(
                [b"", b"eMQP/1.0", b"REQUEST", b"m%d" % number, b"echo", b"reply-requested,x-order:17", b"a"]
            )
            message = worker.recv_multipart()
            while message[2] != b"REQUEST":
                message = worker.recv_multipart()
            assert b"x-order:17" in message[5].split(b",")
            worker.send_multipart([b"", b"eMQP/1.0", b"REPLY", b"n", message[6], message[3]])
            assert client.recv_multipart()[4:] == [b"a", b"m%d" % number]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--service", "a.memo"], 'service."a".memo (flag --service)'),
        (["--processes", "many"], "processes (flag --processes): must be auto, or a whole number from 1 to 64"),
    ],
)
def test_settings_that_need_one_process(tmp_path: Path, words: list[str], said: str) -> None:
    result = run("up", "--listen", "tcp://127.0.0.1:0", "--data", str(tmp_path), "--processes", "2", *words)
    assert result.returncode == 2
    assert said in complaint(result)


def test_a_port_that_another_broker_of_several_processes_has(broker: Broker, tmp_path: Path) -> None:
    result = run("up", "--listen", broker.url, "--data", str(tmp_path / "other"), "--processes", "2")
    assert result.returncode == 2
    assert "in use" in complaint(result)


def test_an_ipc_address_and_a_port(tmp_path: Path) -> None:
    path = tmp_path / "s"
    words = ["--listen", f"ipc://{path}", "--processes", "2"]
    with Broker(tmp_path / "data", *words) as broker, broker.worker("echo", "--echo"):
        for number in range(4):
            with Client(f"ipc://{path}", timeout=PATIENCE) as client:
                assert client.call("echo", str(number)).text == str(number)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.settimeout(PATIENCE)
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        broker.send(signal.SIGTERM)
        assert broker.status() == 0
        assert not path.exists()


def test_a_service_that_takes_requests_over_dbp_and_registered_nodes(tmp_path: Path) -> None:
    """DBP is process 0's. Clients of both processes call the service, and workers of both need its registration."""
    with Broker(tmp_path / "data", "--processes", "2", "--dbp-registered-only") as broker:
        with zmq.Context() as context:
            for _ in range(6):  # some come to either process
                with context.socket(zmq.DEALER) as worker:
                    worker.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
                    worker.connect(broker.url)
                    worker.send_multipart([b"", b"MDPW01", b"\x01", b"echo"])
                    assert worker.recv_multipart() == [b"", b"MDPW01", b"\x05"]
        with ExitStack() as stack:
            stack.enter_context(broker.worker("shout", "--protocol", "dbp", "--echo"))
            for number in range(6):
                with Client(broker.url, timeout=PATIENCE) as client:
                    assert client.call("shout", str(number)).text == str(number)
            spread(broker, stack, "echo", "--echo")
