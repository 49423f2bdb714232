"""An MDP worker as the Guide has it: one socket, heartbeats from the same loop, a new connection when the broker is silent.

It answers a request with the frames NAME, body... and tells what happens to it on standard output, one JSON object a line.
With --gate each request waits for a line on standard input: a Guide's worker does nothing else meanwhile, and sends no
heartbeats; with --beats-busy the job is another thread's matter, and the heartbeats go on.
"""

import argparse
import json
import queue
import sys
import threading
import time

import zmq


class Words:
    """The bytes of a protocol version."""

    def __init__(self, version: str) -> None:
        first = version == "mdp1"
        self.head = [b"", b"MDPW01"] if first else [b"MDPW02"]
        self.ready, self.request = b"\x01", b"\x02"
        self.partial = b"" if first else b"\x03"
        self.final, self.heartbeat, self.disconnect = (
            (b"\x03", b"\x04", b"\x05") if first else (b"\x04", b"\x05", b"\x06")
        )


class Worker:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.words = Words(options.protocol)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] | None = None
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run(self) -> None:
        threading.Thread(target=self.read, daemon=True).start()
        self.connect()
        while True:
            self.serve()

    def read(self) -> None:
        for line in sys.stdin:
            self.lines.put(line.strip())
        self.lines.put("leave")

    def connect(self) -> None:
        if self.socket is not None:
            self.socket.close(0)
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 1000
        self.socket.reconnect_ivl = 50
        self.socket.connect(self.options.url)
        self.send(self.words.ready, self.options.service.encode())
        self.heard = self.spoke = time.monotonic()
        tell("connected")

    def send(self, *frames: bytes) -> None:
        assert self.socket is not None
        self.socket.send_multipart([*self.words.head, *frames])

    def beat(self) -> None:
        if time.monotonic() - self.spoke >= self.options.beat:
            self.spoke = time.monotonic()
            self.send(self.words.heartbeat)

    def serve(self) -> None:
        assert self.socket is not None
        words = self.words
        if not self.options.gate and not self.lines.empty() and self.lines.get() == "leave":
            self.leave()
        if self.socket.poll(int(self.options.beat * 500)):
            frames = self.socket.recv_multipart()[len(words.head) :]
            self.heard = time.monotonic()
            if frames[0] == words.request:
                self.work(frames[1], frames[3:])
            elif frames[0] == words.heartbeat:
                tell("beat")
            elif frames[0] == words.disconnect:
                tell("disconnected")
                if self.options.once:
                    sys.exit(0)
                self.connect()
        elif time.monotonic() - self.heard > self.options.beat * self.options.liveness:
            tell("silence")
            self.connect()
        self.beat()

    def work(self, client: bytes, body: list[bytes]) -> None:
        tell("job", body=[frame.hex() if len(frame) < 100 else len(frame) for frame in body])
        if self.options.gate:
            self.wait()
        for number in range(self.options.partials):
            self.send(self.words.partial, client, b"", b"%d" % number)
        self.send(self.words.final, client, b"", self.options.name.encode(), *body)
        tell("answered")

    def wait(self) -> None:
        while True:
            try:
                line = self.lines.get(timeout=self.options.beat / 2 if self.options.beats_busy else None)
            except queue.Empty:
                self.beat()
                continue
            if line == "leave":
                self.leave()
            return

    def leave(self) -> None:
        assert self.socket is not None
        self.send(self.words.disconnect)
        self.socket.close()
        self.context.term()
        sys.exit(0)


def tell(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("service")
    parser.add_argument("--protocol", choices=["mdp1", "mdp2"], default="mdp1")
    parser.add_argument("--name", default="worker")
    parser.add_argument("--beat", type=float, default=2.5)
    parser.add_argument("--liveness", type=int, default=4)
    parser.add_argument("--partials", type=int, default=0)
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--beats-busy", action="store_true")
    parser.add_argument("--once", action="store_true", help="end on DISCONNECT instead of connecting again")
    Worker(parser.parse_args()).run()
