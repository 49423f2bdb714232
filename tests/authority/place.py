"""A real broker with access control, and principals with few rights that talk to it over every protocol."""

import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
import pynng
import zmq

from polydomo.protocols import registry
from polydomo.protocols.ends import Delivery, Failure, Reply
from tests.certificates import Authority
from tests.cli.shell import PATIENCE, Running
from tests.plain_http import http_client

NAMES = ("alice", "bob", "mallory", "pool", "boss", "reader", "slow", "loser")
TRIES = 4  # connections of each attack: with two processes, some come to either

RULES = """
[[allow]]
who = ["alice"]
call = ["open", "default", "secret", "titanic.*", "memodb"]
[[allow]]
who = ["bob"]
call = ["open", "default", "titanic.*", "memodb"]
[[allow]]
who = ["pool"]
offer = true
publish = true
[[allow]]
who = ["boss"]
admin = true
[[allow]]
who = ["reader"]
inspect = true
subscribe = ["public.*"]
[[allow]]
who = ["slow"]
call = ["open"]
[[allow]]
who = ["loser"]
call = ["open", "titanic.*", "memodb"]
inspect = true
[quotas.slow]
requests_per_second = 1
"""


def token(name: str, number: int = 1) -> str:
    return f"token-{number}-of-{name}"


class Place:
    """The broker, its access file, and ways to talk to it as a principal."""

    def __init__(self, directory: Path, processes: int, *words: str, tls: bool = False) -> None:
        self.directory = directory
        self.tls = tls  # each principal has a certificate as well: CN is its name
        if tls:
            authority = Authority(directory)
            for name in NAMES:
                authority.certificate(name)
            authority.certificate("server", "DNS:localhost", "IP:127.0.0.1")
        self.processes = processes
        self.numbers = dict.fromkeys(NAMES, 1)  # which token each principal has
        self.rules = RULES
        self.reloads = 0
        self.clients: list[httpx.Client] = []
        self._status: httpx.Client | None = None
        self.write()
        self.broker = Running(
            "up", "--listen", "tcp://127.0.0.1:0", "--access", "access.toml", "--data", "data", "--log-json",
            "--log-level", "debug", "--processes", str(processes), "--beat=10m", *words, cwd=directory,
        )  # fmt: skip

    def write(self) -> None:
        lines = ["[server]", "anonymous = false"]
        if self.tls:
            lines += ['tls = { cert = "server.pem", key = "server.pem", ca = "ca.pem" }']
        for name, number in self.numbers.items():
            digest = hashlib.sha256(token(name, number).encode()).hexdigest()
            lines += [f"[principals.{name}]", f'token_sha256 = "{digest}"']
            if self.tls:
                lines += [f'certificate = "CN={name}"']
        new = self.directory / "access.new"
        new.write_text("\n".join(lines) + self.rules)
        new.rename(self.directory / "access.toml")

    def __enter__(self) -> Self:
        self.broker.__enter__()
        self.broker.logged("ready")
        self.url = str(self.broker.logged("listening")["address"])
        return self

    def __exit__(self, *error: Any) -> None:
        for client in self.clients:
            client.close()
        self.broker.__exit__(*error)

    def change(self, old: str, new: str) -> None:
        """Changes the rules, and returns when every process uses them."""
        assert old in self.rules
        self.rules = self.rules.replace(old, new)
        self.reload()

    def reload(self) -> None:
        self.write()
        before = self._reloaded()
        self.broker.send(signal.SIGHUP)
        self.broker.wait_until(
            lambda: all(self._reloaded().get(i, 0) > before.get(i, 0) for i in range(self.processes)), "reload"
        )

    def _reloaded(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for entry in self.broker.entries:
            if "file reloaded" in entry["message"]:
                index = int(entry.get("process", 0))
                counts[index] = counts.get(index, 0) + 1
        return counts

    # --- as a principal

    def http(self, name: str, number: int = 0) -> httpx.Client:
        """A new connection."""
        bearer = token(name, number or self.numbers[name])
        client = http_client(
            self.url,
            timeout=PATIENCE,
            headers={"authorization": f"Bearer {bearer}"},
            limits=httpx.Limits(max_keepalive_connections=1),
        )
        self.clients.append(client)
        return client

    def socket(self, name: str, kind: int = zmq.DEALER) -> "zmq.Socket[bytes]":
        made: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        made.linger = 0
        made.rcvtimeo = int(PATIENCE * 1000)
        made.plain_username = name.encode()
        made.plain_password = token(name, self.numbers[name]).encode()
        made.connect(self.url)
        return made

    def memo(self, name: str) -> pynng.Req0:
        """An NNG socket that is authenticated by its certificate."""
        cert, key, rest = (self.directory / f"{name}.pem").read_text().partition("-----BEGIN PRIVATE KEY-----")
        config = pynng.TLSConfig(
            pynng.TLSConfig.MODE_CLIENT,
            server_name="localhost",
            ca_string=(self.directory / "ca.pem").read_text(),
            own_cert_string=cert,
            own_key_string=key + rest,
            auth_mode=pynng.TLSConfig.AUTH_MODE_REQUIRED,
        )
        patience = int(PATIENCE * 1000)
        return pynng.Req0(dial="tls+" + self.url, tls_config=config, recv_timeout=patience, send_timeout=patience)

    def emqp(self, name: str) -> "zmq.Socket[bytes]":
        """An eMQP client. Its first message is a REQUEST, which every process takes; a connection that begins with a SCHEDULE and was
        authenticated by another process than 0 is closed."""
        made = self.socket(name)
        emqp(made, "REQUEST", b"nowhere", b"", b"hello")  # nobody may call it but boss
        return made

    def call(self, name: str, service: str, *body: bytes) -> list[bytes]:
        """One request over MDP/0.1 from a new connection."""
        with self.socket(name, zmq.REQ) as socket:
            socket.send_multipart([b"MDPC01", service.encode(), *body])
            return socket.recv_multipart()[2:]

    def ask(self, service: str, header: dict[str, Any] | None = None, who: str = "boss") -> Any:
        """A built-in service of the broker, as JSON."""
        frames = self.call(who, f"polydomo.{service}", json.dumps(header).encode() if header is not None else b"")
        return json.loads(frames[0])

    def denials(self) -> int:
        """How many times the broker has denied something."""
        return sum(self.status()["denied"].values())

    def status(self) -> Any:
        """Asked many times, over one connection. The page of the metrics would be a second old."""
        if self._status is None:
            self._status = self.http("boss")
        return self._status.get("/v1/status").json()


def denied_since(place: Place, before: int, count: int = 1) -> Callable[[], bool]:
    """A condition: the broker has denied this many more."""
    return lambda: place.denials() >= before + count


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)


def emqp(socket: "zmq.Socket[bytes]", command: str, *frames: bytes) -> None:
    socket.send_multipart([b"", b"eMQP/1.0", command.encode(), b"id-of-this-message", *frames])


def schedule(socket: "zmq.Socket[bytes]", queue: bytes, message: bytes, command: str = "SCHEDULE") -> None:
    emqp(socket, command, queue, b"guarantee", b"3600", message, b"")


class Worker:
    """A worker in a thread. ``forwards``: where it forwards its requests (DCP), otherwise it answers with the service and the body."""

    def __init__(self, place: Place, service: str, forwards: str = "", protocol: str = "dcp") -> None:
        self.socket = place.socket("pool")
        self.socket.rcvtimeo = 100
        self.end: Any = registry.worker_end(protocol)
        self.end.open([service.encode()])
        self.service = service
        self.forwards = forwards
        self.heard: list[bytes] = []
        self.registered = threading.Event()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.over.is_set():
            for message in self.end.out:
                self.socket.send_multipart(message)
            self.end.out.clear()
            try:
                events = self.end.receive(self.socket.recv_multipart())
            except zmq.Again:
                self.end.beat()
                continue
            for event in events:
                if isinstance(event, Delivery):
                    body = b"".join(event.body)
                    self.heard.append(body)
                    if self.forwards:
                        self.end.forward(event, self.forwards.encode(), event.body)
                    else:
                        self.end.final(event, [self.service.encode() + b":" + body])

    def close(self) -> None:
        self.over.set()
        self.thread.join(PATIENCE)
        self.socket.close()


class Caller:
    """A client of any ZMTP protocol on a pyzmq socket."""

    def __init__(self, place: Place, name: str, protocol: str) -> None:
        self.socket = place.socket(name)
        self.end: Any = registry.client_end(protocol)
        self.number = 0

    def call(self, service: bytes, body: bytes) -> "list[bytes] | Failure":
        self.number += 1
        self.end.request(self.number, service, [body])
        for message in self.end.out:
            self.socket.send_multipart(message)
        self.end.out.clear()
        while True:
            for event in self.end.receive(self.socket.recv_multipart()):
                if isinstance(event, Failure):
                    return event
                if isinstance(event, Reply) and event.final:
                    return event.body
