"""Typed services from a worker's annotations to the catalog, OpenAPI, MCP and HTTP, through a real broker."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from mcp.client.client import Client as McpClient

import polydomo
from polydomo import testing
from tests.plain_http import http_client

WAIT = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker(settings={"http.tools": {"upper": "Converts a text to capitals."}}) as broker:
        worker = polydomo.Worker(broker.url)

        @worker.service("add")
        def add(a: int, b: int = 1) -> int:
            """Adds two numbers."""
            return a + b

        @worker.service("count")
        def count(n: int) -> Iterator[int]:
            """Counts."""
            yield from range(n)

        old = polydomo.Worker(broker.url, "mdp1")
        old.add("upper", lambda call: call.text.upper())
        with worker, old:
            deadline = time.monotonic() + WAIT
            with polydomo.Client(broker.url) as client:
                while set(client.call("polydomo.schema").json()) != {"add", "count", "upper"}:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            yield broker


@pytest.fixture
def http(broker: testing.Broker) -> Iterator[httpx.Client]:
    with http_client(broker.url, timeout=WAIT) as client:
        yield client


def test_the_schema_is_in_the_catalog(broker: testing.Broker, http: httpx.Client) -> None:
    schema = http.get("/v1/schema/add").json()
    assert schema["description"] == "Adds two numbers." and schema["input"]["required"] == ["a"]
    assert http.get("/v1/schema/nothing").json() is None
    entry = next(row for row in http.get("/v1/catalog").json() if row["name"] == "add")
    assert entry["schema"]["output"] == {"type": "integer"}


def test_a_call_is_checked(broker: testing.Broker, http: httpx.Client) -> None:
    assert http.post("/v1/call/add", json={"a": 2, "b": 3}).json() == 5
    response = http.post("/v1/call/add", json={"a": "two"})
    assert (response.status_code, response.json()["type"]) == (422, "urn:polydomo:invalid-arguments")
    assert "Expected `int`, got `str` - at `$.a`" in response.json()["detail"]
    with polydomo.Client(broker.url) as client, pytest.raises(polydomo.CallFailed, match="unknown field `c`"):
        client.call("add", json.dumps({"a": 1, "c": 2}))


def test_json_of_a_typed_service_is_returned_as_it_is(http: httpx.Client) -> None:
    response = http.post("/v1/call/add", json={"a": 2}, headers={"accept": "application/json"})
    assert (response.headers["content-type"], response.json()) == ("application/json", 3)
    response = http.post("/v1/call/upper", content="x", headers={"accept": "application/json"})
    assert response.json() == {"frames": ["X"]}


def test_openapi(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    calls = {path for path in document["paths"] if path.startswith("/v1/call/")}
    assert document["openapi"] == "3.1.0" and calls == {"/v1/call/add", "/v1/call/count", "/v1/call/upper"}
    operation = document["paths"]["/v1/call/add"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["required"] == ["a"]
    assert operation["responses"]["200"]["content"]["application/json"]["schema"] == {"type": "integer"}


def run(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, WAIT))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_published_mcp_client_lists_and_calls_tools(broker: testing.Broker, mode: str) -> None:
    async def scenario() -> None:
        async with McpClient(broker.url.replace("tcp", "http") + "/mcp", mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"add", "count", "upper"}
            assert tools["upper"].description == "Converts a text to capitals."
            result = await client.call_tool("add", {"a": 2, "b": 3})
            assert result.structured_content == {"result": 5} and not result.is_error
            result = await client.call_tool("upper", {"body": "hi"})
            assert result.content[0].text == "HI"  # type: ignore[union-attr]
            result = await client.call_tool("add", {"a": "two"})
            assert result.is_error and "invalid-arguments" in result.content[0].text  # type: ignore[union-attr]
            seen: list[tuple[float, str | None]] = []

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                seen.append((progress, message))

            result = await client.call_tool("count", {"n": 3}, progress_callback=progress)
            assert seen == [(1, "0"), (2, "1"), (3, "2")]
            assert [item.text for item in result.content] == ["0", "1", "2"]  # type: ignore[union-attr]

    run(scenario())


def test_mcp_errors(http: httpx.Client) -> None:
    def post(message: object) -> httpx.Response:
        return http.post("/mcp", json=message)

    base = {"jsonrpc": "2.0", "id": 1}
    assert post({**base, "method": "nothing"}).json()["error"]["code"] == -32601
    assert post({**base, "method": "tools/call", "params": {"name": "nothing"}}).json()["error"]["code"] == -32602
    assert post({**base, "method": "tools/call", "params": {"name": "upper"}}).json()["error"]["code"] == -32602
    assert post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert post([]).status_code == 400
    assert http.post("/mcp", content=b"{").json()["error"]["code"] == -32700
    assert http.get("/mcp").status_code == 405
    assert http.post("/mcp", json=base, headers={"mcp-protocol-version": "1999-01-01"}).status_code == 400
    assert http.post("/mcp", json=base, headers={"origin": "http://evil.example"}).status_code == 403
    assert post({**base, "method": "ping"}).json()["result"] == {"resultType": "complete"}
