"""Pages of many large schemas: complete, the same in all forms, and counted as memory."""

import json

import polydomo
from polydomo import testing
from polydomo.limits import MAX_SCHEMA, SCHEMAS_AT_ONCE
from tests.plain_http import http_client

WAIT = 60.0


def test_many_large_schemas() -> None:
    count = 2 * SCHEMAS_AT_ONCE + 3
    properties = {f"p{number}": {"type": "string", "title": "\u00fc" * 20} for number in range(200)}
    schema = {"description": "d", "input": {"type": "object", "properties": properties}, "output": {"type": "integer"}}
    names = sorted(f"typed{number}" for number in range(count))
    with testing.broker() as broker, polydomo.Client(broker.url) as client:
        worker = polydomo.Worker(broker.url)
        for name in names:
            worker.service(name)(lambda call: "x")
        with worker, http_client(broker.url, timeout=WAIT) as http:
            before = client.call("polydomo.status").json()["memory"]["schemas_bytes"]
            for name in names:
                told = json.dumps({"service": name, "schema": schema})
                assert len(told) < MAX_SCHEMA
                assert client.call("polydomo.schema", told).json()["registered"]
            grown = client.call("polydomo.status").json()["memory"]["schemas_bytes"] - before
            assert grown >= count * len(json.dumps(schema))
            for _ in range(2):  # built, and then put together from what was built
                document = http.get("/openapi.json").json()
                calls = [path for path in document["paths"] if path.startswith("/v1/call/")]
                assert sorted(calls) == [f"/v1/call/{name}" for name in names]
                body = document["paths"][f"/v1/call/{names[0]}"]["post"]["requestBody"]["content"]["application/json"]
                assert body["schema"] == schema["input"]
                listed = http.post("/mcp", json={"jsonrpc": "2.0", "id": '"tools":[', "method": "tools/list"}).json()
                assert listed["id"] == '"tools":['
                assert [tool["name"] for tool in listed["result"]["tools"]] == names
                assert listed["result"]["tools"][0]["inputSchema"] == schema["input"]
                pages = http.get("/v1/schema").json(), client.call("polydomo.schema").json()
                assert pages[0] == pages[1] and sorted(pages[0]) == names
                assert pages[0][names[0]]["input"] == schema["input"]
            catalog = {row["name"]: row for row in client.call("polydomo.catalog").json()}
            assert catalog[names[0]]["schema"]["input"] == schema["input"]
