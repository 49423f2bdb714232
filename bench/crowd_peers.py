"""The peers of ``bench/crowd.py``: raw sockets on one epoll, because the generator must cost less than the broker.

    python -m bench.crowd_peers stay PORT COUNT AT_ONCE      COUNT MDP/0.1 workers that send heartbeats and reconnect
    python -m bench.crowd_peers pass PORT RATE SECONDS       RATE peers per second that connect, complete the handshake, and leave

``stay`` prints ``{"ready", "lost"}`` as a JSON line whenever they change, and ends with its standard input. ``lost`` counts connections
that were ready and ended. AT_ONCE limits the connections that are being made at a time. ``pass`` prints one line at its end.
"""

import contextlib
import errno
import heapq
import json
import random
import select
import socket
import sys
import time
from collections import deque

from bench.load_peers import GREETING, READY
from polydomo.wire.frames import join

BEAT = 2.5  # seconds between two heartbeats of a worker
SLICES = 50  # parts of the interval: heartbeats are spread over it
HEARTBEAT = join([b"", b"MDPW01", b"\x04"])
BACKOFF = 0.1  # seconds until a refused or lost peer connects again, twice as long each time, as client libraries do
BACKOFF_MOST = 2.0
REPORT = 0.1  # seconds between two lines at least
GIVE_UP = 60.0  # seconds for a peer that passes
SHAKEN = b"ROUTER"  # in the last bytes of the broker's handshake


def source() -> "tuple[str, int]":
    """One of many addresses of the loopback interface: each has some 28,000 ports, and a closed connection keeps its own for a minute."""
    return f"127.0.{random.randint(0, 3)}.{random.randint(2, 250)}", 0


class Peer:
    """One connection."""

    __slots__ = ("began", "number", "open", "ready", "seen", "socket")

    def __init__(self, sock: socket.socket, number: int, began: float) -> None:
        self.socket = sock
        self.number = number
        self.began = began
        self.open = False  # TCP is connected
        self.ready = False  # the handshake is complete
        self.seen = b""


class Peers:
    """Connects peers and drives their handshakes. Subclasses decide what follows."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.epoll = select.epoll()
        self.peers: dict[int, Peer] = {}
        self.connecting = 0

    def connect(self, number: int) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        with contextlib.suppress(AttributeError, OSError):
            sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: the port is chosen with the connection
        sock.bind(source())
        code = sock.connect_ex(("127.0.0.1", self.port))
        peer = Peer(sock, number, time.monotonic())
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self.failed(peer)
            return
        self.peers[sock.fileno()] = peer
        self.connecting += 1
        self.epoll.register(sock.fileno(), select.EPOLLOUT)

    def poll(self, seconds: float) -> None:
        for file, _ in self.epoll.poll(max(0.0, seconds), 1024):
            peer = self.peers.get(file)
            if peer is None:
                self.other(file)
            elif not peer.open:
                self._opened(peer, file)
            else:
                self._received(peer)

    def _opened(self, peer: Peer, file: int) -> None:
        if peer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._gone(peer)
            return
        peer.open = True
        try:
            peer.socket.send(GREETING + READY)
        except OSError:
            self._gone(peer)
            return
        self.epoll.modify(file, select.EPOLLIN)

    def _received(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._gone(peer)
        elif not peer.ready:
            peer.seen += data
            if SHAKEN in peer.seen:
                peer.ready = True
                peer.seen = b""
                self.connecting -= 1
                self.shaken(peer)

    def drop(self, peer: Peer) -> None:
        """Closes the connection."""
        if self.peers.pop(peer.socket.fileno(), None) is not None and not peer.ready:
            self.connecting -= 1
        peer.socket.close()

    def _gone(self, peer: Peer) -> None:
        self.drop(peer)
        self.failed(peer)

    def shaken(self, peer: Peer) -> None:
        """The handshake is complete."""
        raise NotImplementedError

    def failed(self, peer: Peer) -> None:
        """The connection was refused or lost; it is closed."""
        raise NotImplementedError

    def other(self, file: int) -> None:
        """Another file is readable."""


class Stayers(Peers):
    """Workers that stay."""

    def __init__(self, port: int, count: int, at_once: int) -> None:
        super().__init__(port)
        self.at_once = at_once
        self.due: deque[int] = deque(range(count))  # numbers of peers that are to connect now
        self.later: list[tuple[float, int]] = []  # ... and later
        self.failures: dict[int, int] = {}  # number -> failures since it was ready
        self.ready = 0
        self.lost = 0
        self.ended = False

    def shaken(self, peer: Peer) -> None:
        service = b"crowd.%d" % (peer.number % 100)
        with contextlib.suppress(OSError):
            peer.socket.send(join([b"", b"MDPW01", b"\x01", service]))
        self.ready += 1
        self.failures.pop(peer.number, None)

    def failed(self, peer: Peer) -> None:
        if peer.ready:
            self.ready -= 1
            self.lost += 1
        failures = self.failures[peer.number] = self.failures.get(peer.number, -1) + 1
        pause = min(BACKOFF_MOST, BACKOFF * 2.0**failures) * random.uniform(0.5, 1.0)
        heapq.heappush(self.later, (time.monotonic() + pause, peer.number))

    def other(self, file: int) -> None:
        self.ended = True  # standard input

    def beat(self, part: int) -> None:
        for peer in list(self.peers.values())[part::SLICES]:
            if peer.ready:
                with contextlib.suppress(OSError):
                    peer.socket.send(HEARTBEAT)

    def run(self) -> None:
        self.epoll.register(sys.stdin.fileno(), select.EPOLLIN)
        part, beat_at, report_at, reported = 0, time.monotonic(), 0.0, (-1, -1)
        while not self.ended:
            now = time.monotonic()
            if now >= beat_at:
                self.beat(part % SLICES)
                part += 1
                beat_at = max(beat_at + BEAT / SLICES, now - BEAT)
            while self.later and self.later[0][0] <= now:
                self.due.append(heapq.heappop(self.later)[1])
            for _ in range(200):
                if not self.due or self.connecting >= self.at_once:
                    break
                self.connect(self.due.popleft())
            if now >= report_at and (self.ready, self.lost) != reported:
                reported, report_at = (self.ready, self.lost), now + REPORT
                print(json.dumps({"ready": self.ready, "lost": self.lost}), flush=True)
            self.poll(0.0 if self.due and self.connecting < self.at_once else min(REPORT, beat_at - now))


class Passers(Peers):
    """Peers that connect, shake hands and leave."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.passed = 0
        self.refused = 0
        self.slowest = 0.0

    def shaken(self, peer: Peer) -> None:
        self.passed += 1
        self.slowest = max(self.slowest, time.monotonic() - peer.began)
        self.drop(peer)

    def failed(self, peer: Peer) -> None:
        self.refused += 1

    def run(self, rate: float, seconds: float) -> "dict[str, object]":
        began = time.monotonic()
        total, count = round(rate * seconds), 0
        while self.passed + self.refused < total and time.monotonic() < began + seconds + GIVE_UP:
            due = min(total, int((time.monotonic() - began) * rate) + 1)
            for _ in range(min(due - count, 200)):
                self.connect(count)
                count += 1
            self.poll(0.0 if due > count else 0.002)
        took = time.monotonic() - began
        left = total - self.passed - self.refused
        figures: dict[str, object] = {"passed": self.passed, "refused": self.refused + left}
        return {**figures, "per_second": round(self.passed / took), "slowest_ms": round(self.slowest * 1e3)}


def main() -> None:
    kind, port, *rest = sys.argv[1:]
    if kind == "stay":
        Stayers(int(port), int(rest[0]), int(rest[1])).run()
    else:
        print(json.dumps(Passers(int(port)).run(float(rest[0]), float(rest[1]))), flush=True)


if __name__ == "__main__":
    main()
