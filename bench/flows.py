"""Flows beside other systems that run graphs of tasks: ``python -m bench.flows``.

Each system gets the same graphs in one run: many independent nodes and one that needs all of them, a chain, and a binary tree. Each node
adds 1 to the sum of its inputs, so what is measured is the system. There is one worker process with the same number of threads.
Measured are wall time, and CPU time of the server and of the worker, for each node.

- polydomo: flows, with every step on disk (SQLite, ``synchronous=FULL``), and as many durable jobs, submitted together and singly
- Dask distributed: everything in the memory of its scheduler
- Celery: groups, chords and chains on Redis, which keeps everything in memory; for the tree, the client sends a group for each level
- dramatiq: groups and pipelines on Redis; the client passes results from one group to the next

The others run with the Python of ``--python``, for which ``pip install distributed celery dramatiq redis`` and ``apt install redis-server``
are needed. What is not installed is named and left out.

``--reuse`` measures a second start of the tree after one leaf has changed. ``--beside 100000`` sends, runs and removes a flow of so many
nodes while another client calls another service every 5 ms, and shows what that client notices.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import durable
from bench.compare import free_port
from bench.durable import priority
from bench.rivals.flow_graphs import Clock, inputs, reachable, result, running
from polydomo import AsyncClient, Client, Flow, Worker

GRAPHS = {"join": 10_000, "chain": 1_000, "tree": 8_191}
RIVALS = ("dask", "celery", "dramatiq")
PATIENCE = 400.0
PROBE_EVERY = 0.005
Row = dict[str, Any]


def worker(url: str, threads: int, work: float) -> None:
    """The worker process."""
    made = Worker(url, concurrency=threads, prefetch=32, name="bench")

    @made.service("add")
    def add(call: Any) -> str:
        if work:
            time.sleep(work)
        return str(1 + sum(int(frame or 0) for frame in call.frames))

    made.run()


def flow_of(graph: str, size: int, reuse: bool = False, changed: int = 0) -> Flow:
    """With ``reuse``, each leaf has an argument of its own; ``changed`` makes that of the first one another."""
    flow = Flow(f"bench-{graph}", reuse=reuse)
    nodes: list[Any] = []
    for n, needed in enumerate(inputs(graph, size)):
        given = [str(changed if n == 0 else -n)] if reuse and not needed else []
        nodes.append(flow.call("add", *given, [nodes[one] for one in needed]))
    return flow


@contextmanager
def ours(threads: int, work: float = 0.0, *words: str) -> Iterator[tuple[Client, int, int]]:
    """A client of a broker with one worker, and the processes of both."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-flows-", dir=".")))
        port = free_port()
        url = f"tcp://127.0.0.1:{port}"
        up = [sys.executable, "-m", "polydomo", "up", "--listen", url, "--data", str(directory), "--journal", "off"]
        server = stack.enter_context(running([*up, *words], directory / "broker.log"))
        reachable(port)
        hand = [sys.executable, "-m", "bench.flows", "--worker", url, "--threads", str(threads), "--work", str(work)]
        helper = stack.enter_context(running(hand, directory / "worker.log"))
        client = stack.enter_context(Client(url, timeout=PATIENCE))
        client.call("add", "1")
        yield client, server, helper


def measured(clock: Clock, nodes: int, right: bool) -> Row:
    return {**clock.row(), "nodes": nodes, "right": right}


def flow(graph: str, size: int, threads: int) -> Row:
    with ours(threads) as (client, server, helper):
        made = flow_of(graph, size)
        clock = Clock(server, helper)
        run = client.start(made)
        state = run.wait(PATIENCE)
        row = measured(clock, len(made), False)
        row["right"] = state == "done" and int(run.result(made.nodes[-1]).text) == result(graph, size)
        return row


def jobs(size: int, threads: int, together: bool) -> Row:
    """As many durable jobs, submitted in messages of 1,000 or one by one, and run."""
    with ours(threads) as (client, server, helper):
        clock = Clock(server, helper)
        ids = client.submit_jobs("add", ["0"] * size) if together else asyncio.run(one_by_one(client.url, size))
        last = client.result(ids[-1], wait=PATIENCE).text
        for one in ids[-threads * 33 :]:  # what the worker had beside it
            client.result(one, wait=PATIENCE)
        return measured(clock, size, last == "1")


async def one_by_one(url: str, size: int) -> list[str]:
    """With 64 submissions outstanding."""
    async with AsyncClient(url, timeout=PATIENCE) as client:
        found: list[str] = []
        for start in range(0, size, 64):
            found += await asyncio.gather(*(client.submit_job("add", "0") for _ in range(min(64, size - start))))
        return found


def rival(name: str, python: str, graph: str, size: int, threads: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="bench-flows-", dir=".") as directory:
        words = [python, str(Path(__file__).parent / "rivals" / "flow_graphs.py"), name, graph, str(size), str(threads)]
        words += [str(free_port()), str(Path(directory).resolve())]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return {"missing": f"no result after {PATIENCE:.0f} s"}
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with its server and worker
            process.wait()
        if process.returncode:
            return {"missing": f"it failed: {(errors.strip().splitlines() or ['without a word'])[-1]}"}
        row: Row = json.loads(out.strip().splitlines()[-1])
        if "missing" not in row:
            row |= {"nodes": len(inputs(graph, size)), "right": row["result"] == result(graph, size)}
        return row


def show(name: str, row: Row) -> None:
    if "missing" in row:
        print(f"{name:34}not measured: {row['missing']}", flush=True)
        return
    server, helper = (row[kind] / row["nodes"] * 1e6 for kind in ("server", "worker"))
    wrong = "" if row["right"] else "   WRONG RESULT"
    print(f"{name:34}{row['nodes']:>8,}{row['seconds']:>9.2f}{server:>12.0f}{helper:>12.0f}{wrong}", flush=True)


# --- another client beside a large flow -------------------------------------------------------------------------------------


def probe(url: str, file: str) -> None:
    """A process: calls ``echo`` every 5 ms until its input ends, and writes when each call was due and how long it took from then on."""
    found: list[tuple[float, float]] = []
    with Client(url, timeout=PATIENCE) as client:
        reading = threading.Thread(target=sys.stdin.read, daemon=True)  # until the input ends
        reading.start()
        due = time.monotonic()
        while reading.is_alive():
            client.call("echo", "x")
            now = time.monotonic()
            found.append((due, now - due))
            due = max(due + PROBE_EVERY, now - 1.0)  # calls that were due meanwhile are late, too
            time.sleep(max(0.0, due - now))
    Path(file).write_text(json.dumps(found))


def large(size: int) -> Flow:
    """Independent nodes, joined by the thousand, and those again."""
    flow = Flow("bench-large")
    joins = size // 1001 + 1
    leaves = flow.map("add", ["0"] * (size - joins - 1))
    flow.call("add", [flow.call("add", leaves[at : at + 1000]) for at in range(0, len(leaves), 1000)])
    return flow


def memory(pid: int) -> float:
    """MiB that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def beside(given: argparse.Namespace) -> None:
    with (
        ours(given.threads) as (client, server, _),
        tempfile.TemporaryDirectory(prefix="bench-flows-", dir=".") as place,
    ):
        url = client.url
        echo = [sys.executable, "-m", "polydomo", "work", "echo", "--echo", "--to", url]
        file = Path(place) / "probe.json"
        words = [sys.executable, "-m", "bench.flows", "--probe", url, "--file", str(file)]
        with running(echo, Path(place) / "echo.log") as helper:
            client.call("echo", "x")
            probing = subprocess.Popen(words, stdin=subprocess.PIPE)
            with priority([server, helper, probing.pid]):
                made = large(given.beside)
                phases = [("alone", time.monotonic(), memory(server))]
                time.sleep(10)
                phases.append(("while it is sent", time.monotonic(), memory(server)))
                run = client.start(made)
                phases.append(("while it runs", time.monotonic(), memory(server)))
                run.wait(PATIENCE)
                phases.append(("while it is removed", time.monotonic(), memory(server)))
                run.remove()
                time.sleep(5)
                phases.append(("", time.monotonic(), memory(server)))
                assert probing.stdin is not None
                probing.stdin.close()
                probing.wait()
            found = [(due, took * 1000) for due, took in json.loads(file.read_text())]
    print(
        f"a flow of {len(made):,} nodes beside another client\n{'':22}{'seconds':>9}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}{'MiB':>8}"
    )
    for (name, begin, _), (_, end, after) in pairwise(phases):
        some = sorted(took for due, took in found if begin <= due < end)
        if some:
            p50, p99 = some[len(some) // 2], some[int(len(some) * 0.99)]
            print(f"{name:22}{end - begin:9.1f}{p50:9.2f}{p99:9.2f}{some[-1]:9.1f}{after:8.0f}")


def scaled(graph: str, full: int, scale: float) -> int:
    """A tree is complete."""
    size = max(3, int(full * scale))
    return 2 ** (size + 1).bit_length() // 2 - 1 if graph == "tree" else size


def compare(given: argparse.Namespace) -> None:
    head = f"{'':34}{'nodes':>8}{'seconds':>9}{'server us':>12}{'worker us':>12}"
    for graph in given.graphs.split(","):
        full = GRAPHS[graph]
        size = scaled(graph, full, given.scale)
        print(f"\n{graph}\n{head}")
        show("polydomo, a flow", flow(graph, size, given.threads))
        if graph == "join":
            show("polydomo, jobs submitted together", jobs(size, given.threads, True))
            show("polydomo, jobs submitted singly", jobs(size, given.threads, False))
        for name in given.rivals.split(",") if given.rivals else ():
            show(name, rival(name, given.python, graph, size, given.threads))


def second_start(given: argparse.Namespace) -> None:
    """The tree with ``reuse``, and again with one leaf changed."""
    size = scaled("tree", GRAPHS["tree"], given.scale)
    with ours(given.threads, given.work) as (client, server, helper):
        rows = []
        for changed in (0, 1):
            made = flow_of("tree", size, reuse=True, changed=changed)
            with priority([server, helper]):
                clock = Clock(server, helper)
                run = client.start(made)
                state = run.wait(PATIENCE)
                rows.append(measured(clock, size, state == "done"))
    first, second = rows
    print(f"\nsecond start after one leaf has changed, nodes of {given.work * 1000:.0f} ms")
    for name, row in (("first", first), ("second", second)):
        print(f"{name:10}{row['seconds']:9.2f} s{row['server'] / size * 1e6:9.0f} us of the server per node")
    print(f"time: {second['seconds'] / first['seconds']:.1%}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Flows beside other systems that run graphs of tasks.")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of nodes (default: 1)")
    parser.add_argument("--threads", type=int, default=4, help="of each worker process (default: 4)")
    parser.add_argument(
        "--python", default=sys.executable, help="the Python with the other systems (default: this one)"
    )
    parser.add_argument("--rivals", default=",".join(RIVALS), help="which of them (default: all)")
    parser.add_argument("--graphs", default=",".join(GRAPHS), help="which graphs (default: all)")
    parser.add_argument("--reuse", action="store_true", help="only measure a second start")
    parser.add_argument("--work", type=float, default=0.0, help="seconds that each node takes, with --reuse")
    parser.add_argument("--beside", type=int, default=0, metavar="NODES", help="only measure another client")
    parser.add_argument(
        "--realtime", action="store_true", help="with --beside and --reuse: run before all other processes; needs root"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    given = parser.parse_args()
    durable.REALTIME = given.realtime
    if given.worker:
        worker(given.worker, given.threads, given.work)
    elif given.probe:
        probe(given.probe, given.file)
    elif given.beside:
        beside(given)
    elif given.reuse:
        second_start(given)
    else:
        compare(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
