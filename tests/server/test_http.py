"""HTTP on the broker's port: what is read, what is refused, and the two pages."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.client.aio import AsyncClient
from polydomo.limits import MAX_HTTP_HEAD
from polydomo.server import http
from polydomo.server.http import Refused, answer, read_head
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings

WAIT = 30.0


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, WAIT))


@contextlib.asynccontextmanager
async def serving(settings: Settings | None = None) -> AsyncIterator[BrokerServer]:
    settings = settings or Settings()
    settings.listen = ["tcp://127.0.0.1:0"]
    server = BrokerServer(settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def fetch(server: BrokerServer, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Sends the bytes, and reads the answer until the broker closes."""
    port = int(server.urls[0].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        data = await reader.read()
    finally:
        writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, _, v in (field.partition(": ") for field in fields)}, body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


# --- reading ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET /metrics HTTP/1.1\r\nHost: x",
        b"GET /metrics HTTP/1.1\r\nhOsT:x\r\nAccept: */*\r\nX-Empty:",
        b"GET /metrics HTTP/1.0",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0",
    ],
)
def test_heads_that_are_read(head: bytes) -> None:
    assert read_head(head) == (b"GET", b"/metrics")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /metrics", 400),
        (b"GET  /metrics HTTP/1.1\r\nHost: x", 400),
        (b"GET /metrics HTTP/1.1", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n folded", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nno colon", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nSpace : y", 400),
        (b"GET /metrics HTTP/1.1\nHost: x", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nA: \x00", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked", 400),
        (b"GET http://x/metrics HTTP/1.1\r\nHost: x", 400),
        (b"GET /\x80 HTTP/1.1\r\nHost: x", 400),
        (b"GET /metrics HTTP/2.0\r\nHost: x", 505),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nA: " + b"a" * MAX_HTTP_HEAD, 431),
    ],
)
def test_heads_that_are_refused(head: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        read_head(head)
    assert refused.value.status == status


@given(st.binary(max_size=300))
def test_any_head_is_read_or_refused(head: bytes) -> None:
    with contextlib.suppress(Refused):
        method, target = read_head(head)
        assert method and target.startswith(b"/")


# --- answering ----------------------------------------------------------------------------------------------------------------


def test_metrics_and_health_over_a_real_socket() -> None:
    async def scenario() -> None:
        async with serving() as server:
            status, fields, body = await fetch(server, get("/metrics"))
            assert status == 200
            assert fields["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert (fields["content-length"], fields["connection"]) == (str(len(body)), "close")
            assert b"polydomo_connections 1\n" in body
            assert (await fetch(server, get("/healthz?full")))[::2] == (200, b"ok\n")
            status, head_fields, body = await fetch(server, get("/metrics", "HEAD"))
            assert (status, body) == (200, b"")
            assert int(head_fields["content-length"]) > 1000

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/metrics", "POST"), 405),
        (get("/metrics", "OPTIONS"), 405),
        (b"GET nothing at all\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 2 * MAX_HTTP_HEAD, 431),
    ],
)
def test_everything_else_is_told_no_and_the_broker_goes_on(request_bytes: bytes, status: int) -> None:
    async def scenario() -> None:
        async with serving() as server:
            found, fields, _ = await fetch(server, request_bytes)
            assert found == status
            assert ("allow" in fields) == (status == 405)
            assert (await fetch(server, get("/healthz")))[0] == 200

    run(scenario())


def test_a_head_in_any_split_is_answered_once_it_is_whole() -> None:
    async def scenario() -> None:
        async with serving() as server:
            whole = get("/healthz")
            for at in range(1, len(whole)):
                assert answer(server, whole[:at]) is None
            assert answer(server, whole) is not None
            port = int(server.urls[0].rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(len(whole)):
                writer.write(whole[at : at + 1])
                await writer.drain()
                await asyncio.sleep(0)
            assert (await reader.read()).endswith(b"\r\n\r\nok\n")
            writer.close()

    run(scenario())


def test_a_head_that_never_ends_is_cut_when_a_handshake_would_be() -> None:
    async def scenario() -> None:
        settings = Settings()
        settings.limits.handshake_time = 0.1
        async with serving(settings) as server:
            port = int(server.urls[0].rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: ")
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    run(scenario())


def test_a_stopping_broker_is_not_healthy() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.broker.drain()
            assert (await fetch(server, get("/healthz")))[::2] == (503, b"stopping\n")

    run(scenario())


def test_a_scrape_between_calls_disturbs_nobody() -> None:
    async def scenario() -> None:
        async with serving() as server, AsyncClient(server.urls[0], "mdp1") as client:
            for _ in range(20):
                assert (await client.call("mmi.service", "x")).body == b"404"
                assert (await fetch(server, get("/metrics")))[0] == 200

    run(scenario())


def test_every_status_has_its_words() -> None:
    assert set(http.REASONS) == {200, 400, 404, 405, 431, 503, 505}
