"""Compares the broker's CPU time per request with that of other brokers, and protocol with protocol, in one run.

    python bench/compare.py                          polydomo, a pyzmq ROUTER loop and, if installed, gearmand and nats-server
    python bench/compare.py --protocols              polydomo with each protocol, relative to MDP/0.1
    python bench/compare.py --load 32x8x64x4096      WORKERSxCLIENTSxOUTSTANDINGxBYTES

The figure is the CPU time of the broker's process, with its children and threads, divided by the requests it served. Other load on the
machine affects it little, but it affects requests/s. Rounds alternate between the brokers, and the median counts. Results are
written to bench/results/.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
PATH = os.environ.get("PATH", "") + ":/usr/sbin"
OURS = (
    f"{shlex.quote(sys.executable)} -m polydomo up --listen tcp://127.0.0.1:{{port}} --data {{data}} --log-level error"
)
PROTOCOLS = ("mdp1", "mdp2", "mdx", "dcp", "memo", "emqp")


@dataclass
class Row:
    load: str
    broker: str
    protocol: str
    cpu_us: float  # of the broker, per request
    rate: float
    ratio: float = 1.0  # of ours to this one, or of this protocol to MDP/0.1


def cpu(pid: int) -> float:
    """CPU seconds of a process and every process under it."""
    total = 0.0
    todo = [pid]
    while todo:
        process = todo.pop()
        try:
            for task in os.listdir(f"/proc/{process}/task"):
                total += _task_cpu(Path(f"/proc/{process}/task/{task}"))
                todo += map(int, Path(f"/proc/{process}/task/{task}/children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def _task_cpu(task: Path) -> float:
    """CPU seconds of one thread: in nanoseconds where the kernel counts them."""
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, IndexError):
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"the broker did not start: {process.args!r}")


def measure(command: str, protocol: str, load: tuple[int, ...], requests: int, credit: int = 1) -> tuple[float, float]:
    """(CPU microseconds per request, requests/s) of one broker under one load."""
    workers, clients, window, size = load
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        process = subprocess.Popen(
            shlex.split(command.format(port=port, data=data)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(port, process)
            time.sleep(0.3)
            before = cpu(process.pid)
            numbers = [str(n) for n in (port, workers, clients, requests, window, size, credit)]
            out = subprocess.run(
                [sys.executable, "-m", "bench.load", protocol, *numbers],
                cwd=HERE.parent,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            used = cpu(process.pid) - before
            if out.returncode:
                raise SystemExit(f"the load failed on {command!r}: {out.stderr.strip()[-300:]}")
            result = json.loads(out.stdout)
            return used * 1e6 / result["requests"], result["rate"]
        finally:
            end(process)


def end(process: "subprocess.Popen[bytes]", patience: float = 60.0) -> None:
    """Asks a broker to stop, and kills it if it does not."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def peers() -> list[tuple[str, str, str]]:
    """(name, command, protocol) of ours and every other broker that is installed."""
    found = [
        ("polydomo", OURS, "mdp1"),
        (
            "pyzmq loop",
            f"{shlex.quote(sys.executable)} {shlex.quote(str(HERE / 'pyzmq_loop.py'))} tcp://127.0.0.1:{{port}}",
            "mdp1",
        ),
    ]
    if gearmand := shutil.which("gearmand", path=PATH):
        user = " --user root" if os.getuid() == 0 else ""
        found.append(("gearmand", f"{gearmand} -L 127.0.0.1 -p {{port}} -l {{data}}/log{user}", "gearman"))
    if nats := shutil.which("nats-server", path=PATH):
        found.append(("nats-server", f"{nats} -a 127.0.0.1 -p {{port}}", "nats"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", nargs="*", default=["32x8x64x64", "32x8x64x4096"])
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--credit", type=int, default=1, help="requests that each worker of ours holds (MDX, eMQP)")
    parser.add_argument("--protocols", action="store_true", help="ours with each protocol instead of the others")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    cases = [("polydomo", OURS, protocol) for protocol in PROTOCOLS] if asked.protocols else peers()
    if asked.credit > 1:
        cases = [("polydomo", OURS, "mdx"), ("polydomo", OURS, "emqp"), *(case for case in cases if case[2] != "mdp1")]
    rows: list[Row] = []
    print(f"{'load':<15}{'broker':<14}{'protocol':<10}{'us/request':>11}{'requests/s':>12}{'ratio':>8}")
    for text in asked.load:
        load = tuple(map(int, text.split("x")))
        figures: dict[int, list[tuple[float, float]]] = {i: [] for i in range(len(cases))}
        for _ in range(asked.rounds):
            for i, (_, command, protocol) in enumerate(cases):
                figures[i].append(measure(command, protocol, load, asked.requests, asked.credit))
        first = statistics.median(cost for cost, _ in figures[0])
        for i, (name, _, protocol) in enumerate(cases):
            cost = statistics.median(c for c, _ in figures[i])
            rate = statistics.median(r for _, r in figures[i])
            ratio = cost / first if asked.protocols else first / cost
            rows.append(Row(text, name, protocol, round(cost, 2), rate, round(ratio, 2)))
            print(f"{text:<15}{name:<14}{protocol:<10}{cost:>11.1f}{rate:>12,.0f}{ratio:>8.2f}", flush=True)
    asked.out.mkdir(exist_ok=True)
    kind = "protocols" if asked.protocols else "compare"
    path = asked.out / f"{kind}-{time.strftime('%Y%m%dT%H%M%S')}.json"
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    path.write_text(
        json.dumps({"machine": machine, "requests": asked.requests, "rows": [asdict(row) for row in rows]}, indent=1)
    )
    print(f"kept in {path}")


if __name__ == "__main__":
    main()
