"""Durable jobs beside NATS JetStream and gearmand: ``python bench/durable.py``.

Each server gets the same work from one client that keeps 64 submissions outstanding over one connection, with hardly any code of its own:
it counts acknowledgements in the stream of bytes. Measured are acknowledged submissions a second and the server's CPU time for each.

- polydomo: ``polydomo.submit`` over MDX; a job is acknowledged when it is on disk (SQLite, ``synchronous=FULL``)
- polydomo, in memory: plain requests to a worker, answered, for comparison
- NATS JetStream: publish with acknowledgement, file storage; as it comes (synced every two minutes), and synced always
- gearmand: background jobs with its SQLite queue

On a machine that is busy with other work, ``--realtime`` (as root) gives the client, the server and the workers priority over everything
else while they are measured. Without it, the figures are those of the other work.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from polydomo.model.jobs.messages import make_id
from polydomo.wire.frames import join
from polydomo.wire.security.mechanism import command, properties

BODY = b"x" * 100
OUTSTANDING = 64


class Figures(NamedTuple):
    per_second: float
    cpu_us: float  # of the server, for each
    p50_ms: float
    p99_ms: float


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


REALTIME = False  # --realtime


@contextmanager
def priority(pids: "list[int]") -> Iterator[None]:
    """With ``--realtime``, this process and the others run before all other processes of the machine."""
    tasks = [int(task.name) for pid in [os.getpid(), *pids] for task in Path(f"/proc/{pid}/task").iterdir()]
    for task in tasks if REALTIME else []:
        os.sched_setscheduler(task, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        for task in tasks if REALTIME else []:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))


def drive(
    sock: socket.socket,
    message: Callable[[int], bytes],
    mark: bytes,
    seconds: float,
    pid: int,
    others: "list[int] | None" = None,
) -> Figures:
    """Keeps ``OUTSTANDING`` messages under way and counts ``mark`` in what comes back. ``others`` are processes that help the server."""
    with priority([pid, *(others or [])]):
        return _drive(sock, message, mark, seconds, pid)


def _drive(sock: socket.socket, message: Callable[[int], bytes], mark: bytes, seconds: float, pid: int) -> Figures:
    sent = done = 0
    times: dict[int, float] = {}
    latencies: list[float] = []
    rest = b""
    begin = time.monotonic()
    cpu = cpu_seconds(pid)
    end = begin + seconds
    while True:
        now = time.monotonic()
        batch = []
        while now < end and sent - done < OUTSTANDING:
            times[sent] = now
            batch.append(message(sent))
            sent += 1
        if batch:
            sock.sendall(b"".join(batch))
        if done == sent:
            break
        data = rest + sock.recv(1 << 18)
        count = data.count(mark)
        now = time.monotonic()
        for n in range(done, done + count):
            latencies.append(now - times.pop(n))
        done += count
        rest = data[data.rfind(mark) + len(mark) :][-len(mark) + 1 :] if count else data[-len(mark) + 1 :]
    took = time.monotonic() - begin
    used = cpu_seconds(pid) - cpu
    latencies.sort()
    return Figures(
        done / took,
        used / done * 1e6,
        statistics.median(latencies) * 1000,
        latencies[int(len(latencies) * 0.99)] * 1000,
    )


def connect(port: int) -> socket.socket:
    end = time.monotonic() + 120
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(30)
            return sock
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def running(*words: str) -> Iterator[int]:
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


# --- the servers ------------------------------------------------------------------------------------------------------------


def zmtp(port: int) -> socket.socket:
    """A DEALER socket after its handshake."""
    sock = connect(port)
    sock.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    sock.sendall(command(b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Identity", b"")])))
    got = b""
    while b"READY" not in got:
        got += sock.recv(4096)
    time.sleep(0.1)
    return sock


@contextmanager
def broker(*words: str) -> Iterator[tuple[int, int]]:
    """A broker that keeps jobs; its process and port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-jobs-", dir=".") as data:
        flags = ("--listen", f"tcp://127.0.0.1:{port}", "--data", data, "--journal", "off")
        with running(sys.executable, "-m", "polydomo", "up", *flags, *words) as pid:
            yield pid, port


def submitted(seconds: float, store: str) -> Figures:
    """Jobs for a service without workers: they are stored and acknowledged."""

    def submit(n: int) -> bytes:
        header = json.dumps({"service": "nobody", "id": make_id(time.time(), os.urandom(10))}).encode() + b"\n"
        return join([b"MDXC01", b"\x01", b"polydomo.submit", n.to_bytes(8, "big"), header, BODY])

    with broker("--store", store) as (pid, port), zmtp(port) as sock:
        return drive(sock, submit, b'{"job":"', seconds, pid)


def answered(seconds: float, store: str) -> Iterator[tuple[str, Figures]]:
    """Requests that a worker answers, in memory and durable."""
    with ExitStack() as stack:
        pid, port = stack.enter_context(broker("--store", store, "--service", "kept.durable"))
        connect(port).close()
        workers: list[int] = []
        for service in ("plain", "kept"):
            words = ("work", service, "--echo", "--to", f"tcp://127.0.0.1:{port}", "--concurrency", "8")
            workers.append(stack.enter_context(running(sys.executable, "-m", "polydomo", *words)))
        sock = stack.enter_context(zmtp(port))
        time.sleep(3)
        for service, label in (
            ("plain", "request in memory, answered"),
            ("kept", "durable request, answered (2 syncs)"),
        ):

            def ask(n: int, name: bytes = service.encode()) -> bytes:
                return join([b"MDXC01", b"\x01", name, n.to_bytes(8, "big"), BODY])

            yield f"polydomo, {label}", drive(sock, ask, b"\x00\x64" + BODY, seconds, pid, workers)


def nats(seconds: float, sync: str, program: str) -> Figures | None:
    if shutil.which(program) is None:
        return None
    port = free_port()
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-nats-", dir="."))
        config = Path(data) / "nats.conf"
        interval = f", sync_interval: {sync}" if sync else ""
        config.write_text(f'port: {port}\njetstream {{ store_dir: "{Path(data).resolve()}/js"{interval} }}\n')
        if subprocess.run([program, "-c", str(config), "-t"], capture_output=True, check=False).returncode:
            return None  # this version has no setting for syncing
        pid = stack.enter_context(running(program, "-c", str(config)))
        sock = connect(port)
        sock.sendall(b'CONNECT {"verbose":false}\r\nSUB _INBOX.> 1\r\nPING\r\n')
        got = b""
        while b"PONG" not in got:
            got += sock.recv(4096)
        create = json.dumps({"name": "JOBS", "subjects": ["jobs"], "storage": "file"}).encode()
        sock.sendall(b"PUB $JS.API.STREAM.CREATE.JOBS _INBOX.0 %d\r\n%b\r\n" % (len(create), create))
        got = b""
        while b"\r\n" not in got or b"stream_create" not in got:
            got += sock.recv(4096)
        assert b'"error"' not in got, got
        time.sleep(0.2)
        return drive(sock, lambda n: b"PUB jobs _INBOX.1 %d\r\n%b\r\n" % (len(BODY), BODY), b'"seq":', seconds, pid)


def gearman(seconds: float) -> Figures | None:
    if shutil.which("gearmand") is None:
        return None
    port = free_port()
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-gearman-", dir="."))
        database = f"--libsqlite3-db={Path(data).resolve()}/queue.db"
        where = (
            "-p",
            str(port),
            "-L",
            "127.0.0.1",
            "-q",
            "libsqlite3",
            database,
            "-l",
            f"{data}/log",
            "--user",
            "root",
        )
        pid = stack.enter_context(running("gearmand", *where))
        sock = connect(port)

        def submit(n: int) -> bytes:
            content = b"nobody\0%d\0%b" % (n, BODY)
            return b"\0REQ" + (18).to_bytes(4, "big") + len(content).to_bytes(4, "big") + content  # SUBMIT_JOB_BG

        return drive(sock, submit, b"\0RES\0\0\0\x08", seconds, pid)


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable jobs beside other brokers.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--nats", default="nats-server", help="the program; from version 2.10 on it can sync always")
    parser.add_argument("--realtime", action="store_true", help="run before all other processes; needs root")
    given = parser.parse_args()
    global REALTIME
    REALTIME = given.realtime
    seconds = given.seconds
    rows: list[tuple[str, Figures | None]] = [("polydomo, job on disk", submitted(seconds, given.store))]
    rows += answered(seconds, given.store)
    rows.append(("NATS JetStream, file, synced always", nats(seconds, "always", given.nats)))
    rows.append(("NATS JetStream, file, synced every 2 min", nats(seconds, "", given.nats)))
    rows.append(("gearmand, SQLite queue", gearman(seconds)))
    print(f"{'':46}{'per second':>12}{'CPU us':>9}{'p50 ms':>9}{'p99 ms':>9}")
    for name, found in rows:
        if found is None:
            print(f"{name:46}{'cannot run':>12}")
        else:
            print(f"{name:46}{found.per_second:12,.0f}{found.cpu_us:9.0f}{found.p50_ms:9.2f}{found.p99_ms:9.2f}")


if __name__ == "__main__":
    main()
