"""TLS on the shared port: our libraries, NNG and curl inside it; client certificates, tokens and rejections."""

import shutil
import socket
import ssl
from collections.abc import Iterator

import pynng
import pytest

import polydomo
import polydomo.testing
from polydomo.client.security import Security
from polydomo.errors import AccessDenied, CallFailed, PolydomoError
from tests.server.peers.test_nng_peers import dump, load
from tests.server.secured import PATIENCE, TOKEN, Place, curl

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("tls"), tls=True)


@pytest.fixture(scope="module")
def broker(place: Place) -> Iterator[polydomo.testing.Broker]:
    with polydomo.testing.broker(settings={"access": str(place.access)}) as broker:
        worker = polydomo.Worker(tls_url(broker), security=security(place, "pool"))
        worker.add("echo", lambda call: call.text.upper())
        with worker:
            broker.wait_for("echo")
            yield broker


def tls_url(broker: polydomo.testing.Broker) -> str:
    return "tls+" + broker.url


def https(broker: polydomo.testing.Broker, path: str) -> str:
    return broker.url.replace("tcp://", "https://") + path


def security(place: Place, name: str) -> Security:
    return Security(ca=place.file("ca.pem"), cert=place.file(f"{name}.pem"))


@pytest.mark.parametrize("protocol", ["mdx", "mdp1", "memo"])
def test_our_clients_inside_tls(place: Place, broker: polydomo.testing.Broker, protocol: str) -> None:
    with polydomo.Client(tls_url(broker), protocol, security=security(place, "alice")) as client:
        assert client.call("echo", "hello").text == "HELLO"
        assert client.call("echo", "x" * 300_000).text == "X" * 300_000


def test_curve_inside_tls(place: Place, broker: polydomo.testing.Broker) -> None:
    both = Security(**place.keys("alice"), ca=place.file("ca.pem"))
    with polydomo.Client(tls_url(broker), security=both) as client:
        assert client.call("echo", "hello").text == "HELLO"


def test_plain_inside_tls(place: Place, broker: polydomo.testing.Broker) -> None:
    right = Security(ca=place.file("ca.pem"), user="ci", token=TOKEN)
    with polydomo.Client(tls_url(broker), security=right) as client:
        assert client.call("echo", "hello").text == "HELLO"
    wrong = Security(ca=place.file("ca.pem"), user="ci", token="another")
    with polydomo.Client(tls_url(broker), security=wrong) as client, pytest.raises(AccessDenied):
        client.call("echo", "x", timeout=PATIENCE)


def test_a_certificate_is_checked_at_both_ends(place: Place, broker: polydomo.testing.Broker) -> None:
    for name, ca in (("mallory", "ca"), ("alice", "other")):
        refused = Security(ca=place.file(f"{ca}.pem"), cert=place.file(f"{name}.pem"))
        with polydomo.Client(tls_url(broker), security=refused) as client, pytest.raises(PolydomoError):
            client.call("echo", "x", timeout=PATIENCE)
    nobody = Security(ca=place.file("ca.pem"))  # TLS, but nobody in particular
    with polydomo.Client(tls_url(broker), security=nobody) as client, pytest.raises(AccessDenied):
        client.call("echo", "x", timeout=PATIENCE)
    with polydomo.Client(tls_url(broker), security=security(place, "alice")) as client:
        with pytest.raises(CallFailed, match="alice may not call 'other'"):
            client.call("other", "x")


def nng(place: Place, broker: polydomo.testing.Broker, name: str) -> pynng.Req0:
    from pathlib import Path

    pem = Path(place.file(f"{name}.pem")).read_text()
    key = pem[pem.index("-----BEGIN PRIVATE KEY") :]
    config = pynng.TLSConfig(
        pynng.TLSConfig.MODE_CLIENT,
        server_name="localhost",
        ca_string=Path(place.file("ca.pem")).read_text(),
        own_cert_string=pem[: pem.index("-----BEGIN PRIVATE KEY")],
        own_key_string=key,
        auth_mode=pynng.TLSConfig.AUTH_MODE_REQUIRED,
    )
    patience = int(PATIENCE * 1000)
    return pynng.Req0(dial=tls_url(broker), tls_config=config, recv_timeout=patience, send_timeout=patience)


def test_nng_over_tls(place: Place, broker: polydomo.testing.Broker) -> None:
    with nng(place, broker, "alice") as client:
        client.send(dump(2, b"", "echo", 10_000, payload=b"hello"))
        header, payload = load(client.recv())
        assert header[0] == 3 and payload == b"HELLO"


@needs_curl
def test_curl_over_https(place: Place, broker: polydomo.testing.Broker) -> None:
    trust = ("--cacert", place.file("ca.pem"))
    alice = (*trust, "--cert", place.file("alice.pem"))
    ci = (*trust, "--header", f"Authorization: Bearer {TOKEN}")
    assert curl(*trust, https(broker, "/healthz")) == (200, "ok\n")
    assert curl(*trust, https(broker, "/metrics"))[0] == 401
    assert curl(*trust, "--header", "Authorization: Bearer wrong", https(broker, "/metrics"))[0] == 401
    for words in (alice, ci):
        status, text = curl(*words, https(broker, "/metrics"))
        assert status == 200 and "polydomo_denied_total" in text
        assert curl(*words, "--data", "hello", https(broker, "/v1/call/echo")) == (200, "HELLO")
        status, text = curl(*words, "--data", "hello", https(broker, "/v1/call/other"))
        assert status == 403 and "may not call 'other'" in text
        assert curl(*words, "--data", "", https(broker, "/v1/work/echo?wait=0.1"))[0] == 403
    pool = (*trust, "--cert", place.file("pool.pem"))
    assert curl(*pool, https(broker, "/metrics"))[0] == 403
    assert curl(*pool, "--data", "", https(broker, "/v1/work/echo?wait=0.1"))[0] in (200, 204)
    plain = broker.url.replace("tcp://", "http://")  # without TLS a token still tells who asks
    assert curl("--header", f"Authorization: Bearer {TOKEN}", "--data", "x", plain + "/v1/call/echo") == (200, "X")
    assert curl("--data", "x", plain + "/v1/call/echo")[0] == 401


def test_only_tls_1_2_and_newer(place: Place, broker: polydomo.testing.Broker) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(place.file("ca.pem"))
    host, port = broker.url.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        with context.wrap_socket(raw, server_hostname="localhost") as tls:
            assert tls.version() in ("TLSv1.2", "TLSv1.3")


def test_records_that_come_byte_by_byte(place: Place, broker: polydomo.testing.Broker) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(place.file("ca.pem"))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    host, port = broker.url.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def drip() -> None:
            for byte in outgoing.read():
                raw.sendall(bytes((byte,)))

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                drip()
                incoming.write(raw.recv(65536))
        tls.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        drip()
        heard = b""
        while b"ok\n" not in heard:
            data = raw.recv(65536)
            assert data
            incoming.write(data)
            try:
                heard += tls.read(65536)
            except ssl.SSLWantReadError:
                continue


@needs_curl
def test_a_reload_keeps_http_connections_with_valid_tokens(place: Place, broker: polydomo.testing.Broker) -> None:
    import http.client

    host, port = broker.url.removeprefix("tcp://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    def ask(headers: dict[str, str]) -> int:
        connection.request("GET", "/v1/status", headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status

    assert [ask(bearer), ask(bearer)] == [200, 200]
    before = broker._server.access.file if broker._server is not None and broker._server.access is not None else None
    place.write(place.text + "\n")
    broker.wait_until(lambda server: server.access is not None and server.access.file is not before)
    assert ask(bearer) == 200
    text = place.text
    before = broker._server.access.file if broker._server is not None and broker._server.access is not None else None
    place.change("[principals.ci]\ntoken_sha256", "[principals.ci]\n# token_sha256")
    broker.wait_until(lambda server: server.access is not None and server.access.file is not before)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(bearer)
    connection.close()
    assert ask(bearer) == 401
    connection.close()
    before = broker._server.access.file if broker._server is not None and broker._server.access is not None else None
    place.write(text)
    broker.wait_until(lambda server: server.access is not None and server.access.file is not before)


def test_a_token_counts_for_its_own_request_only(place: Place, broker: polydomo.testing.Broker) -> None:
    """A connection may carry the requests of several people, as that of a proxy does."""
    import http.client

    host, port = broker.url.removeprefix("tcp://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    statuses = []
    for headers in ({"Authorization": f"Bearer {TOKEN}"}, {}, {"Authorization": f"Bearer {TOKEN}"}):
        connection.request("GET", "/v1/status", headers=headers)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    assert statuses == [200, 401, 200]
