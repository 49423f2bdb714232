"""Peers of other libraries: MDP/0.1 and MDP/0.2 on pyzmq, memo01 on pynng; a catalog service with UDP heartbeats; a crowd of idle peers.

Neither MDP nor memo01 has a message for failures: their clients end a call after their own timeout, and that is its outcome.
"""

import asyncio
import contextlib
import io
import itertools
import random
import signal
import socket
import threading
import time

import cbor2
import pynng
import zmq

from chaos.calls import ECHO, PLAIN, SLOW, SLOWEST, STREAM, Caller, Options, Plan, named
from chaos.raw import SP_REQ, greeting
from chaos.security import encrypt
from polydomo.client.catalog import AsyncCatalog
from polydomo.client.retry import ReconnectDelay
from polydomo.errors import PolydomoError
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.wire.address import parse_url

# --- MDP on pyzmq -----------------------------------------------------------------------------------------------------------


class Words:
    """The constants of one version of MDP."""

    def __init__(self, version: int) -> None:
        first = version == 1
        self.client = [b"", b"MDPC01"] if first else [b"MDPC02", b"\x01"]
        self.reply_head = 3  # frames of a reply before the body
        self.partial = b"" if first else b"\x02"
        self.worker = [b"", b"MDPW01"] if first else [b"MDPW02"]
        self.final, self.beat, self.leave = (b"\x03", b"\x04", b"\x05") if first else (b"\x04", b"\x05", b"\x06")


READY, REQUEST = b"\x01", b"\x02"


def mdp1_client(options: Options) -> None:
    MdpClient(options, Words(1)).run()


def mdp2_client(options: Options) -> None:
    MdpClient(options, Words(2)).run()


class MdpClient:
    """A DEALER with several open calls. MDP has no ids, but our bodies contain one, so that a repeated or misdirected reply is detected."""

    def __init__(self, options: Options, words: Words) -> None:
        services = {**PLAIN, STREAM: 13.0} if words.partial else PLAIN
        self.caller = Caller(options, services)
        self.options = options
        self.words = words
        self.open: dict[str, tuple[Plan, float, list[bytes]]] = {}  # with the time of sending and its partial replies
        self.answered: set[str] = set()

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.caller.stopping.set())
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.reconnect_ivl = 50
        self.socket.reconnect_ivl_max = 500
        encrypt(self.socket, self.options.name)
        self.socket.connect(self.options.url)
        due = time.monotonic()
        while self.open or not self.caller.stopping.is_set():
            now = time.monotonic()
            if now >= due and len(self.open) < self.options.lanes and not self.caller.stopping.is_set():
                self.send(self.caller.next(), now)
                due = now + self.caller.pause() / self.options.lanes
            if self.socket.poll(
                20 if len(self.open) >= self.options.lanes else max(1, min(20, int(1000 * (due - now))))
            ):
                self.receive()
            self.expire()
        self.socket.close()
        context.term()

    def send(self, plan: Plan, now: float) -> None:
        self.open[plan.call] = plan, now, []
        try:
            self.socket.send_multipart([*self.words.client, plan.service.encode(), plan.body], zmq.NOBLOCK)
        except zmq.Again:
            self.end(plan.call, "not-sent")

    def receive(self) -> None:
        frames = self.socket.recv_multipart()
        body = frames[self.words.reply_head :]
        call = body[0].partition(b"|")[0].decode(errors="replace")
        if call not in self.open:
            if call in self.answered:
                self.caller.record.second(call)
            elif not call.startswith(self.options.name + "."):
                self.caller.record.judge(call, b"", body[0])
            return  # a call that timed out may still be answered
        plan, _, parts = self.open[call]
        parts += body
        if self.words.partial and frames[1] == self.words.partial:
            return
        self.answered.add(call)
        self.end(call, self.caller.record.judge(call, b"".join(parts), plan.expected))

    def expire(self) -> None:
        limit = time.monotonic() - self.options.timeout
        for call in [call for call, (_, sent, _) in self.open.items() if sent < limit]:
            self.end(call, "timeout")

    def end(self, call: str, outcome: str) -> None:
        _, sent, _ = self.open.pop(call)
        self.caller.record.ended(call, outcome, time.monotonic() - sent)


def mdp1_worker(options: Options) -> None:
    mdp_worker(options, Words(1))


def mdp2_worker(options: Options) -> None:
    mdp_worker(options, Words(2))


def mdp_worker(options: Options, words: Words) -> None:
    """Workers like those of the Guide: one socket and one loop each, which sends no heartbeats while it works."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    threads = [
        threading.Thread(target=_serve_mdp, args=(options, words, context, service, stopping))
        for service in (ECHO, SLOW)
        for _ in range(options.lanes)
    ]
    for thread in threads:
        thread.start()
    while not stopping.wait(0.2):
        pass
    for thread in threads:
        thread.join()
    context.term()


def _serve_mdp(
    options: Options, words: Words, context: "zmq.Context[zmq.Socket[bytes]]", service: str, stopping: threading.Event
) -> None:
    dice = random.Random(options.seed)
    while not stopping.is_set():
        worker = context.socket(zmq.DEALER)
        worker.linger = 500
        encrypt(worker, options.name)
        worker.connect(options.url)
        worker.send_multipart([*words.worker, READY, service.encode()])
        heard = spoke = time.monotonic()
        while not stopping.is_set():
            if worker.poll(int(options.beat * 500)):
                frames = worker.recv_multipart()[len(words.worker) :]
                heard = time.monotonic()
                if frames[0] == REQUEST:
                    options.record.executing(named(frames[3]))
                    if service == SLOW:
                        time.sleep(dice.random() * SLOWEST)
                    worker.send_multipart([*words.worker, words.final, frames[1], b"", *frames[3:]])
                elif frames[0] == words.leave:
                    break
            elif time.monotonic() - heard > 4 * options.beat:
                break
            if time.monotonic() - spoke >= options.beat:
                spoke = time.monotonic()
                worker.send_multipart([*words.worker, words.beat])
        else:
            worker.send_multipart([*words.worker, words.leave])
        worker.close()
        stopping.wait(dice.random() * 0.2)


# --- memo01 on pynng --------------------------------------------------------------------------------------------------------

MEMO_READY, MEMO_JOB, MEMO_RESULT, MEMO_BEAT = 1, 2, 3, 4


def dump(*header: object, payload: bytes = b"") -> bytes:
    return bytes(cbor2.dumps(["memo01", *header], canonical=True)) + payload


def load(message: bytes) -> tuple[list[object], bytes]:
    stream = io.BytesIO(message)
    header = cbor2.load(stream)
    return header[1:], stream.read()


def memo_client(options: Options) -> None:
    """A REQ socket whose contexts call from threads. NNG repeats requests that a lost connection has not answered."""
    caller = Caller(options, PLAIN)
    signal.signal(signal.SIGTERM, lambda *_: caller.stopping.set())
    with _req(options) as sock:
        threads = [threading.Thread(target=_call_memo, args=(caller, sock)) for _ in range(options.lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)


def _req(options: Options) -> pynng.Req0:
    milliseconds = int(options.timeout * 1000)
    sock = pynng.Req0(recv_max_size=0, recv_timeout=milliseconds, send_timeout=milliseconds)
    sock.reconnect_time_min, sock.reconnect_time_max = 50, 500
    sock.dial(options.url, block=False)
    return sock


def _call_memo(caller: Caller, sock: pynng.Req0) -> None:
    options = caller.options
    with sock.new_context() as context:
        while not caller.stopping.is_set():
            plan = caller.next()
            began = time.monotonic()
            try:
                context.send(dump(MEMO_JOB, b"", plan.service, int(options.timeout * 1000), payload=plan.body))
                _, payload = load(context.recv())
                outcome = caller.record.judge(plan.call, payload, plan.expected)
            except pynng.Timeout:
                outcome = "timeout"
            caller.record.ended(plan.call, outcome, time.monotonic() - began)
            caller.stopping.wait(caller.pause())


def memo_worker(options: Options) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with _req(options) as sock:
        threads = [
            threading.Thread(target=_serve_memo, args=(options, sock), daemon=True) for _ in range(options.lanes)
        ]
        for thread in threads:
            thread.start()
        while not stopping.wait(0.2):
            pass
    for thread in threads:
        thread.join(options.timeout)


def _serve_memo(options: Options, sock: pynng.Req0) -> None:
    """A worker as the authors of memo01 would write it: a context, a thread, a loop."""
    dice = random.Random(options.seed)
    ready = dump(MEMO_READY, b"", [ECHO, SLOW])
    with contextlib.suppress(pynng.Closed), sock.new_context() as context:  # its socket is closed
        message = ready
        while True:
            try:
                context.send(message)
                header, payload = load(context.recv())
            except pynng.Timeout:
                message = ready  # the broker has removed this worker, or is down
                continue
            except pynng.NNGException:
                return  # the socket was closed
            kind, worker = header[:2]
            if kind == MEMO_JOB:
                options.record.executing(named(payload))
                if header[2] == SLOW:
                    time.sleep(dice.random() * SLOWEST)
                message = dump(MEMO_RESULT, worker, payload=payload)
            elif kind == MEMO_BEAT:
                message = dump(MEMO_BEAT, worker)
            else:
                message = ready


# --- the catalog ------------------------------------------------------------------------------------------------------------


def catalog(options: Options) -> None:
    asyncio.run(_catalog(options))


async def _catalog(options: Options) -> None:
    """A service that registers over TCP and sends heartbeats by UDP, through a network that loses, duplicates and reorders datagrams. Every
    fourth heartbeat goes over TCP, where the service learns whether the broker has removed it.

    ``lanes`` is the UDP port of its route; it has no other use here.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    name = options.name.partition(".")[0]
    here = AsyncCatalog(options.url, timeout=2.0, connect_timeout=2.0)
    backoff = ReconnectDelay(most=0.5)
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        while not stop.is_set():
            try:
                await here.connect()
                information = {"name": name, "ip": "127.0.0.1", "port": 1, "heartbeat": options.beat}
                interval = await here.register(information)
                backoff.reset()
                lost = asyncio.ensure_future(here.lost())
                for beat in itertools.count(1):
                    if beat % 4 == 0:
                        await here.beat()
                    else:
                        with contextlib.suppress(OSError):
                            sock.sendto(udp.write(dbp.HEARTBEAT, name, time.time()), ("127.0.0.1", options.lanes))
                    await asyncio.wait([lost], timeout=interval)
                    if stop.is_set() or lost.done():
                        break
                lost.cancel()
            except PolydomoError:
                pass
            await here.close()
            if not stop.is_set():
                await asyncio.sleep(backoff.next())


# --- the idle ---------------------------------------------------------------------------------------------------------------


def crowd(options: Options) -> None:
    asyncio.run(_crowd(options))


async def _crowd(options: Options) -> None:
    """``lanes`` peers that complete the handshake and send nothing more; one that is disconnected connects again after a while."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    address = parse_url(options.url, connect=True)
    dice = random.Random(options.seed)
    gate = asyncio.Semaphore(64)  # connecting at a time; the backlog of a listener is not tested here

    async def idle(number: int) -> None:
        hello = SP_REQ if number % 4 == 0 else greeting(b"DEALER" if number % 4 < 3 else b"REQ")
        while True:
            try:
                async with gate:
                    reader, writer = await asyncio.open_connection(address.host, address.port, limit=2048)
                    writer.write(hello)
                try:
                    while await reader.read(2048):
                        pass
                finally:
                    writer.close()
            except OSError:
                pass
            await asyncio.sleep(0.5 + dice.random())

    idlers = [asyncio.ensure_future(idle(number)) for number in range(options.lanes)]
    await stop.wait()
    for idler in idlers:
        idler.cancel()
    await asyncio.gather(*idlers, return_exceptions=True)
