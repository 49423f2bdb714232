"""What an HTTP client may send: requests from the first byte, WebSocket frames and messages, MCP, and MemoDB's Nodes and CIDs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from polydomo.model.service_schema import described
from polydomo.protocols.memo.cid import CidError, parse_cid, read_cid
from polydomo.protocols.memo.node import NodeError, decode, encode, node_cid
from polydomo.protocols.memo.node_json import from_json, to_json
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.server.http.site import mount_pages
from polydomo.web.api import HttpApi
from polydomo.web.content import FRAMES_JSON, MULTIPART, request_body
from polydomo.web.session import HttpSession, Site
from polydomo.wire import frames
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.http.head import HttpError
from polydomo.wire.http.link import HttpLink
from tests.fuzz.targets import Room, target

HOST = b"Host: localhost\r\n"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@contextmanager
def connection() -> Iterator[tuple[Room, HttpLink]]:
    """An HTTP connection to a broker with honest peers; afterwards nothing of it is left."""
    room = Room()
    room.honest()
    site = Site(room.broker)
    api = HttpApi(room.broker, MemoValues())
    api.mount(site, room.broker.schemas.encoding_of, lambda session: {"echo": described("Echoes.")})
    mount_pages(site, room.broker)
    link = HttpLink(room.hub, "tcp://192.0.2.3:1", max_message=8192)
    HttpSession(room.broker, link, site)
    room.links.append(link)
    yield room, link
    room.turn()
    site.sweep(room.broker.now)
    room.wait(3.0)
    for worker in [
        *api.workers.by_name.values(),
        *(worker for held in api.memo_workers.holding.values() for worker in held),
    ]:
        room.broker.session_closed(worker, CloseReason(CloseCause.OTHER, "the end"))  # a lease may be a day long
    if api.memo in room.broker.sessions:
        room.broker.session_closed(api.memo, CloseReason(CloseCause.OTHER, "the end"))
    room.close()
    assert not site.sessions


def post(path: str, body: bytes, headers: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\n" % path.encode() + HOST + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


@target
def http_from_the_first_byte(data: bytes) -> None:
    with connection() as (_, link):
        link.receive(data)


@target
def http_split(data: bytes) -> None:
    """The same bytes, one at a time at the beginning and then in small pieces."""
    with connection() as (room, link):
        for at in range(0, len(data), 7):
            link.receive(data[at : at + 7])
            room.turn()


@target
def websocket_frames(data: bytes) -> None:
    with connection() as (_, link):
        link.receive(UPGRADE)
        assert link.tunnel is not None
        link.receive(data)


@target
def websocket_messages(data: bytes) -> None:
    """Each line is a text message."""
    with connection() as (room, link):
        link.receive(UPGRADE)
        for line in data.split(b"\n")[:20]:
            size = len(line)
            head = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + min(size, 65535).to_bytes(2, "big")
            link.receive(head + bytes(4) + line[:65535])
            room.turn()


@target
def mcp_message(data: bytes) -> None:
    with connection() as (_, link):
        link.receive(post("/mcp", data))


@target
def http_body(data: bytes) -> None:
    """The first line is the content type."""
    kind, _, content = data.partition(b"\n")
    try:
        frames.split(request_body(kind.decode("latin-1"), content))
    except HttpError:
        pass


@target
def memodb_request(data: bytes) -> None:
    """The first line is the method and the path, the rest a Node."""
    line, _, content = data.partition(b"\n")
    with connection() as (_, link):
        request = b"%b HTTP/1.1\r\n" % line.strip() + HOST + b"Content-Length: %d\r\n\r\n" % len(content) + content
        link.receive(request)


@target
def memodb_node(data: bytes) -> None:
    for read in (decode, from_json):
        try:
            node = read(data)
        except NodeError:
            continue
        again = encode(node)
        assert encode(decode(again)) == again and encode(from_json(to_json(node).encode())) == again
        cid, _ = node_cid(node)
        assert parse_cid(cid.text()) == cid


@target
def memodb_cid(data: bytes) -> None:
    for read in (read_cid, lambda raw: parse_cid(raw.decode("latin-1"))):
        try:
            cid = read(data)
        except CidError:
            continue
        assert read_cid(cid.raw) == cid and all(
            parse_cid(cid.text(base)) == cid for base in "fFbBmMuU" if len(cid.raw) < 90
        )


def honest() -> "dict[str, list[bytes]]":
    call = post("/v1/call/echo", b"body", b"Prefer: wait=1\r\nAccept: text/event-stream\r\n")
    chunked = b"POST /v1/call/echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n0\r\n\r\n"
    work = post("/v1/work/other?wait=1&lease=5&bound", b"")
    get = b"GET /v1/services HTTP/1.1\r\n" + HOST + b"\r\n"
    token = post("/v1/reply?next", b"x", b"Polydomo-Token: 00-000000001001\r\n")
    messages = [
        {"op": "call", "id": 1, "service": "echo", "frames": ["a"], "timeout": 1},
        {"op": "call", "id": 1, "service": "nobody", "wait": 1},
        {"op": "cancel", "id": 1},
        {"op": "subscribe", "topic": "monitor."},
        {"op": "publish", "topic": "x", "frames": [{"base64": "/w=="}]},
        {"op": "work", "service": "echo", "credit": 2},
        {"op": "reply", "token": "000000001001", "frames": []},
        {"op": "fail", "token": "000000001001", "code": "x", "text": "y"},
        {"op": "unsubscribe", "topic": "monitor."},
        {"op": "leave"},
    ]
    said = [json.dumps(message).encode() for message in messages]
    masked = b"".join(bytes((0x81, 0x80 | len(text))) + bytes(4) + text for text in said if len(text) < 126)
    rpc = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
         "params": {"name": "echo", "arguments": {"body": "x"}, "_meta": {"progressToken": 1}}},
    ]  # fmt: skip
    return {
        "http_from_the_first_byte": [call, chunked, get + call, work, token, UPGRADE, b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n"],
        "http_split": [call, chunked + get, work],
        "websocket_frames": [masked, b"\x89\x80" + bytes(4), b"\x88\x82" + bytes(4) + b"\x03\xe8"],
        "websocket_messages": [b"\n".join(said), *said],
        "mcp_message": [json.dumps(message).encode() for message in rpc],
        "http_body": [
            FRAMES_JSON.encode() + b'\n{"frames": ["a", {"base64": "/w=="}]}',
            MULTIPART.encode() + b"; boundary=B\n--B\r\n\r\none\r\n--B\r\nX: y\r\n\r\ntwo\r\n--B--",
        ],
        "memodb_request": [
            b'POST /cid\n{"map": {"funcs": ["echo"]}}', b"GET /cid/uAXEABYIYfBiF?depth=1\n", b'PUT /head/a/b\n{"cid":"uAXEAAfY"}',
            b'PUT /call/f/uAXEAAQI,uAXEAAQI\n{"cid":"uAXEAAfY"}', b"POST /call/echo/uAXEAAQI/evaluate\n", b"DELETE /call/f\n",
            b'POST /worker\n{"cid":"uAXEADaFlZnVuY3OBZGVjaG8"}',
        ],
        "memodb_node": [encode({"a": [1, -2, 1.5, b"x", None, True, parse_cid("uAXEAAfY")]}), b'{"map":{"a":{"float":"1"}}}'],
        "memodb_cid": [b"\x01\x71\x00\x01\xf6", b"uAXEAAfY", b"\x01\x55\xa0\xe4\x02\x20" + bytes(32), b"bafyqaaic"],
    }  # fmt: skip
