"""One worker: ``python -m demo.peers.worker URL PROTOCOL SERVICE JOB NAME [HOLD]``.

The name of an MDP dialect makes it a program on plain pyzmq, as are already out there; any other protocol is spoken by polydomo's library.
A line on standard input lets it go on where it holds; the end of standard input ends it, so that it does not outlive the demo.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Generator

import zmq

import polydomo
from demo.peers.dialects import DIALECTS, Dialect
from demo.peers.jobs import JOBS, Hall

BEAT = 0.1  # seconds; the demo's broker expects MDP workers to beat every half second
GAP = 1.0  # seconds that it has not run, if it is this late for a beat
PATIENCE = 5.0  # seconds of a broker's silence after which it is connected to again


def library(url: str, protocol: str, service: str, job: str, hall: Hall) -> None:
    worker = polydomo.Worker(url, protocol)

    @worker.service(service)
    def serve(call: polydomo.Call) -> Generator[str, None, str]:
        steps = JOBS[job](hall, call.text)
        while True:
            try:
                part = next(steps)
            except StopIteration as end:
                return str(end.value)
            if part is not None:
                yield part

    worker.run()


class MdpWorker:
    """A worker as they have been written since 2011: a DEALER socket, READY, and a loop that beats."""

    def __init__(self, url: str, dialect: Dialect, service: str, job: str, hall: Hall) -> None:
        self.url = url
        self.dialect = dialect
        self.service = service
        self.job = JOBS[job]
        self.hall = hall
        self.connect()

    def run(self) -> None:
        while True:
            if self.socket.poll(int(BEAT * 1000)):
                self.heard = time.monotonic()
                frames = self.socket.recv_multipart()[len(self.dialect.lead) :]
                if frames[1] == self.dialect.deliver:
                    self.work(frames[2], b"".join(frames[4:]).decode())
                elif frames[1] == self.dialect.disconnect:
                    self.connect_again()
            elif time.monotonic() > self.heard + PATIENCE:
                self.connect_again()
            self.beat()

    def connect(self) -> None:
        """A new connection, and READY on it."""
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 500)
        self.socket.connect(self.url)
        self.heard = time.monotonic()
        self.say(self.dialect.ready, self.service.encode())
        self.say(self.dialect.heartbeat)
        self.next_beat = time.monotonic() + BEAT

    def connect_again(self) -> None:
        self.socket.close()
        self.connect()

    def work(self, client: bytes, text: str) -> None:
        steps = self.job(self.hall, text)
        while True:
            try:
                part = next(steps)
            except StopIteration as end:
                self.say(self.dialect.work_final, client, b"", str(end.value).encode())
                return
            if part is not None and self.dialect.work_partial:
                self.say(self.dialect.work_partial, client, b"", part.encode())
            self.beat()  # also while it works

    def beat(self) -> None:
        now = time.monotonic()
        if now >= self.next_beat + GAP:
            self.next_beat = now + GAP  # it was stopped; it finishes what it holds before it beats again
        elif now >= self.next_beat:
            self.next_beat = now + BEAT
            self.say(self.dialect.heartbeat)

    def say(self, command: bytes, *rest: bytes) -> None:
        self.socket.send_multipart([*self.dialect.lead, b"MDPW" + self.dialect.version, command, *rest])

    def leave(self) -> None:
        self.say(self.dialect.disconnect)
        self.socket.close()


def listen(hall: Hall) -> None:
    for _ in sys.stdin:
        hall.go.set()
    os._exit(1)


def main() -> None:
    url, protocol, service, job, name, *hold = sys.argv[1:]
    hall = Hall(name, int(hold[0]) if hold else 0)
    threading.Thread(target=listen, args=(hall,), daemon=True).start()
    if protocol not in DIALECTS:
        library(url, protocol, service, job, hall)
        return
    worker = MdpWorker(url, DIALECTS[protocol], service, job, hall)

    def leave(number: int, frame: object) -> None:
        worker.leave()
        zmq.Context.instance().term()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    worker.run()


if __name__ == "__main__":
    main()
