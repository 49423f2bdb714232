"""Results of MCP tools: their size is limited, and what is kept of them counts as memory."""

import json
from collections.abc import Iterator

import httpx
import pytest

import polydomo
from polydomo import testing
from polydomo.limits import MAX_CONTROL, MAX_TOOL_RESULT, MIB
from tests.plain_http import http_client

WAIT = 60.0


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)

        @worker.service("parts")
        def parts(n: int) -> Iterator[str]:
            for _ in range(n):
                yield "x" * MIB

        @worker.service("text")
        def text(n: int) -> str:
            return "x" * n

        with worker, http_client(broker.url, timeout=WAIT) as client:
            # They are tools once the worker has sent their schemas.
            broker.wait_until(lambda server: all(server.broker.schemas.find(name) for name in (b"parts", b"text")))
            yield client


def call(http: httpx.Client, name: str, n: int, progress: bool) -> "dict[str, object]":
    params = {"name": name, "arguments": {"n": n}, **({"_meta": {"progressToken": 7}} if progress else {})}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    response = http.post("/mcp", json=message, headers={"Accept": "application/json, text/event-stream"})
    lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
    found: dict[str, object] = json.loads(lines[-1][6:] if lines else response.text)["result"]
    return found


@pytest.mark.parametrize("progress", [False, True])
def test_parts_of_a_result(http: httpx.Client, progress: bool) -> None:
    count = MAX_TOOL_RESULT // MIB
    assert call(http, "parts", count - 1, progress)["isError"] is False
    result = call(http, "parts", count + 2, progress)
    assert result["isError"] is True and "MAX_TOOL_RESULT" in json.dumps(result)
    assert call(http, "parts", 1, progress)["isError"] is False, "the next call begins anew"


def test_structured_content(http: httpx.Client) -> None:
    assert call(http, "text", MAX_CONTROL - 2, False)["structuredContent"] == {"result": "x" * (MAX_CONTROL - 2)}
    result = call(http, "text", MAX_CONTROL, False)
    assert result["isError"] is True and "MAX_CONTROL" in json.dumps(result)
