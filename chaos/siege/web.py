"""Attacks over HTTP, WebSocket and MCP, inside TLS if the broker has access control."""

import contextlib
import json
import time
from collections.abc import Iterator

from chaos.siege.peers import Foe, flood, http_head, http_request, long_frame, websocket_frame
from chaos.siege.stand import MIB, Stand, attack
from chaos.siege.work import repeated, seconds
from polydomo.wire.frames import join

JSON = "Content-Type: application/json"


def pipelined(stand: Stand, requests: "list[bytes]", size: int = 8 * MIB) -> list[Foe]:
    """Sends the requests again and again on one connection, and reads the answers."""
    foe = Foe.web(stand.port, stand.tls)
    flood([foe], repeated(b"".join(requests), size), seconds(stand), reads=True)
    return [foe]


def each(count: int, text: str) -> "Iterator[str]":
    return (text % number for number in range(count))


@attack("a chunked body in chunks of one byte")
def one_byte_chunks(stand: Stand) -> list[Foe]:
    foe = Foe.web(stand.port, stand.tls)
    foe.socket.sendall(http_head("POST /v1/call/none", "Transfer-Encoding: chunked"))
    flood([foe], repeated(b"1\r\nx\r\n", 32 * MIB), seconds(stand), reads=True)
    return [foe]


@attack("pipelined requests that are refused with 401", access=True)
def pipelined_refusals(stand: Stand) -> list[Foe]:
    return pipelined(stand, [http_head("GET /v1/services", "Authorization: Bearer x")])


@attack("pipelined requests, each with another wrong token", access=True)
def wrong_tokens(stand: Stand) -> list[Foe]:
    return pipelined(stand, [http_head("GET /v1/services", f"Authorization: {it}") for it in each(5000, "Bearer %d")])


@attack("pipelined requests with 95 headers each")
def many_headers(stand: Stand) -> list[Foe]:
    headers = [f"X-Header-{number}: {number}" for number in range(95)]
    return pipelined(stand, [http_head("GET /healthz", f"X-Nr: {it}", *headers) for it in each(500, "%d")])


@attack("pipelined requests with an Accept header of 15 KB")
def long_accept(stand: Stand) -> list[Foe]:
    ranges = ",".join(f"a/{number};q=0.{number % 10}" for number in range(1100))
    requests = [http_request("POST /v1/call/none", b"x", f"Accept: a/{it},{ranges}") for it in each(600, "%d")]
    return pipelined(stand, requests)


@attack("pipelined requests with 1,300 query parameters")
def query_parameters(stand: Stand) -> list[Foe]:
    query = "&".join(f"a{number}=%41" for number in range(700))
    return pipelined(stand, [http_head(f"GET /v1/logs?{it}&{query}") for it in each(600, "%d")])


@attack("WebSocket messages `{}`")
def empty_objects(stand: Stand) -> list[Foe]:
    foe = Foe.websocket(stand.port, stand.tls)
    flood([foe], repeated(websocket_frame(b"{}"), 8 * MIB), seconds(stand), reads=True)
    return [foe]


def empty_lists(stand: Stand) -> bytes:
    """JSON that is cheap to send and expensive to hold: lists without an item."""
    return b'{"a": [' + b"[]," * ((20 if stand.full else 2) * MIB) + b"0]}"


def _sent(stand: Stand, request: bytes) -> list[Foe]:
    foe = Foe.web(stand.port, stand.tls)
    flood([foe], [request], 4 * seconds(stand), reads=True)
    return [foe]


@attack("60 MiB of JSON to /mcp")
def mcp_json(stand: Stand) -> list[Foe]:
    return _sent(stand, http_request("POST /mcp", empty_lists(stand), JSON))


@attack("60 MiB of JSON to /v1/call as frames")
def frames_json(stand: Stand) -> list[Foe]:
    media = "Content-Type: application/vnd.polydomo.frames+json"
    return _sent(stand, http_request("POST /v1/call/none", empty_lists(stand), media))


@attack("60 MiB of JSON in one WebSocket message")
def websocket_json(stand: Stand) -> list[Foe]:
    foe = Foe.websocket(stand.port, stand.tls)
    flood([foe], [websocket_frame(empty_lists(stand))], 4 * seconds(stand), reads=True)
    return [foe]


def _to_service(stand: Stand, name: bytes, body: bytes) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    head = b"\x01\x00\x01\x06MDPC01\x01" + bytes((len(name),)) + name
    flood([foe], [head + long_frame(len(body)) + body], 2 * seconds(stand), reads=True)
    return [foe]


@attack("60 MiB of JSON to `polydomo.schema`")
def schema_json(stand: Stand) -> list[Foe]:
    return _to_service(stand, b"polydomo.schema", empty_lists(stand))


@attack("60 MiB of JSON to `polydomo.submit`")
def submit_json(stand: Stand) -> list[Foe]:
    return _to_service(stand, b"polydomo.submit", empty_lists(stand))


@attack("60 MiB of JSON to `polydomo.pause`")
def control_json(stand: Stand) -> list[Foe]:
    return _to_service(stand, b"polydomo.pause", empty_lists(stand))


@attack("16 WebSockets, each with an unfinished message of 60 MiB", connections=16)
def unfinished_websockets(stand: Stand) -> list[Foe]:
    foes = [Foe.websocket(stand.port, stand.tls) for _ in range(16)]
    first = websocket_frame(b"x" * MIB, final=False)
    more = websocket_frame(b"x" * MIB, final=False, opcode=0)
    flood(foes, [first, *[more] * (58 if stand.full else 30)], 2 * seconds(stand), reads=True)
    return foes


def describe(stand: Stand, name: bytes, schema: object) -> Foe:
    """An MDX worker of a service with this schema."""
    worker = Foe.zmtp(stand.port)
    worker.send(b"MDXW01", b"\x01", name)
    client = Foe.zmtp(stand.port)
    client.send(b"", b"MDPC01", b"polydomo.schema", json.dumps({"service": name.decode(), "schema": schema}).encode())
    answer = json.loads(client.receive()[3])
    assert answer.get("registered"), answer
    client.close()
    return worker


def job_of(worker: Foe) -> list[bytes]:
    """The next request of an MDX worker."""
    while True:
        message = worker.receive()
        if message[1] == b"\x02":
            return message[2:5]
        worker.send(b"MDXW01", b"PONG")


@attack("an MCP call whose worker sends partial replies of 1 MiB without end", connections=2)
def mcp_partials(stand: Stand) -> list[Foe]:
    worker = describe(stand, b"parts", {"input": {"type": "object"}})
    client = Foe.web(stand.port, stand.tls)
    params = {"name": "parts", "arguments": {}, "_meta": {"progressToken": 1}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    client.socket.sendall(
        http_request("POST /mcp", json.dumps(call).encode(), JSON, "Accept: application/json, text/event-stream")
    )
    partial = join([b"MDXW01", b"\x03", *job_of(worker), bytes(MIB)])
    flood([worker], [partial] * (700 if stand.full else 500), 2 * seconds(stand))
    flood([client], [b"x"], 0.1, reads=True)
    return [worker, client]


@attack("replies full of multipart boundaries", connections=2)
def multipart_boundaries(stand: Stand) -> list[Foe]:
    worker = Foe.zmtp(stand.port)
    worker.send(b"MDXW01", b"\x01", b"marks")
    client = Foe.web(stand.port, stand.tls)
    request = http_request("POST /v1/call/marks", b"x", "Accept: multipart/mixed")
    marks = b"polydomo-frame" + b"-x" * 50_000
    end = time.monotonic() + seconds(stand)
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            client.socket.sendall(request)
            worker.send(b"MDXW01", b"\x04", *job_of(worker), marks)
            client.read_head()
            client.socket.recv(1 << 18)
    return [worker, client]


def _large_replies(stand: Stand, content: bytes, accept: str) -> list[Foe]:
    """Calls of a service that always replies with this."""
    worker = Foe.zmtp(stand.port)
    worker.send(b"MDXW01", b"\x01", b"large")
    client = Foe.web(stand.port, stand.tls)
    for _ in range(8 if stand.full else 2):
        with contextlib.suppress(OSError):
            client.socket.sendall(http_request("POST /v1/call/large", b"x", f"Accept: {accept}"))
            worker.socket.sendall(join([b"MDXW01", b"\x04", *job_of(worker), content]))
            flood([client], [b" "], 1.0, reads=True)
    return [worker, client]


@attack("60 MiB replies of zeros to a client that asks for JSON", connections=2)
def zeros_as_json(stand: Stand) -> list[Foe]:
    return _large_replies(stand, bytes((60 if stand.full else 20) * MIB), "application/json")


@attack("60 MiB replies to a client that asks for events", connections=2)
def large_events(stand: Stand) -> list[Foe]:
    return _large_replies(stand, b'"' * ((60 if stand.full else 20) * MIB), "text/event-stream")


@attack("60 MiB replies to a WebSocket client", connections=2)
def large_messages(stand: Stand) -> list[Foe]:
    worker = Foe.zmtp(stand.port)
    worker.send(b"MDXW01", b"\x01", b"large")
    client = Foe.websocket(stand.port, stand.tls)
    content = b'"' * ((60 if stand.full else 20) * MIB)
    for number in range(8 if stand.full else 2):
        call = {"op": "call", "id": number, "service": "large", "body": "x"}
        with contextlib.suppress(OSError):
            client.socket.sendall(websocket_frame(json.dumps(call).encode()))
            worker.socket.sendall(join([b"MDXW01", b"\x04", *job_of(worker), content]))
            flood([client], [websocket_frame(b"{}")], 1.0, reads=True)
    return [worker, client]


@attack("a multipart body of one part of 60 MiB", connections=1)
def multipart_large(stand: Stand) -> list[Foe]:
    body = b"--b\r\n\r\n" + bytes((60 if stand.full else 20) * MIB) + b"\r\n--b--\r\n"
    return _sent(stand, http_request("POST /v1/call/none", body, "Content-Type: multipart/mixed; boundary=b"))


@attack("multipart bodies of a thousand parts with long heads")
def multipart_parts(stand: Stand) -> list[Foe]:
    part = b"--b\r\n" + b"A: " + b"x" * 4000 + b"\r\n\r\n\r\n"
    body = part * 1000 + b"--b--\r\n"
    request = http_request("POST /v1/call/none", body, "Content-Type: multipart/mixed; boundary=b")
    return pipelined(stand, [request], 64 * MIB)


def _schemas(stand: Stand) -> list[Foe]:
    """Large schemas of many services."""
    leaf = {"type": "object", "properties": {f"p{n}": {"type": "string", "title": "t" * 20} for n in range(1000)}}
    return [describe(stand, b"typed%d" % number, {"input": leaf}) for number in range(250 if stand.full else 60)]


@attack("250 large schemas: /openapi.json", _schemas)
def openapi(stand: Stand) -> list[Foe]:
    return pipelined(stand, [http_head("GET /openapi.json")])


@attack("250 large schemas: /v1/schema", _schemas)
def schema_page(stand: Stand) -> list[Foe]:
    return pipelined(stand, [http_head("GET /v1/schema")])


@attack("250 large schemas: MCP's tools/list", _schemas)
def tools_list(stand: Stand) -> list[Foe]:
    return pipelined(stand, [http_request("POST /mcp", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', JSON)])


@attack("250 large schemas: `polydomo.schema` over ZMTP", _schemas)
def schema_service(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    flood([foe], [join([b"", b"MDPC01", b"polydomo.schema", b""]) * 300], seconds(stand), reads=True)
    return [foe]
