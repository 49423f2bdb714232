"""``polydomo work SERVICE MODULE:FUNCTION``, its processes, and the job manager of EventMQ's jobs."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import zmq

from polydomo import CallFailed, Client
from tests.cli.shell import PATIENCE, Broker, Running, complaint, run
from tests.server.harness import wait_for

CODE = """
import logging
import os
import subprocess  # a callable that is only imported must not be run
from subprocess import run
import sys
import time

log = logging.getLogger("tasks")


def upper(call):
    return call.text.upper()


def double(number: int) -> int:
    return 2 * number


def triple(number: list[int]) -> list[int]:
    return [3 * each + len(number) for each in number]


def pid(call):
    return str(os.getpid())


def talk(call):
    print("printed", call.text)
    log.info("logged %s", call.text)
    return "done"


def block(call):
    open(call.text, "w").write(str(os.getpid()))
    time.sleep(1000)


def send_mail(to, subject=""):
    return {"to": to, "subject": subject}


def explode():
    raise ValueError("bang")


def _private():
    return "private"


class Mailer:
    def __init__(self, host, port=25):
        self.host, self.port = host, port

    def send(self, to):
        return f"{to} at {self.host}:{self.port}"
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(CODE)
    return tmp_path


def working(broker: Broker, here: Path, *words: str) -> Running:
    worker = Running("work", *words, "--to", broker.url, "--log-json", cwd=here)
    broker.logged("worker registered")
    return worker


def test_functions_in_threads_and_several_services(broker: Broker, here: Path) -> None:
    words = ("upper", "tasks:upper", "double", "tasks:double")
    with working(broker, here, *words), Client(broker.url, timeout=PATIENCE) as client:
        assert client.call("upper", "x").text == "X"
        assert client.call("double", number=21).json() == 42


def test_batches(broker: Broker, here: Path) -> None:
    words = ("triple", "tasks:triple", "--batch", "2", "--wait", "30s")
    with working(broker, here, *words), Client(broker.url, timeout=PATIENCE) as client:
        futures = [client.submit("triple", number=number) for number in (1, 2)]
        assert [future.result().json() for future in futures] == [5, 8]
    assert "--batch: passes lists of calls to Python functions" in complaint(run("work", "x", "--batch", "2", "--echo"))
    assert "--wait: belongs to --batch" in complaint(run("work", "x", "tasks:upper", "--wait", "1s", cwd=here))


def test_processes_are_replaced(broker: Broker, here: Path) -> None:
    words = ("pid", "tasks:pid", "--processes", "2", "--max-calls", "2", "--max-memory", "2GiB")
    with working(broker, here, *words) as worker, Client(broker.url, timeout=PATIENCE) as client:
        pids = {client.call("pid").text for _ in range(12)}
        assert len(pids) >= 6
        assert str(worker.process.pid) not in pids


def test_what_functions_print_and_log(broker: Broker, here: Path) -> None:
    words = ("talk", "tasks:talk", "--processes", "2", "--publish-stderr")
    with working(broker, here, *words) as worker, Client(broker.url, timeout=PATIENCE) as client:
        client.call("talk", "x")
        assert worker.line() == b"printed x\n"
        worker.logged("logged x")

        def found() -> dict[str, str]:
            rows = client.call("polydomo.logs").json()
            return {row["message"]: row["service"] for row in rows if row["request"]}

        wait_for(lambda: found() == {"printed x": "talk", "logged x": "talk"}, "both records, and nothing else")


@pytest.mark.parametrize("signals", [[signal.SIGKILL], [signal.SIGTERM, signal.SIGTERM]])
def test_nothing_is_left(broker: Broker, here: Path, signals: list[signal.Signals]) -> None:
    started = here / "started"
    with working(broker, here, "block", "tasks:block", "--processes", "2") as worker, Client(broker.url) as client:
        call = client.submit("block", str(started), timeout=PATIENCE)
        wait_for(lambda: started.exists() and bool(started.read_text()), "the call's start")
        for number in signals:
            worker.send(number)
        worker.status()
        wait_for(lambda: not Path(f"/proc/{started.read_text()}").exists(), "the end of the process")
        call.cancel()


def test_several_echoes(broker: Broker) -> None:
    with Running("work", "one", "two", "--echo", "--to", broker.url), Client(broker.url, timeout=PATIENCE) as client:
        assert client.call("one", "1").text == "1"
        assert client.call("two", "2").text == "2"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["x"], "work: give a function as MODULE:FUNCTION, a program after --, or --echo"),
        (["x", "tasks:missing"], "'tasks' has no function 'missing'"),
        (["x", "nothing_here:f"], "cannot import 'nothing_here': No module named 'nothing_here'"),
        (["x", "tasks:upper", "y"], "work: 'y' has no function; give pairs of SERVICE and MODULE:FUNCTION"),
        (["x", "--echo", "--processes", "2"], "--processes: runs Python functions; use --concurrency for a program"),
        (["x", "tasks:upper", "--publish-stderr"], "--publish-stderr: applies to a program, or to --processes"),
        (["x", "tasks:upper", "--max-calls", "2"], "max_calls and max_memory: need a pool of processes, such as processes=4"),
        (["x", "--allow", "tasks.*"], "--allow: makes the worker a job manager of EventMQ; use it with -p emqp, without --echo"),
        (["x", "-p", "emqp", "--allow", "tasks.missing"], "--allow: tasks.missing: tasks has no callable missing"),
        (["x", "-p", "emqp", "--allow", "nothing_here.*"], "--allow: nothing_here.*: No module named 'nothing_here'"),
        (["x", "-p", "emqp", "--allow", "tasks"], "--allow: 'tasks' does not name a callable: write module.function, "
         "module:Class.method or module.*"),
    ],
)  # fmt: skip
def test_mistakes(here: Path, words: list[str], text: str) -> None:
    result = run("work", *words, cwd=here)
    assert (result.returncode, complaint(result)) == (2, text)


# --- the job manager ---------------------------------------------------------------------------------------------------


def job(path: str, name: str, *args: object, **more: object) -> str:
    return json.dumps(["run", {"path": path, "callable": name, "args": args, "kwargs": {}, **more}])


ALLOWED = ("--allow", "tasks.send_mail", "--allow", "tasks.explode", "--allow", "tasks:Mailer.*")
QUEUES = ("default", "mail", "-p", "emqp", "--processes", "2")


def test_jobs_of_a_client_of_the_document(broker: Broker, here: Path) -> None:
    """A REQUEST in EventMQ's frames, and the reply that its own job manager would send."""
    with working(broker, here, *QUEUES, *ALLOWED), zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(broker.url)
        socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
        body = job("tasks", "send_mail", "ada", kwargs={"subject": "hello"})
        socket.send_multipart([b"", b"eMQP/1.0", b"REQUEST", b"m1", b"mail", b"reply-requested", body.encode()])
        reply = socket.recv_multipart()
        assert reply[:3] == [b"", b"eMQP/1.0", b"REPLY"]
        assert b'{"value": {"to": "ada", "subject": "hello"}}' in reply
        assert b"m1" in reply


def test_which_callables_run(broker: Broker, here: Path) -> None:
    with working(broker, here, *QUEUES, *ALLOWED), Client(broker.url, timeout=PATIENCE) as client:
        made = {"class_args": ["host"], "class_kwargs": {"port": 26}}
        assert client.call("mail", job("tasks:Mailer", "send", "ada", **made)).json() == {"value": "ada at host:26"}
        for path, name in (
            ("tasks", "double"),
            ("tasks", "_private"),
            ("os", "getpid"),
            ("tasks:Mailer", "__init__"),
            ("tasks:subprocess", "run"),
        ):
            with pytest.raises(CallFailed) as caught:
                client.call("default", job(path, name))
            assert caught.value.code == "permanent"
            assert caught.value.text == f"{path}.{name} is not in the list of callables that this worker may run"
        for body in ("x", "[]", '["walk", {}]', '["run", 1]'):
            with pytest.raises(CallFailed, match="the request is not a job"):
                client.call("default", body)
        with pytest.raises(CallFailed, match="args is not a list"):
            client.call("default", job("tasks", "send_mail", args=1))
        with pytest.raises(CallFailed, match="gave-up"):  # eMQP has no message for failures: it is tried again
            client.call("default", job("tasks", "explode"))


def test_all_callables_of_a_module(broker: Broker, here: Path) -> None:
    """Those that it defines, not those that it imports."""
    words = ("default", "-p", "emqp", "--allow", "tasks.*")
    with working(broker, here, *words), Client(broker.url, timeout=PATIENCE) as client:
        assert client.call("default", job("tasks", "double", 4)).json() == {"value": 8}
        for name in ("run", "_private", "missing", "os"):
            with pytest.raises(CallFailed, match=f"tasks.{name} is not in the list"):
                client.call("default", job("tasks", name))


def test_a_job_at_its_timeout_is_killed(broker: Broker, here: Path) -> None:
    (here / "slow.py").write_text(
        "import os, time\ndef nap(path):\n    open(path, 'w').write(str(os.getpid()))\n    time.sleep(1000)\n"
    )
    started = here / "started"
    words = ("default", "-p", "emqp", "--allow", "slow.nap", "--processes", "1")
    with working(broker, here, *words), zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(broker.url)
        headers, body = b"timeout:1", job("slow", "nap", str(started)).encode()
        sent: list[float] = []
        pid = ""

        def begun() -> bool:
            """Asks again where a busy machine let the time of the job pass before it had begun."""
            nonlocal pid
            if not sent or time.monotonic() > sent[-1] + 5.0:
                sent.append(time.monotonic())
                socket.send_multipart([b"", b"eMQP/1.0", b"REQUEST", b"m%d" % len(sent), b"default", headers, body])
            pid = started.read_text() if started.exists() else ""
            return bool(pid)

        wait_for(begun, "the job's start")
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "its end")
