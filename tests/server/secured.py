"""A broker with access control for tests: keys, certificates, an access file, and real peers that use them."""

import subprocess
import threading
from pathlib import Path
from typing import Any

import zmq
import zmq.auth
from zmq.utils.monitor import recv_monitor_message

from polydomo.keys import write_pair
from polydomo.protocols import registry
from polydomo.protocols.ends import Delivery, Event, Failure, Reply
from tests.certificates import Authority

PATIENCE = 60.0  # seconds for what should happen at once
ZMTP = ("mdp1", "mdp2", "mdx", "dcp", "emqp")  # protocols with requests
NAMES = ("server", "alice", "pool", "mallory")
TOKEN = "a-token-of-ci"  # its SHA-256 stands below

ACCESS = """
[server]
curve = "server.key_secret"
tls = { cert = "server.pem", key = "server.pem", ca = "ca.pem" }
anonymous = false

[principals.alice]
curve = "alice.key"
certificate = "CN=alice"
[principals.pool]
curve = "pool.key"
certificate = "CN=pool"
[principals.ci]
token_sha256 = "0543b02ca1c91aca665e954320995be0c9d8c18d3c493d80764f3e14e67e767f"

[[allow]]
who = ["alice", "ci"]
call = ["echo", "lint.*"]
inspect = true
subscribe = ["weather.*", "exact"]
[[allow]]
who = ["pool"]
offer = ["echo"]
publish = ["weather.*"]
register = ["printer"]
"""


class Place:
    """A directory with everything that a broker and its peers need."""

    def __init__(self, directory: Path, tls: bool = False) -> None:
        self.directory = directory
        for name in NAMES:
            write_pair(directory, name)
        text = ACCESS
        if tls:
            authority = Authority(directory)
            authority.certificate("server", "DNS:localhost", "IP:127.0.0.1")
            for name in ("alice", "pool"):
                authority.certificate(name)
            Authority(directory, "other").certificate("mallory")
        else:
            text = "\n".join(line for line in text.splitlines() if not line.startswith(("tls", "certificate")))
        self.access = directory / "access.toml"
        self.write(text)

    def write(self, text: str) -> None:
        self.text = text
        new = self.directory / "access.new"
        new.write_text(text)
        new.rename(self.access)

    def change(self, old: str, new: str) -> None:
        assert old in self.text
        self.write(self.text.replace(old, new))

    def file(self, name: str) -> str:
        return str(self.directory / name)

    def keys(self, name: str, server: str = "server") -> dict[str, Any]:
        """Arguments of our libraries."""
        return {"key": self.file(f"{name}.key_secret"), "server_key": self.file(f"{server}.key")}

    def flags(self, name: str) -> list[str]:
        """Options of our commands."""
        return ["--key", self.file(f"{name}.key_secret"), "--server-key", self.file("server.key")]

    def socket(
        self, kind: int, url: str, name: str = "", server: str = "server", **options: Any
    ) -> "zmq.Socket[bytes]":
        """An unmodified pyzmq socket; ``name`` is whose key it has, if any."""
        made: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        made.linger = 0
        made.rcvtimeo = int(PATIENCE * 1000)
        for option, value in options.items():
            setattr(made, option, value)
        if name:
            public, secret = zmq.auth.load_certificate(self.file(f"{name}.key_secret"))
            assert secret is not None
            made.curve_publickey, made.curve_secretkey = public, secret
            made.curve_serverkey = zmq.auth.load_certificate(self.file(f"{server}.key"))[0]
        made.connect(url)
        return made


class Peer:
    """A client or a worker of any ZMTP protocol on a pyzmq DEALER: the end says the words, libzmq carries them."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self.socket = socket

    def close(self) -> None:
        self.socket.close()

    def send(self, end: Any) -> None:
        for message in end.out:
            self.socket.send_multipart(message)
        end.out.clear()

    def receive(self, end: Any) -> list[Event]:
        events: list[Event] = end.receive(self.socket.recv_multipart())
        return events


class Caller(Peer):
    def __init__(self, socket: "zmq.Socket[bytes]", protocol: str) -> None:
        super().__init__(socket)
        self.end = registry.client_end(protocol)
        self.number = 0

    def call(self, service: bytes, body: bytes) -> "list[bytes] | Failure":
        self.number += 1
        self.end.request(self.number, service, [body])
        self.send(self.end)
        while True:
            for event in self.receive(self.end):
                if isinstance(event, Failure):
                    return event
                if isinstance(event, Reply) and event.key == self.number and event.final:
                    return event.body


class Server(Peer):
    """A worker in a thread that answers in upper case until it is stopped."""

    def __init__(self, socket: "zmq.Socket[bytes]", protocol: str, service: bytes) -> None:
        super().__init__(socket)
        self.end = registry.worker_end(protocol)
        self.end.open([service])
        self.heard = 0
        self.over = threading.Event()
        socket.rcvtimeo = 100
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.over.is_set():
            self.send(self.end)
            try:
                events = self.receive(self.end)
            except zmq.Again:
                self.end.beat()
                continue
            for event in events:
                self.heard += 1
                if isinstance(event, Delivery):
                    self.end.final(event, [b"".join(event.body).upper()])

    def close(self) -> None:
        self.over.set()
        self.thread.join(PATIENCE)
        super().close()


def refusal(socket: "zmq.Socket[bytes]", url: str) -> "tuple[int, int]":
    """Connects a socket that will be rejected; returns the monitor's event and its value."""
    monitor = socket.get_monitor_socket()
    monitor.rcvtimeo = int(PATIENCE * 1000)
    socket.connect(url)
    try:
        while True:
            found = recv_monitor_message(monitor)
            event = int(found["event"])
            if event in (
                zmq.EVENT_HANDSHAKE_FAILED_AUTH,
                zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
                zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
                zmq.EVENT_HANDSHAKE_SUCCEEDED,
                zmq.EVENT_DISCONNECTED,
            ):
                return event, int(found["value"])
    finally:
        socket.disable_monitor()
        monitor.close()


def curl(*words: str) -> "tuple[int, str]":
    """Status and body of an HTTP request by the real program."""
    done = subprocess.run(
        ["curl", "--silent", "--max-time", str(int(PATIENCE)), "--write-out", "\n%{http_code}", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE + 10,
    )
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body
