"""A job store that cannot be reached does not keep the broker from listening."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from polydomo import AsyncClient
from polydomo.server import job_store
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import Settings
from polydomo.stores.postgres import PostgresBackend
from tests.ports import free_port

pytest.importorskip("psycopg", reason="psycopg is not installed")

NEVER = 3600.0  # seconds; the test would time out


@contextlib.asynccontextmanager
async def broker(store: str, data: Path) -> AsyncIterator[BrokerServer]:
    settings = Settings(listen=["tcp://127.0.0.1:0"], data=str(data), store=store)
    settings.service = {"backup": {"durable": True}}
    server = BrokerServer(settings)
    server.keep_jobs()
    assert server.job_store is not None
    if isinstance(server.job_store.backend, PostgresBackend):
        server.job_store.backend.connect_timeout = int(NEVER)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def rejection(server: BrokerServer) -> str:
    """The error of a job that is submitted now."""
    async with AsyncClient(server.urls[0]) as client:
        # Asked once: submit_job repeats the question until its time is over, and the last answer may come too late.
        answer = await client.call("polydomo.submit", b'{"service":"backup"}\n', b"all", timeout=60.0)
        row = json.loads(answer[0])
        return f"{row['error']}: {row['text']}"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "STORE_OPENING", NEVER)


def test_a_database_that_refuses_connections(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    async def run() -> str:
        async with broker(f"postgresql://127.0.0.1:{port}/jobs", tmp_path) as server:
            async with httpx.AsyncClient(base_url=server.urls[0].replace("tcp", "http"), timeout=60.0) as http:
                for headers in ({}, {"prefer": "respond-async"}):
                    response = await http.post("/v1/call/backup", content="all", headers=headers)
                    assert response.status_code == 503 and "retry-after" in response.headers, response.text
                    assert "the job store is not available" in response.json()["detail"]
            return await rejection(server)

    assert asyncio.run(run()).startswith("not-leader: the job store is not available")


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    """The attempt to connect is still under way while the broker listens."""

    async def run() -> str:
        with contextlib.ExitStack() as stack:
            # Of the ports that the system chooses itself, another program could get this one when it is closed.
            silent = stack.enter_context(socket.create_server(("127.0.0.1", free_port())))
            async with broker(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/jobs", tmp_path) as server:
                said = await rejection(server)
                stack.close()  # the attempt fails, and the store's thread can stop
                return said

    assert asyncio.run(run()).startswith("not-leader: the job store has no leader at the moment")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    file.write_bytes(b"not a database" * 100)

    async def run() -> str:
        async with broker(f"sqlite:{file}", tmp_path) as server:
            return await rejection(server)

    assert asyncio.run(run()).startswith("not-leader: the job store is not available")
