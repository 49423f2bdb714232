"""CPU time per MiB with hundreds of large bodies: polydomo, the libzmq C loop and NATS in one run.

    python -m bench.large                       200 requests with bodies of 64 MiB, 4 at a time
    python -m bench.large --size 8 --requests 50

Every request carries a body of SIZE MiB to a worker, and its reply the same body back. CPU is that of the broker's process; a MiB counts
once in each direction. Memory is the largest resident set during the run above that before it: it is bounded by the bodies in flight,
which the broker holds while it receives them and until they are sent. Clients and workers are threads with plain sockets, the same for all.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.compare import PATH, cpu, end, free_port, wait_for
from bench.idle import memory
from bench.load_peers import GREETING, READY
from polydomo.wire.frames import join

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
SPARE = 4096  # bytes of a message that are not its body


class Wire:
    """A blocking socket with exact reads into memory that is used again."""

    def __init__(self, port: int, size: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(size)

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            if not piece:
                raise ConnectionError("closed")
            found += piece
        return bytes(found)

    def into_buffer(self, size: int) -> memoryview:
        view = memoryview(self.buffer)[:size]
        at = 0
        while at < size:
            count = self.socket.recv_into(view[at:])
            if not count:
                raise ConnectionError("closed")
            at += count
        return view

    def send(self, head: bytes, body: "bytes | memoryview") -> None:
        self.socket.sendall(head)
        self.socket.sendall(body)


class ZmtpWire(Wire):
    """MDP/0.1."""

    def __init__(self, port: int, size: int, worker: bool) -> None:
        super().__init__(port, size)
        self.socket.sendall(GREETING + READY)
        self.exactly(64)
        self.exactly(self.exactly(2)[1])
        if worker:
            self.socket.sendall(join([b"", b"MDPW01", b"\x01", b"echo"]))

    def message(self) -> "tuple[list[bytes], memoryview]":
        """The frames before the last one, and the last one, in the buffer."""
        frames: list[bytes] = []
        while True:
            flags = self.exactly(1)[0]
            size = struct.unpack(">Q", self.exactly(8))[0] if flags & 2 else self.exactly(1)[0]
            if not flags & 1:
                return frames, self.into_buffer(size)
            frames.append(self.exactly(size))

    def call(self, body: bytes) -> int:
        head = join([b"", b"MDPC01", b"echo", b""])[:-2]
        self.send(head + b"\x02" + struct.pack(">Q", len(body)), body)
        return len(self.message()[1])

    def serve(self) -> None:
        while True:
            frames, body = self.message()
            if len(frames) > 3 and frames[2] == b"\x02":
                head = join([b"", b"MDPW01", b"\x03", *frames[3:], b""])[:-2]
                self.send(head + b"\x02" + struct.pack(">Q", len(body)), body)


class NatsWire(Wire):
    number = 0

    def __init__(self, port: int, size: int, worker: bool) -> None:
        super().__init__(port, size)
        NatsWire.number += 1
        self.inbox = b"I.%d" % NatsWire.number
        self._line()
        subject = b"SUB echo q 1" if worker else b"SUB %b 1" % self.inbox
        self.socket.sendall(b'CONNECT {"verbose":false}\r\n%b\r\nPING\r\n' % subject)
        while self._line() != b"PONG":
            pass

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\r\n"):
            line += self.exactly(1)
        return bytes(line[:-2])

    def message(self) -> "tuple[bytes, memoryview]":
        while True:
            line = self._line()
            if line.startswith(b"MSG "):
                words = line.split()
                body = self.into_buffer(int(words[-1]) + 2)
                return words[3] if len(words) == 5 else b"", body
            if line == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise ConnectionError(line.decode())

    def call(self, body: bytes) -> int:
        self.send(b"PUB echo %b %d\r\n" % (self.inbox, len(body)), body)
        self.socket.sendall(b"\r\n")
        return len(self.message()[1]) - 2

    def serve(self) -> None:
        while True:
            reply, body = self.message()
            self.send(b"PUB %b %d\r\n" % (reply, len(body) - 2), body)


class Peak:
    """The largest resident set of a process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.before = memory(pid)
        self.most = self.before
        self._stopped = False
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stopped:
            with contextlib.suppress(OSError, RuntimeError):
                self.most = max(self.most, memory(self._pid))
            time.sleep(0.02)

    def stop(self) -> int:
        self._stopped = True
        self._thread.join()
        return self.most - self.before


def measure(
    words: "list[str]", port: int, kind: "type[ZmtpWire] | type[NatsWire]", asked: argparse.Namespace
) -> "dict[str, float]":
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        time.sleep(1.0)
        size = int(asked.size * MIB) - SPARE
        body = os.urandom(MIB) * (size // MIB + 1)
        body = body[:size]
        wires = [kind(port, size + SPARE, True) for _ in range(asked.at_once)]
        for wire in wires:
            threading.Thread(target=quietly(wire.serve), daemon=True).start()
        time.sleep(0.5)
        peak = Peak(process.pid)
        before, began = cpu(process.pid), time.monotonic()
        failures: list[BaseException] = []

        def client(count: int) -> None:
            try:
                wire = kind(port, size + SPARE, False)
                for _ in range(count):
                    if wire.call(body) != size:
                        raise ValueError("a reply of another size")
                wire.socket.close()
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=client, args=(asked.requests // asked.at_once,)) for _ in range(asked.at_once)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, used = time.monotonic() - began, cpu(process.pid) - before
        grown = peak.stop()
        for wire in wires:
            wire.socket.close()
        if failures:
            raise SystemExit(f"{words[0]}: {failures[0]!r}")
        passed = 2 * size * (asked.requests // asked.at_once) * asked.at_once / MIB
        return {
            "cpu_us_per_mib": round(used * 1e6 / passed, 1),
            "mib_per_second": round(passed / took),
            "memory_mib": round(grown / 1024),
        }
    finally:
        end(process)


def quietly(serve: "Callable[[], None]") -> "Callable[[], None]":
    def run() -> None:
        with contextlib.suppress(OSError):
            serve()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=64.0, help="MiB")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(asked.rounds):
            for name, words, port, kind in brokers(Path(directory)):
                row = measure(words, port, kind, asked)
                rows.setdefault(name, []).append(row)
                print(f"{name:<16}", json.dumps(row), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1))


def brokers(directory: Path) -> "list[tuple[str, list[str], int, type[ZmtpWire] | type[NatsWire]]]":
    """Ours, and those that are installed."""
    found: list[tuple[str, list[str], int, type[ZmtpWire] | type[NatsWire]]] = []
    port = free_port()
    listen = ["--listen", f"tcp://127.0.0.1:{port}", "--data", str(directory / "data"), "--log-level", "error"]
    found.append(("polydomo", [sys.executable, "-m", "polydomo", "up", *listen], port, ZmtpWire))
    compiler = shutil.which("cc")
    program = directory / "libzmq_loop"
    if compiler and not program.exists():
        made = subprocess.run([compiler, "-O2", "-o", str(program), str(HERE / "libzmq_loop.c"), "-lzmq"], check=False)
        if made.returncode:
            program.unlink(missing_ok=True)
    if program.exists():
        port = free_port()
        found.append(("libzmq C loop", [str(program), f"tcp://127.0.0.1:{port}"], port, ZmtpWire))
    nats = shutil.which("nats-server", path=PATH)
    if nats:
        port = free_port()
        config = directory / "nats.conf"
        config.write_text("max_payload: 67108864\nmax_pending: 536870912\nwrite_deadline: 60s\n")
        found.append(("nats-server", [nats, "-a", "127.0.0.1", "-p", str(port), "-c", str(config)], port, NatsWire))
    return found


if __name__ == "__main__":
    main()
