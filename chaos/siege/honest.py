"""The honest pair: an MDX worker and an MDX client in one process, with one call at a time.

``python -m chaos.siege.honest PORT PID`` reads commands from its standard input: ``begin`` starts the measurement, ``end`` prints the
results as a JSON line. Time in which this process or the broker (PID) was ready to run but had no CPU does not count, because it
depends on the other load of the machine.
"""

import json
import os
import select
import statistics
import sys
import time
from pathlib import Path

from chaos.siege.peers import Foe
from polydomo.wire.frames import join

PAUSE = 0.002  # seconds between two calls
BODY = b"x" * 32


class Waits:
    """How long a thread has waited for a CPU so far, as counted by the kernel."""

    def __init__(self, pid: int) -> None:
        self._file = Path(f"/proc/{pid}/schedstat")

    def read(self) -> float:
        try:
            return int(self._file.read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0  # the kernel does not count it: all time counts


class Pair:
    def __init__(self, port: int) -> None:
        self.worker = Foe.zmtp(port)
        self.worker.send(b"MDXW01", b"\x01", b"honest")
        self.client = Foe.zmtp(port)
        self.number = 0

    def call(self) -> None:
        self.number += 1
        name = b"%d" % self.number
        self.client.socket.sendall(join([b"MDXC01", b"\x01", b"honest", name, BODY]))
        while True:
            message = self.worker.receive()
            if message[1] == b"\x02":
                break
            if message[1] == b"PING":
                self.worker.send(b"MDXW01", b"PONG")
        self.worker.send(b"MDXW01", b"\x04", *message[2:])
        answer = self.client.receive()
        if answer != [b"MDXC01", b"\x03", b"honest", name, BODY]:
            raise RuntimeError(f"a wrong reply: {answer[:4]!r}")


def main() -> None:
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    broker, own = Waits(pid), Waits(os.getpid())
    pair = Pair(port)
    pair.call()
    print("ready", flush=True)
    took: list[float] = []
    longest_wall = 0.0
    broken = ""
    while True:
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            word = sys.stdin.readline().strip()
            if word == "begin":
                took, longest_wall = [], 0.0
            elif word == "end":
                report = {
                    "calls": len(took),
                    "longest": max(took, default=0.0),
                    "longest_wall": longest_wall,
                    "median": statistics.median(took) if took else 0.0,
                    "broken": broken,
                }
                print(json.dumps(report), flush=True)
            else:
                return
        if broken:
            continue
        start, waited = time.monotonic(), broker.read() + own.read()
        try:
            pair.call()
        except OSError as error:
            broken = f"{type(error).__name__}: {error}"
        wall = time.monotonic() - start
        longest_wall = max(longest_wall, wall)
        took.append(max(0.0, wall - (broker.read() + own.read() - waited)))


if __name__ == "__main__":
    main()
