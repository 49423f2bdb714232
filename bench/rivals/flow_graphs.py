"""One graph of ``bench.flows`` on one other system: ``python bench/rivals/flow_graphs.py SYSTEM GRAPH THREADS PORT DIRECTORY``.

It runs with the Python that has the system installed, so it imports nothing of polydomo. It starts the server and one worker process with
THREADS threads on PORT, runs the graph, checks its result, and prints a row of JSON: seconds, and CPU seconds of the server and the worker.
If the system is not installed, the row is ``{"missing": WHAT}``.

Each node adds 1 to the sum of its inputs: in a chain the node before it, in a tree two nodes, in a join all others.
"""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WARM_UP = 32  # nodes that run before the measurement


def inputs(graph: str, size: int) -> "list[list[int]]":
    """The nodes that each node of a graph needs; the last one has the result."""
    if graph == "join":
        return [*([] for _ in range(size)), list(range(size))]
    if graph == "chain":
        return [[n - 1] if n else [] for n in range(size)]
    leaves = (size + 1) // 2  # a complete binary tree: each node after the leaves takes the next two without a consumer
    return [[] if n < leaves else [2 * (n - leaves), 2 * (n - leaves) + 1] for n in range(size)]


def result(graph: str, size: int) -> int:
    """What the last node gives: in each of these graphs every node is counted once."""
    return len(inputs(graph, size))


def cpu(pid: int) -> float:
    """CPU seconds of a process, with its threads and children."""
    total = 0.0
    todo = [pid]
    while todo:
        process = todo.pop()
        try:
            for task in os.listdir(f"/proc/{process}/task"):
                where = Path(f"/proc/{process}/task/{task}")
                total += int((where / "schedstat").read_text().split()[0]) / 1e9
                todo += map(int, (where / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


@contextmanager
def running(words: "list[str]", log: Path, **environment: str) -> Iterator[int]:
    with open(log, "ab") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, env={**os.environ, **environment})
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def reachable(port: int) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def missing(*packages: str, program: str = "") -> str:
    for name in packages:
        if importlib.util.find_spec(name) is None:
            return f"the package {name} is not installed (pip install {name})"
    if program and shutil.which(program) is None:
        return f"{program} is not installed (apt install {program})"
    return ""


@contextmanager
def redis(port: int, directory: Path) -> Iterator[int]:
    """In memory only: nothing is written to disk."""
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running([*words, "--dir", str(directory)], directory / "redis.log") as pid:
        reachable(port)
        yield pid


class Clock:
    """Time and CPU of the server and the worker, from here on."""

    def __init__(self, server: int, worker: int) -> None:
        self.pids = (server, worker)
        self.used = [cpu(pid) for pid in self.pids]
        self.begun = time.monotonic()

    def row(self) -> "dict[str, Any]":
        seconds = time.monotonic() - self.begun
        server, worker = (cpu(pid) - used for pid, used in zip(self.pids, self.used, strict=True))
        return {"seconds": seconds, "server": server, "worker": worker}


# --- Dask -------------------------------------------------------------------------------------------------------------------


def add(*numbers: Any) -> int:
    flat: list[int] = [one for number in numbers for one in (number if isinstance(number, list) else [number])]
    return 1 + sum(flat)


def dask(graph: str, size: int, threads: int, port: int, directory: Path) -> "dict[str, Any]":
    from dask import delayed
    from distributed import Client

    address = f"tcp://127.0.0.1:{port}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    worker = [
        sys.executable,
        "-m",
        "distributed.cli.dask_worker",
        address,
        "--nworkers",
        "1",
        "--nthreads",
        str(threads),
    ]
    with running([*scheduler, "--no-dashboard"], directory / "scheduler.log") as server:
        reachable(port)
        where = ["--no-dashboard", "--local-directory", str(directory)]
        with running([*worker, *where], directory / "worker.log", PYTHONPATH=str(Path(__file__).parent)) as hand:
            with Client(address) as client:
                client.wait_for_workers(1)
                client.gather(client.map(add, range(WARM_UP), pure=False))
                clock = Clock(server, hand)
                task = delayed(add, pure=False)
                nodes: list[Any] = []
                for needed in inputs(graph, size):
                    nodes.append(task([nodes[one] for one in needed]))
                # Optimised, a chain would be one task.
                got = client.compute(nodes[-1], optimize_graph=False).result()
                row = clock.row()
    return {**row, "result": got}


# --- Celery -----------------------------------------------------------------------------------------------------------------

REDIS = os.environ.get("BENCH_REDIS", "")


def celery_app() -> Any:
    from celery import Celery

    app = Celery("bench", broker=REDIS, backend=REDIS)
    app.conf.worker_prefetch_multiplier = 32
    app.conf.worker_hijack_root_logger = False
    app.conf.result_chord_join_timeout = 300

    def total(numbers: Any = 0) -> int:
        return add(numbers)

    app.task(name="add")(total)
    return app


def celery(graph: str, size: int, threads: int, port: int, directory: Path) -> "dict[str, Any]":
    from celery import chain, chord, group

    with redis(port, directory) as server:
        words = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "flow_graphs:APP",
            "worker",
            "--pool",
            "threads",
            "-c",
            str(threads),
        ]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "warning"]
        here = str(Path(__file__).parent)
        with running([*words, *quiet], directory / "worker.log", PYTHONPATH=here, BENCH_REDIS=REDIS) as hand:
            task = celery_app().tasks["add"]
            group(task.s(0) for _ in range(WARM_UP)).apply_async().get(timeout=300)
            clock = Clock(server, hand)
            if graph == "join":
                got = chord([task.s(0) for _ in range(size)], task.s()).apply_async().get(timeout=400)
            elif graph == "chain":
                got = chain(task.s(0), *(task.s() for _ in range(size - 1))).apply_async().get(timeout=400)
            else:
                # A level is a group, and the client makes the next one of its results: chords in chords of this depth take minutes
                # to be sent, because each message has all that comes after it.
                numbers = group(task.s(0) for _ in range((size + 1) // 2)).apply_async().get(timeout=400)
                while len(numbers) > 1:
                    pairs = [numbers[n : n + 2] for n in range(0, len(numbers), 2)]
                    numbers = group(task.s(pair) for pair in pairs).apply_async().get(timeout=400)
                got = numbers[0]
            row = clock.row()
    return {**row, "result": got}


# --- dramatiq ---------------------------------------------------------------------------------------------------------------


def dramatiq_actor() -> Any:
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.results import Results
    from dramatiq.results.backends.redis import RedisBackend

    broker = RedisBroker(url=REDIS)
    broker.add_middleware(Results(backend=RedisBackend(url=REDIS)))
    dramatiq.set_broker(broker)

    def total(numbers: Any = 0) -> int:
        return add(numbers)

    return dramatiq.actor(total, actor_name="add", store_results=True)


def dramatiq(graph: str, size: int, threads: int, port: int, directory: Path) -> "dict[str, Any]":
    from dramatiq import group, pipeline

    with redis(port, directory) as server:
        words = [sys.executable, "-m", "dramatiq", "flow_graphs", "--processes", "1", "--threads", str(threads)]
        here = str(Path(__file__).parent)
        with running(words, directory / "worker.log", PYTHONPATH=here, BENCH_REDIS=REDIS, BENCH_ACTOR="1") as hand:
            actor = dramatiq_actor()

            def all_of(arguments: "list[Any]") -> "list[int]":
                sent = group([actor.message(one) for one in arguments]).run()
                return list(sent.get_results(block=True, timeout=400_000))

            all_of([0] * WARM_UP)
            clock = Clock(server, hand)
            if graph == "chain":
                sent = pipeline([actor.message(0), *(actor.message() for _ in range(size - 1))]).run()
                got = sent.get_result(block=True, timeout=400_000)
            else:
                numbers = all_of([0] * (size if graph == "join" else (size + 1) // 2))
                while len(numbers) > 1:  # groups pass no results on: the client does
                    width = len(numbers) if graph == "join" else 2
                    numbers = all_of([numbers[n : n + width] for n in range(0, len(numbers), width)])
                got = numbers[0]
            row = clock.row()
    return {**row, "result": got}


SYSTEMS = {
    "dask": (dask, ("distributed",), ""),
    "celery": (celery, ("celery", "redis"), "redis-server"),
    "dramatiq": (dramatiq, ("dramatiq", "redis"), "redis-server"),
}

if REDIS and os.environ.get("BENCH_ACTOR"):
    dramatiq_actor()
elif REDIS and __name__ != "__main__":
    APP = celery_app()


def main() -> None:
    global REDIS
    name, graph, size, threads, port, directory = sys.argv[1:]
    function, packages, program = SYSTEMS[name]
    lacks = missing(*packages, program=program)
    if lacks:
        print(json.dumps({"missing": lacks}))
        return
    REDIS = f"redis://127.0.0.1:{port}/0"
    print(json.dumps(function(graph, int(size), int(threads), int(port), Path(directory))))


if __name__ == "__main__":
    main()
