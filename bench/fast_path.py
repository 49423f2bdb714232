"""CPU per request inside the broker, without sockets: what each fast path saves, and what the journal costs.

    python -m bench.fast_path                          every protocol with a fast path, on and off by turns, 64 and 4,096 bytes
    python -m bench.fast_path --credit 16              workers that hold several requests, where the protocol can
    python -m bench.fast_path --journal off            without the journal's recorder
    PYTHONPATH=build/compiled python -m bench.fast_path   the compiled core (make compiled)

Real links, sessions and broker; the peers are the libraries' own ends. Only the time inside the broker counts: reading
input, and joining output. The best of several rounds counts, since other programs can only make a round slower.
"""

import argparse
import gc
import time
from collections import deque
from collections.abc import Callable

from polydomo import native
from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.observe.recorder import Recorder
from polydomo.journal.levels import Levels
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols import registry
from polydomo.protocols.detect import Detector
from polydomo.protocols.ends import ClientEnd, Delivery, Event, Reply, WorkerEnd
from polydomo.wire.frames import join, split
from polydomo.wire.link import Hub, LinkHandler, Turns
from polydomo.wire.zmtp.link import ZmtpLink

SERVICE = b"echo"
PROTOCOLS = ("mdp1", "mdx", "emqp")
PER_READ = 8  # messages that arrive with one read of a client's socket


class Zeros(Entropy):
    def take(self, size: int) -> bytes:
        return bytes(size)


class ManyRequests(ClientEnd):
    """An MDP/0.1 client that, unlike the library's, has several requests open: replies come in any order."""

    def request(
        self,
        key: int,
        service: bytes,
        body: list[bytes],
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        self.out.append([b"", b"MDPC01", service, *body])

    def receive(self, message: list[bytes]) -> list[Event]:
        return [Reply(0, message[3:])]


class Peer:
    """One connection to the broker: its link, and the bytes that its end has for it."""

    def __init__(self, hub: Hub, broker: Broker, end: ClientEnd | WorkerEnd, number: int) -> None:
        self.end = end
        detector = Detector(broker)
        self.link = ZmtpLink(hub, detector, f"tcp://127.0.0.1:{number}")
        detector.attach(self.link)
        dialer = ZmtpLink(Hub(), LinkHandler(), "broker", socket_type=end.socket_type)
        while dialer.out or self.link.out:
            self.link.receive(b"".join(dialer.take()))
            dialer.receive(b"".join(self.link.take()))
        assert self.link.open, self.link.closing
        hub.dirty.clear()

    def written(self) -> bytes:
        """What the end sends."""
        data = b"".join(map(join, self.end.out))
        self.end.out.clear()
        return data


class Bench:
    """A broker with its peers. ``prepare`` gets the broker before peers connect; ``principal`` is that of the peers."""

    def __init__(
        self,
        protocol: str,
        size: int,
        fast: bool,
        journal: str,
        credit: int,
        peers: "tuple[int, int, int]",
        prepare: "Callable[[Broker], None] | None" = None,
        principal: str = "",
    ) -> None:
        workers, clients, self.outstanding = peers
        self.hub = Hub(Turns())
        recorder = Recorder() if journal == "off" else JournalRecorder(Run("bench", 1, 0.0), Levels(journal))
        self.broker = Broker(time.monotonic(), Zeros(), recorder=recorder)
        if isinstance(recorder, JournalRecorder):
            recorder.attach(self.broker)
            recorder.begin("bench")
        if prepare is not None:
            prepare(self.broker)
        self.recorder = recorder
        self.body = bytes(size)
        self.spent = 0.0
        self.key = 0
        self.unread: dict[Peer, list[bytes]] = {}  # of links that are paused
        self.workers: dict[ZmtpLink, Peer] = {}
        self.clients: dict[ZmtpLink, Peer] = {}
        for number in range(workers + clients):
            end: WorkerEnd | ClientEnd
            if number < workers:
                end = registry.worker_end(protocol)
            else:
                end = ManyRequests() if protocol == "mdp1" else registry.client_end(protocol)
            peer = Peer(self.hub, self.broker, end, number)
            peer.link.principal = principal
            (self.workers if number < workers else self.clients)[peer.link] = peer
        for peer in self.workers.values():
            assert isinstance(peer.end, WorkerEnd)
            peer.end.open([SERVICE], min(credit, peer.end.slots))
            self.take(peer, peer.written())
        for count in (1, self.outstanding - 1):  # the first request of a connection makes its session
            for peer in self.clients.values():
                assert isinstance(peer.end, ClientEnd)
                self.ask(peer.end, count)
                self.take(peer, peer.written())
        if not fast:
            for link in [*self.workers, *self.clients]:
                link.handler.has_fast_path = False
                link._fast = False  # it is looked at again only after a message that was not fast
        self.run(clients * self.outstanding)

    def ask(self, end: ClientEnd, count: int) -> None:
        for _ in range(count):
            self.key += 1
            end.request(self.key, SERVICE, [self.body])

    def take(self, peer: Peer, data: bytes) -> None:
        if peer.link.pauses:  # the server does not read from it
            self.unread.setdefault(peer, []).append(data)
            return
        begin = time.thread_time()
        peer.link.receive(data)
        self.spent += time.thread_time() - begin

    def turn(self) -> "dict[ZmtpLink, bytes]":
        """The end of a turn of the loop, as in the server: the output of each link."""
        self.broker.now = self.hub.now = time.monotonic()
        begin = time.thread_time()
        self.hub.begin_turn()
        self.broker.end_turn()
        while self.hub.resumed:
            self.hub.resumed.pop().receive(b"")
        dirty = self.hub.dirty
        self.hub.dirty = []
        out: dict[ZmtpLink, bytes] = {}
        for link in dirty:
            if link.out:  # a link may be there twice
                assert isinstance(link, ZmtpLink)
                out[link] = b"".join(link.out)
                link.out.clear()
        self.spent += time.thread_time() - begin
        return out

    def run(self, requests: int) -> float:
        """Microseconds per request."""
        self.spent = 0.0
        done = 0
        todo: deque[tuple[Peer, list[list[bytes]]]] = deque()
        while done < requests:
            for link, data in self.turn().items():
                peer = self.workers.get(link) or self.clients[link]
                todo.append((peer, _messages(data)))
            unread, self.unread = self.unread, {}
            for peer, pieces in unread.items():
                for piece in pieces:
                    self.take(peer, piece)
            while todo:
                peer, messages = todo.popleft()
                end = peer.end
                events = [event for message in messages for event in end.receive(message)]
                if isinstance(end, WorkerEnd):
                    for event in events:
                        if isinstance(event, Delivery):
                            end.final(event, event.body)
                    self.take(peer, peer.written())
                else:
                    done += len(events)
                    while events:
                        batch, events = events[:PER_READ], events[PER_READ:]
                        self.ask(end, len(batch))
                        self.take(peer, peer.written())
            if isinstance(self.recorder, JournalRecorder):
                self.recorder.queue.chunks.clear()
        return self.spent / done * 1e6


def _messages(data: bytes) -> "list[list[bytes]]":
    """The messages that were written one after the other."""
    found = []
    start = position = 0
    while position < len(data):
        flags = data[position]
        if flags & 2:
            position += 9 + int.from_bytes(data[position + 1 : position + 9], "big")
        else:
            position += 2 + data[position + 1]
        if not flags & 1:
            found.append(split(data[start:position]))
            start = position
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU per request inside the broker, each fast path on and off.")
    parser.add_argument("--protocols", nargs="+", default=PROTOCOLS, choices=PROTOCOLS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 4096], help="bytes of a body")
    parser.add_argument("--journal", default="requests", choices=["off", "requests", "messages"])
    parser.add_argument("--credit", type=int, default=1, help="requests that a worker may hold")
    parser.add_argument("--load", default="32x8x64", help="WORKERSxCLIENTSxOUTSTANDING")
    parser.add_argument("--requests", type=int, default=6000, help="in each round")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    workers, clients, outstanding = map(int, asked.load.split("x"))
    print(
        f"{native.form()}; journal {asked.journal}, credit {asked.credit}, {asked.load}; us per request, best of {asked.rounds}"
    )
    print(f"{'protocol':<10}{'body':>6}{'on':>8}{'off':>8}{'saves':>8}")
    for protocol in asked.protocols:
        for size in asked.sizes:
            benches = [
                Bench(protocol, size, fast, asked.journal, asked.credit, (workers, clients, outstanding))
                for fast in (True, False)
            ]
            gc.collect()
            gc.freeze()
            best = [float("inf"), float("inf")]
            for _ in range(asked.rounds):
                for which, bench in enumerate(benches):
                    best[which] = min(best[which], bench.run(asked.requests))
            on, off = best
            print(f"{protocol:<10}{size:>6}{on:>8.2f}{off:>8.2f}{1 - on / off:>8.0%}", flush=True)


if __name__ == "__main__":
    main()
