"""TLS between two ends in memory: any split, both directions, certificates, and records that are cut or changed."""

import ssl
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polydomo.errors import ProtocolViolation, SettingError
from polydomo.tls import TlsBytes, client_context, server_context
from tests.certificates import Authority


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    authority = Authority(made)
    authority.certificate("server", "DNS:localhost", "IP:127.0.0.1")
    authority.certificate("alice")
    Authority(made, "other").certificate("mallory")
    return made


def pair(directory: Path, client: str = "", host: str = "localhost") -> tuple[TlsBytes, TlsBytes]:
    server = server_context(str(directory / "server.pem"), str(directory / "server.pem"), str(directory / "ca.pem"))
    cert = str(directory / client) if client else ""
    return TlsBytes(server, True), TlsBytes(client_context(str(directory / "ca.pem"), cert), False, host)


def carry(one: TlsBytes, other: TlsBytes, step: int = 0) -> tuple[bytes, bytes]:
    """Carries bytes until both are silent; returns what each received inside."""
    heard = [b"", b""]
    while True:
        there, back = one.take(), other.take()
        if not there and not back:
            return heard[0], heard[1]
        for i, (data, end) in enumerate(((back, one), (there, other))):
            for at in range(0, len(data), step or len(data) or 1):
                heard[i] += end.receive(data[at : at + (step or len(data))])


@pytest.mark.parametrize("step", [0, 1, 7, 1000])
def test_both_directions_in_any_split(directory: Path, step: int) -> None:
    server, client = pair(directory)
    client.send([b"early", b" bird"])
    assert carry(server, client, step) == (b"early bird", b"")
    assert server.shaken and client.shaken and server.certificate() == {}
    big = bytes(range(256)) * 4096 if step != 1 else b"short"
    server.send([big, memoryview(b"!")])
    client.send([b"x"])
    assert carry(server, client, step) == (b"x", big + b"!")


def test_the_clients_certificate(directory: Path) -> None:
    server, client = pair(directory, "alice.pem")
    carry(server, client)
    assert (("commonName", "alice"),) in server.certificate()["subject"]


def test_a_certificate_of_another_authority_is_refused(directory: Path) -> None:
    server, client = pair(directory, "mallory.pem")
    with pytest.raises(ProtocolViolation, match="certificate not accepted"):
        carry(server, client)
    assert not server.shaken


def test_a_server_with_another_name_is_refused(directory: Path) -> None:
    server, client = pair(directory, host="elsewhere.example")
    with pytest.raises(ProtocolViolation, match="certificate not accepted"):
        carry(server, client)


def test_an_alert_is_there_to_be_sent(directory: Path) -> None:
    server, _ = pair(directory)
    with pytest.raises(ProtocolViolation):
        server.receive(b"\x16\x03\x01\x00\x05hello")
    assert server.take()[:1] == b"\x15"


def test_close_notify_is_sent(directory: Path) -> None:
    server, client = pair(directory)
    carry(server, client)
    client.close()
    carry(server, client)
    assert server.ended and not client.ended


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(st.data())
def test_records_that_are_cut_or_changed(directory: Path, data: st.DataObject) -> None:
    """Cut anywhere, nothing but a beginning is heard; changed anywhere, nothing or a violation."""
    server, client = pair(directory)
    carry(server, client)
    client.send([b"hello"])
    record = client.take()
    place = data.draw(st.integers(0, len(record) - 1))
    if data.draw(st.booleans()):
        assert server.receive(record[:place]) == b""
        assert server.receive(record[place:]) == b"hello"
        return
    changed = bytearray(record)
    changed[place] ^= data.draw(st.integers(1, 255))
    try:
        heard = server.receive(bytes(changed))
    except ProtocolViolation:
        return
    assert heard == b""


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_a_violation_or_unfinished(data: bytes) -> None:
    server = TlsBytes(CONTEXTS["server"], True)
    try:
        assert server.receive(b"\x16\x03" + data) == b""
    except ProtocolViolation:
        pass
    assert not server.shaken


CONTEXTS: dict[str, ssl.SSLContext] = {}


@pytest.fixture(scope="module", autouse=True)
def _contexts(directory: Path) -> None:
    CONTEXTS["server"] = server_context(str(directory / "server.pem"), str(directory / "server.pem"))


def test_files_that_are_wrong(directory: Path) -> None:
    bad = directory / "bad.pem"
    bad.write_text("nothing")
    server = str(directory / "server.pem")
    for words in ((str(bad), str(bad)), (server, str(directory / "alice.pem")), (server, "gone.pem")):
        with pytest.raises(SettingError, match=r"server\.tls\.cert"):
            server_context(*words)
    with pytest.raises(SettingError, match=r"server\.tls\.ca"):
        server_context(server, server, str(bad))
    with pytest.raises(SettingError, match="ca: cannot use"):
        client_context(str(bad))
