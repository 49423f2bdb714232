"""Listeners of the broker: IPv4, IPv6, socket files, several at once, and conflicts."""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.errors import SettingError
from polydomo.server.connections import listening
from polydomo.wire.address import parse_url
from tests.cli.shell import complaint, run
from tests.server.harness import Broker, Socket, Worker
from tests.server.raw import dealer


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    """Short enough for a socket, wherever the test's directory is."""
    link = f"/tmp/polydomo-test-{os.getpid()}"
    os.symlink(tmp_path, link)
    yield f"{link}/s"
    os.unlink(link)


@needs_ipv6
def test_ipv6(tmp_path: Path) -> None:
    with Broker(tmp_path, listen="tcp://[::1]:0") as broker:
        assert broker.url.startswith("tcp://[::1]:")
        with dealer(broker.address) as peer:
            assert peer.call(b"mmi.service", b"x") == [b"404"]
            peer.send(b"nonsense")
            peer.closed()
            assert broker.logged("connection closed")["peer"].startswith("tcp://[::1]:")


def test_several_listeners_serve_each_others_peers(tmp_path: Path, path: str) -> None:
    with Broker(tmp_path, "--listen=tcp://127.0.0.1:0", f"--listen=ipc://{path}") as broker:
        first, second, third = (line["address"] for line in broker.lines("listening"))
        assert first != second and third == f"ipc://{path}"
        with Worker(broker, "echo"), Socket("DEALER", second) as client, Socket("REQ", third) as local:
            assert client.call(b"echo", b"x") == [b"worker", b"x"]
            local.send(b"MDPC01", b"echo", b"y")
            assert local.receive() == [b"MDPC01", b"echo", b"worker", b"y"]
            peers = {row["peer"] for row in broker.ask("clients")}
            assert any(peer.startswith("ipc://") for peer in peers)


def test_a_socket_file_is_private_and_removed_at_shutdown(tmp_path: Path, path: str) -> None:
    with Broker(tmp_path, listen=f"ipc://{path}") as broker, Socket("DEALER", broker.url) as client:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert client.call(b"mmi.service", b"x") == [b"404"]
        broker.send(signal.SIGTERM)
        assert broker.status() == 0
        assert not os.path.exists(path)


def test_the_socket_file_of_a_killed_broker_is_replaced(tmp_path: Path, path: str) -> None:
    with Broker(tmp_path, listen=f"ipc://{path}") as first:
        first.kill()
        assert os.path.exists(path)
    with Broker(tmp_path, listen=f"ipc://{path}") as second, Socket("DEALER", second.url) as client:
        assert client.call(b"mmi.service", b"x") == [b"404"]


def test_a_file_where_another_broker_answers_is_in_use(tmp_path: Path, path: str) -> None:
    with Broker(tmp_path, listen=f"ipc://{path}") as broker, Socket("DEALER", broker.url) as client:
        result = run("up", "--listen", broker.url, "--data", str(tmp_path / "other"))
        assert result.returncode == 2
        assert "already in use" in complaint(result)
        assert client.call(b"mmi.service", b"x") == [b"404"]


def test_a_file_that_is_not_a_socket_is_kept(tmp_path: Path, path: str) -> None:
    Path(path).write_text("precious")
    result = run("up", "--listen", f"ipc://{path}", "--data", str(tmp_path))
    assert result.returncode == 2
    assert "a file that is not a socket already exists there" in complaint(result)
    assert Path(path).read_text() == "precious"


def test_the_file_of_a_later_broker_is_not_removed(path: str) -> None:
    """Our socket file was removed, and another broker has created its own at the same path."""

    async def play() -> None:
        first = await listening.bind(parse_url(f"ipc://{path}"))
        os.unlink(path)
        second = await listening.bind(parse_url(f"ipc://{path}"))
        first.close()
        assert os.path.exists(path)
        second.close()
        assert not os.path.exists(path)

    asyncio.run(play())


def test_every_address_of_a_name_gets_the_same_port() -> None:
    async def play() -> None:
        found = await listening.bind(parse_url("tcp://localhost:0"))
        assert len({sock.getsockname()[1] for sock in found.sockets}) == 1
        assert found.address.port == found.sockets[0].getsockname()[1] > 0
        found.close()

    asyncio.run(play())


@needs_ipv6
def test_a_port_that_is_free_at_one_address_only_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system chooses a port that is free at 127.0.0.1, but it may be taken at ::1."""
    places: list[listening.Place] = [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0, 0, 0))]
    taken: list[socket.socket] = []
    plain = listening._bind_tcp

    def bind(family: int, place: tuple[str | int, ...], port: int, shared: bool) -> socket.socket:
        found = plain(family, place, port, shared)
        if family == socket.AF_INET and len(taken) < 3:
            taken.append(plain(socket.AF_INET6, ("::1", 0, 0, 0), found.getsockname()[1], False))
            taken[-1].listen()
        return found

    monkeypatch.setattr(listening, "_bind_tcp", bind)
    sockets = listening._bind_all(places, 0, False)
    assert len(taken) == 3
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    for sock in [*sockets, *taken]:
        sock.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("tcp://192.0.2.1:0", "this machine does not have this address"),
        ("tcp://no.such.host.invalid:0", ""),
        ("ipc:///no/such/directory/s", "the directory does not exist"),
    ],
)
def test_an_address_that_cannot_be_had(url: str, why: str) -> None:
    with pytest.raises(SettingError, match=f"cannot listen on {url}: .*{why}"):
        asyncio.run(listening.bind(parse_url(url)))
