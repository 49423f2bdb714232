"""Workers on Spark: code is shipped, the fleet follows its queue, leaves without losing a call, and survives lost executors."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import polydomo
import polydomo.testing
from polydomo.errors import SettingError
from polydomo.spark import shipping
from polydomo.spark.fleet import Fleet
from polydomo.spark.fleet_task import WorkerPlan
from polydomo.spark.scaling import Scaling
from polydomo.worker import loading
from tests.pipeline.test_cluster import daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 240.0
CODE = """
import os, time

def slow(call):
    time.sleep(0.05)
    return f"{call.text} {os.getpid()}"

def add(a: int, b: int = 1) -> int:
    return a + b
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "fleet_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("fleet_code", None)


# --- without Spark ----------------------------------------------------------------------------------------------------


def test_a_fleet_grows_while_requests_wait_and_shrinks_when_it_is_quiet() -> None:
    scaling = Scaling(2, 16, quiet=10.0)
    assert scaling.decide(0.0, workers=2, starting=0, idle=0, queued=50) == 4
    assert scaling.decide(1.0, workers=4, starting=2, idle=0, queued=50) == 4  # first those that are starting
    assert scaling.decide(2.0, workers=4, starting=0, idle=0, queued=50) == 8
    assert scaling.decide(3.0, workers=8, starting=0, idle=0, queued=50) == 16
    assert scaling.decide(4.0, workers=16, starting=0, idle=0, queued=50) == 16
    assert scaling.decide(5.0, workers=16, starting=0, idle=12, queued=0) == 16
    assert scaling.decide(14.0, workers=16, starting=0, idle=12, queued=0) == 16
    assert scaling.decide(15.0, workers=16, starting=0, idle=12, queued=0) == 10
    assert scaling.decide(16.0, workers=10, starting=0, idle=0, queued=0) == 10  # busy again: the quiet time is over
    assert scaling.decide(26.0, workers=10, starting=0, idle=10, queued=0) == 10
    assert scaling.decide(36.0, workers=10, starting=0, idle=10, queued=0) == 5
    assert scaling.decide(46.0, workers=5, starting=0, idle=5, queued=0) == 2
    assert Scaling(0, 4).decide(0.0, workers=0, starting=0, idle=0, queued=1) == 1


def test_code_of_this_machine_is_shipped_and_installed_code_is_not(code: Path) -> None:
    assert shipping.local_code("fleet_code:slow") == code / "fleet_code.py"
    assert shipping.local_code("json:dumps") is None
    assert shipping.local_code("pyarrow:table") is None
    package = code / "fleet_package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/model.py", "weights.bin"):
        (package / name).write_text("")
    made = shipping.local_code("fleet_package.inner.model:score")
    assert made is not None and made.name == "fleet_package.zip"
    import zipfile

    assert sorted(zipfile.ZipFile(made).namelist()) == [
        "fleet_package/__init__.py",
        "fleet_package/inner/__init__.py",
        "fleet_package/inner/model.py",
        "fleet_package/weights.bin",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [("fleet_code", "module:function"), ("fleet_code:nothing", "no function"), ("missing_code:f", "cannot import")],
)
def test_a_function_that_is_not_there(code: Path, name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        loading.load(name)


def test_a_worker_leaves_when_its_driver_asks_and_fails_when_it_is_gone(
    code: Path, broker: polydomo.testing.Broker
) -> None:
    """A task without Spark: the driver's end of the connection is played here."""
    from polydomo.spark.fleet_task import LEAVE, READY, DriverGone, _serve

    async def play(last: bytes) -> list[bytes]:
        said: list[bytes] = []

        async def driver(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            said.append(await reader.readline())
            said.append(await reader.readline())
            async with polydomo.AsyncClient(broker.url) as client:
                said.append((await client.call("alone", '{"a": 41}')).body)
            writer.write(last)
            writer.close()

        server = await asyncio.start_server(driver, "127.0.0.1", 0)
        where = ("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            await _serve(WorkerPlan(broker.url, "alone", "fleet_code:add", where, "secret"), 3, 1)
        finally:
            server.close()
        return said

    hello, ready, reply = asyncio.run(asyncio.wait_for(play(LEAVE), 60))
    assert b'"secret": "secret", "number": 3, "attempt": 1' in hello and ready == READY and reply == b"42"
    with pytest.raises(DriverGone):
        asyncio.run(asyncio.wait_for(play(b""), 60))
    broker.wait_for("alone", 0)


# --- on a local session ---------------------------------------------------------------------------------------------


@contextmanager
def running(make: "Callable[[], Fleet]") -> "Iterator[Fleet]":
    """A fleet on an event loop of its own; at the end it is asked to leave."""
    made: list[Any] = []
    failed: list[BaseException] = []

    async def main() -> None:
        made.append(make())
        made.append(asyncio.get_running_loop())
        await made[0].run()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(made) == 2 or bool(failed), "the fleet")
    try:
        yield made[0]
    finally:
        if thread.is_alive():
            made[1].call_soon_threadsafe(made[0].stop)
        thread.join(PATIENCE)
    if failed:
        raise failed[0]


def until(condition: "Callable[[], bool]", what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_workers_serve_follow_the_queue_and_leave(
    spark: "SparkSession", broker: polydomo.testing.Broker, code: Path
) -> None:
    spark.sparkContext.addPyFile(str(code / "fleet_code.py"))
    plan = WorkerPlan(broker.url, "fleet", "fleet_code:slow", ("", 0), "")
    with running(lambda: Fleet(spark, plan, Scaling(1, 2, quiet=0.5), 1)) as fleet:
        broker.wait_for("fleet", 1, PATIENCE)
        with polydomo.Client(broker.url, timeout=PATIENCE) as client:
            pids: set[str] = set()
            end = time.monotonic() + PATIENCE
            while len(pids) < 2:  # the queue is long: a second worker
                assert time.monotonic() < end, pids
                calls = [client.submit("fleet", str(n)) for n in range(100)]
                found = [call.result().text.split() for call in calls]
                assert [int(word) for word, _ in found] == list(range(100))
                pids |= {pid for _, pid in found}
            assert fleet.size <= 2
            broker.wait_for("fleet", 1, PATIENCE)  # it is quiet: one of them leaves
            assert fleet.size == 1
            last = client.submit("fleet", "last")
            assert last.result().text.startswith("last ")
    broker.wait_for("fleet", 0)
    tracker = spark.sparkContext.statusTracker()
    until(lambda: not tracker.getActiveJobsIds(), "the end of its job")  # Spark tells it some time later


def test_code_that_executors_cannot_import_is_reported_once(
    spark: "SparkSession", broker: polydomo.testing.Broker
) -> None:
    plan = WorkerPlan(broker.url, "fleet", "nowhere_to_be_found:f", ("", 0), "")
    with pytest.raises(SettingError, match="cannot import 'nowhere_to_be_found'"):
        with running(lambda: Fleet(spark, plan, Scaling(1, 1), 1)):
            pass


# --- on a standalone cluster ----------------------------------------------------------------------------------------


@contextmanager
def cluster(scratch: Path, cores: int = 8, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """A master, and a worker at each of the hosts."""
    no_page = ("--webui-port", "0")
    master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *no_page, "--port", "0")
    worker = ("org.apache.spark.deploy.worker.Worker", *no_page, "-c", str(cores), "-m", "2g")
    with ExitStack() as stack:
        url = stack.enter_context(daemon(*master, until=r"spark://127\.0\.0\.1:[1-9]\d*", scratch=scratch))
        for number, host in enumerate(hosts, 1):
            words = (*worker, "--host", host, "-d", str(scratch / f"w{number}"), url)
            stack.enter_context(daemon(*words, until="Successfully registered", scratch=scratch))
        yield url


def executors(scratch: Path) -> list[int]:
    """The processes of executors of this cluster: they run in the directories of its workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            here = (path / "cwd").resolve()
            if here.is_relative_to(scratch) and b"CoarseGrainedExecutorBackend" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def workers_of(url: str, service: str) -> int:
    with polydomo.Client(url, timeout=PATIENCE) as client:
        rows: Any = client.call("polydomo.services").json()
    return next((int(row["workers"]) for row in rows if row["name"] == service), 0)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_sixteen_workers_and_one_executor_killed(tmp_path: Path, code: Path) -> None:
    calls = 2_000
    with polydomo.testing.broker() as broker, cluster(tmp_path) as master:
        words = [sys.executable, "-m", "polydomo", "spark", "work", "fleet", "fleet_code:slow", "--workers", "16"]
        words += ["--master", master, "--to", broker.url, "--conf", "spark.executor.memory=600m"]
        with subprocess.Popen(
            words, cwd=code, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, stderr=subprocess.PIPE, text=True
        ) as process:
            said: list[str] = []
            assert process.stderr is not None
            threading.Thread(target=listen, args=(process.stderr, said), daemon=True).start()
            try:
                until(lambda: workers_of(broker.url, "fleet") == 16, f"sixteen workers: {said}")
                victims = executors(tmp_path)
                assert len(victims) == 2
                with polydomo.Client(broker.url, timeout=PATIENCE) as client:
                    open_calls = [client.submit("fleet", str(n)) for n in range(calls)]
                    until(lambda: sum(call.done() for call in open_calls) > 100, "some calls")
                    os.kill(victims[0], signal.SIGKILL)
                    found = [call.result().text.split() for call in open_calls]
                assert [int(word) for word, _ in found] == list(range(calls))  # each call has its one outcome
                until(lambda: workers_of(broker.url, "fleet") == 16, f"sixteen workers again: {said}")
                with polydomo.Client(broker.url, timeout=PATIENCE) as client:
                    last = [client.submit("fleet", str(n)) for n in range(64)]
                    until(lambda: any(call.done() for call in last), "a call")
                    process.send_signal(signal.SIGINT)
                    assert process.wait(PATIENCE) == 0, said
                    served = sum(call.done() for call in last)
                assert served >= 16, said  # what they held when the signal came was finished
            finally:
                process.kill()
    assert any("is lost; Spark restarts it" in line for line in said), said


def listen(stream: IO[str], said: list[str]) -> None:
    said.extend(stream)
