"""``anonymous`` and ``plain`` of the access file, per listener: real brokers of one and of two processes."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo import Client
from polydomo.client.security import Security
from polydomo.errors import AccessDenied
from tests.cli.shell import PATIENCE, Running, complaint, run
from tests.server.secured import TOKEN, Place

TCP_ONLY = 'anonymous = ["tcp://127.0.0.1:0"]\nplain = ["tcp://127.0.0.1:0"]'
IPC_ONLY = 'anonymous = ["ipc:///SOCKET"]\nplain = ["ipc:///SOCKET"]'
RULE = '\n[[allow]]\nwho = ["anonymous"]\ninspect = true\n'


class Listeners:
    """A broker with a TCP and an ipc:// listener."""

    def __init__(self, directory: Path, processes: str) -> None:
        self.processes = int(processes)
        self.place = Place(directory)
        self.path = directory / "s"
        self.place.write(self.place.text + RULE)
        self.accept("anonymous = false", IPC_ONLY)
        self.ipc = f"ipc://{self.path}"
        listen = ("--listen", "tcp://127.0.0.1:0", "--listen", self.ipc, "--processes", processes)
        words = ("--access", "access.toml", "--data", "data", "--store", "off", "--log-json")
        self.process = Running("up", *listen, *words, cwd=directory)

    def accept(self, old: str, new: str) -> None:
        self.place.change(*(text.replace("ipc:///SOCKET", f"ipc://{self.path}") for text in (old, new)))

    @property
    def tcp(self) -> str:
        return next(str(entry["address"]) for entry in self.process.entries if "tcp://" in entry.get("address", ""))

    def reload(self) -> None:
        """Returns when every process has reloaded the access file."""
        self.process.send(signal.SIGHUP)
        self.process.wait_until(
            lambda: (
                len({entry.get("process") for entry in self.process.entries if "file reloaded" in entry["message"]})
                == self.processes
            ),
            "reload",
        )


@pytest.fixture(params=["1", "2"])
def listeners(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listeners]:
    made = Listeners(tmp_path, request.param)
    with made.process:
        made.process.logged("ready")
        yield made


def zmtp(url: str, **credentials: str) -> bool:
    """Whether a ZMTP client with NULL, or with PLAIN if it has credentials, is accepted."""
    with Client(url, security=Security(**credentials), timeout=PATIENCE) as client:
        try:
            return bool(client.call("mmi.service", "echo").body)
        except AccessDenied:
            return False


def connected(url: str) -> socket.socket:
    if url.startswith("ipc://"):
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(PATIENCE)
        made.connect(url.removeprefix("ipc://"))
        return made
    host, _, port = url.removeprefix("tcp://").partition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


def sp(url: str) -> bool:
    """Whether an SP peer is accepted: the broker answers its header, or closes the connection."""
    with connected(url) as peer:
        peer.sendall(b"\0SP\0\0\x30\0\0")
        return bool(peer.recv(8))


def http(url: str) -> bool:
    with connected(url) as peer:
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = peer.makefile("rb").readline().split()[1]
    assert status in (b"200", b"401")
    return status == b"200"


def test_anonymous_peers_and_plain_on_the_listed_listeners_only(listeners: Listeners) -> None:
    tcp, ipc = listeners.tcp, listeners.ipc
    ci = {"user": "ci", "token": TOKEN}
    for _ in range(4):  # with two processes, some connections come to either
        assert [zmtp(ipc), sp(ipc), http(ipc), zmtp(ipc, **ci)] == [True] * 4
        assert [zmtp(tcp), sp(tcp), http(tcp), zmtp(tcp, **ci)] == [False] * 4
    with Client(tcp, **listeners.place.keys("alice"), timeout=PATIENCE) as client:
        assert client.call("mmi.service", "echo").body, "a key is accepted on every listener"
    with connected(ipc) as peer:
        peer.sendall(b"\0SP\0\0\x30\0\0")
        assert peer.recv(8)
        listeners.accept(IPC_ONLY, TCP_ONLY)  # the broker may read it before it is told to
        listeners.reload()
        assert peer.recv(8) == b"", "a reload closes connections that would not be accepted any more"
    for _ in range(4):
        assert [zmtp(ipc), sp(ipc), http(ipc), zmtp(ipc, **ci)] == [False] * 4
        assert [zmtp(tcp), sp(tcp), http(tcp), zmtp(tcp, **ci)] == [True] * 4
    listeners.accept(TCP_ONLY, 'anonymous = ["tcp://127.0.0.1:1"]')
    listeners.process.send(signal.SIGHUP)
    line = listeners.process.logged("the access file is invalid; the old rules stay in force")
    assert "the broker does not listen on tcp://127.0.0.1:1; its listeners are tcp://127.0.0.1:" in line["why"]
    assert line["why"].endswith(ipc) and zmtp(tcp) and not zmtp(ipc)


def test_a_listener_that_the_broker_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text('[server]\nanonymous = ["tcp://127.0.0.1:5246"]\n')
    assert run("access", "check", cwd=tmp_path).returncode == 0
    refused = run("up", "--access", "access.toml", "--listen", "ipc://s", cwd=tmp_path)
    assert refused.returncode == 2
    assert complaint(refused).endswith(
        "server.anonymous: the broker does not listen on tcp://127.0.0.1:5246; its listeners are ipc://s"
    )
