"""Attacks on MemoDB's REST API: graphs that grow when they are shown, large Nodes, and long lists."""

import json

from chaos.siege.peers import Foe, http_head, http_request
from chaos.siege.stand import MIB, Stand, attack
from chaos.siege.web import JSON, empty_lists, pipelined
from chaos.siege.work import seconds
from polydomo.limits import MAX_MEMODB_LISTED

CBOR = "Content-Type: application/cbor"
OCTETS = "Content-Type: application/octet-stream"


def put(foe: Foe, node: bytes, media: str = JSON) -> str:
    """Stores a Node and returns its CID."""
    status, head = foe.exchange(http_request("POST /cid", node, media))
    assert status == 201, head
    return head.partition(b"Location: /cid/")[2].partition(b"\r\n")[0].decode()


def _double(stand: Stand) -> list[Foe]:
    """A graph in which each level has two links to the next."""
    foe = Foe.web(stand.port, stand.tls)
    cid = put(foe, json.dumps(["the bottom of the graph" * 10]).encode())
    for _ in range(18):
        cid = put(foe, json.dumps([{"cid": cid}, {"cid": cid}]).encode())
    stand.notes["cid"] = cid
    return [foe]


@attack("MemoDB: `?depth=` on a graph that doubles with each of 18 levels", _double)
def doubling_graph(stand: Stand) -> list[Foe]:
    return pipelined(stand, [http_head(f"GET /cid/{stand.notes['cid']}?depth=20")], 1 << 16)


def _large_node(stand: Stand) -> list[Foe]:
    foe = Foe.web(stand.port, stand.tls)
    stand.notes["cid"] = put(foe, b"x" * (8 * MIB if stand.full else 2 * MIB), OCTETS)
    return [foe]


@attack("MemoDB: evaluate with an 8 MiB Node as each of 100 arguments", _large_node)
def repeated_argument(stand: Stand) -> list[Foe]:
    args = ",".join([stand.notes["cid"]] * 100)
    return pipelined(stand, [http_request(f"POST /call/none{it}/{args}/evaluate", b"") for it in range(20)], 1 << 16)


def _heads(stand: Stand) -> list[Foe]:
    foe = Foe.web(stand.port, stand.tls)
    cid = put(foe, b'"x"')
    link = json.dumps({"cid": cid}).encode()
    for number in range(0, 20_000 if stand.full else 4_000, 100):
        requests = [http_request(f"PUT /head/{'h' * 100}{name}", link, JSON) for name in range(number, number + 100)]
        foe.socket.sendall(b"".join(requests))
        for _ in requests:
            assert foe.read_head().startswith(b"HTTP/1.1 201")
    return [foe]


@attack("MemoDB: `GET /head` with 20,000 heads", _heads)
def head_list(stand: Stand) -> list[Foe]:
    assert MAX_MEMODB_LISTED
    return pipelined(stand, [http_head("GET /head")], 1 << 18)


@attack("MemoDB: a Node of 60 MiB of JSON")
def cid_json(stand: Stand) -> list[Foe]:
    lists = empty_lists(stand)
    return pipelined(stand, [http_request("POST /cid", lists[lists.index(b"[") : -1], JSON)], 1 << 20)


@attack("MemoDB: a Node of 60 MiB of CBOR")
def cid_cbor(stand: Stand) -> list[Foe]:
    body = b"\x9f" + b"\x80" * ((60 if stand.full else 6) * MIB) + b"\xff"
    return pipelined(stand, [http_request("POST /cid", body, CBOR)], 1 << 20)


@attack("MemoDB: Nodes of 200 KiB of JSON, one after the other")
def cid_small_json(stand: Stand) -> list[Foe]:
    body = b"[" + b"[]," * 66_000 + b"0]"
    assert seconds(stand)
    return pipelined(stand, [http_request("POST /cid", body, JSON)], 16 * MIB)
