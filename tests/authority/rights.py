"""The right that every way into the broker needs, in one place. A new command, endpoint, method of the broker or command of the shell
without a row here fails ``test_rights.py``, which derives the lists from the code and tries each row. Built-in services and their pages
have no rows here: their registry (``broker/builtin/registry.py``) has the right of each, and every one is tried.

Rights are those of the access file. The other words:

    OWN      it acts only on what the same connection has, for which a right was needed before
    ANSWER   a message that only the broker may send, or that is a violation
    PEERS    only another process or broker, whose connection needed the right `bridge`
    PUBLIC   it shows nothing of the broker's data
    LOCAL    it does not talk to a broker, or makes one of its own
"""

import ast
import operator
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import polydomo
from polydomo.broker.broker import Broker
from tests.entropy import Counting

OWN, ANSWER, PEERS, PUBLIC, LOCAL = "own", "answer", "peers", "public", "local"
CALL, OFFER, PUBLISH, SUBSCRIBE, REGISTER, INSPECT, TAP, BRIDGE, ADMIN = (
    "call offer publish subscribe register inspect tap bridge admin".split()
)
FILTERED = "filtered"  # it shows only what the principal may call, or what is its own

ROOT = Path(polydomo.__file__).parent


def commands_in(module: str, *names: str) -> set[Any]:
    """The constants that a module compares one of these names with, such as ``command == b"INFORM"``, ``kind in (CREDIT, KEPT)`` or
    ``message.kind == messages.READY``."""
    loaded = import_module(f"polydomo.{module}")
    found: set[Any] = set()
    for node in ast.walk(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())):
        if isinstance(node, ast.Compare) and any(_path(part) in names for part in ast.walk(node)):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, bytes | str) and part.value:
                    found.add(part.value)
                elif re.fullmatch(r"([a-z]+\.)?[A-Z_]+", _path(part)):
                    value = operator.attrgetter(_path(part))(loaded)
                    if isinstance(value, bytes | str | int):
                        found.add(value)
    return found


def _path(part: ast.AST) -> str:
    """A name, or an attribute of one, such as ``message.kind``."""
    if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
        return f"{part.value.id}.{part.attr}"
    return part.id if isinstance(part, ast.Name) else ""


# --- commands of the protocols: (module, the names it compares) -> command -> right ---------------------------------------

MDP1 = {b"\x01": OFFER, b"\x02": ANSWER, b"\x03": OWN, b"\x04": OWN, b"\x05": OWN}  # a client's request has no command
MDX = {
    b"\x01": OFFER,  # READY of a worker; REQUEST of a client is the same byte and needs `call`
    b"\x02": ANSWER,
    b"\x03": ANSWER,
    b"\x04": ANSWER,
    b"PONG": OWN,
    b"WITHIN": CALL,
    b"WITH": CALL,
    b"KEYED": CALL,
    b"CANCEL": OWN,
    b"CREDIT": OWN,
    b"RELEASED": OWN,
    b"KEPT": OWN,
    b"PROGRESS": OWN,
    b"\x06": OWN,
}
EMQP = {
    b"REQUEST": CALL,
    b"SCHEDULE": CALL,
    b"UNSCHEDULE": CALL,
    b"PUBLISH": PUBLISH,
    b"INFORM": OFFER,
    b"READY": OWN,
    b"REPLY": OWN,
    b"RETURN": OWN,
    b"FAIL": OWN,
    b"CREDIT": OWN,
    b"RELEASED": OWN,
    b"KEPT": OWN,
    b"CANCEL": OWN,
    b"HEARTBEAT": OWN,
    b"DISCONNECT": OWN,
    b"KBYE": OWN,
    b"ACK": ANSWER,
}
DBP = {
    b"u_U": INSPECT,
    b"UwU": REGISTER,  # and OFFER, if the service takes requests
    b"UoU": REGISTER,
    b"<3": OWN,
    b"</3": OWN,
    b"<\\3": OWN,
    b"u.u": OWN,
    b"o_O": OWN,
    b"(O_O)": OWN,
    b"OmO": OWN,
}
DATAGRAMS = {  # a hint for a service that registered from the sender's address, with the right to do so; see ``test_datagrams``
    b"<3": OWN,
    b"</3": OWN,
    b"<\\3": OWN,
}  # the beacon is sent, never received, and names a port
DCP = {
    1: OFFER,  # registration
    2: OWN,
    3: ANSWER,
    4: CALL,  # of a worker: it forwards a request, with the rights of the client
    5: OWN,
    6: ANSWER,
    7: OWN,
    8: OWN,
    9: ANSWER,
    10: OWN,
    11: ANSWER,
    12: OWN,
    13: OWN,
    14: OWN,
}
MEMO = {1: OFFER, 2: CALL, 3: OWN, 4: OWN, 5: ANSWER}
BRIDGED = {
    b"HELLO": BRIDGE,
    b"OFFER": OFFER,
    b"RETRACT": OWN,
    b"ENTRY": REGISTER,
    b"GONE": OWN,
    b"REQUEST": CALL,
    b"PUBLISH": PUBLISH,
    b"PARTIAL": OWN,
    b"PROGRESS": OWN,
    b"FINAL": OWN,
    b"FAILURE": OWN,
    b"CANCEL": OWN,
    b"BEAT": OWN,
    b"CALL": PEERS,
    b"REPLY": PEERS,
}
SIBLING = dict.fromkeys(
    b"SHORT ROOM ASK ANSWER EVENT TAP LOG SCHEDULE PROCESS NODES NODE LIVE LIMIT STARTED ENDED".split(), PEERS
)
SOCKET = {
    "call": CALL,
    "cancel": OWN,
    "subscribe": SUBSCRIBE,
    "unsubscribe": OWN,
    "publish": PUBLISH,
    "work": OFFER,
    "partial": OWN,
    "progress": OWN,
    "reply": OWN,
    "fail": OWN,
    "leave": OWN,
    "ping": OWN,
    "heartbeat": OWN,
}
MCP = {
    "initialize": PUBLIC,
    "server/discover": PUBLIC,
    "ping": PUBLIC,
    "tools/list": FILTERED,
    "tools/call": CALL,
}
COMMANDS: dict[tuple[str, ...], dict[Any, str]] = {
    ("protocols.mdp.mdp1", "command"): MDP1,
    ("protocols.mdx.session", "command"): MDX,
    ("protocols.emqp.session", "command"): EMQP,
    ("protocols.dcp.session", "kind"): DCP,
    ("protocols.memo.session", "message.kind"): MEMO,
    ("protocols.memo.messages", "kind"): MEMO,
    ("protocols.dbp.session", "command"): DBP,
    ("protocols.dbp.udp", "command"): DATAGRAMS,
    ("protocols.bridge.session", "word"): BRIDGED,
    ("broker.cluster.siblings", "word"): SIBLING,
    ("web.websocket", "op"): SOCKET,
    ("web.mcp", "method"): MCP,
}

# --- the interface of the broker to sessions: whatever a protocol does, it does with one of these ---------------------------------------

API = {
    "request": CALL,
    "request_batch": CALL,
    "register_worker": OFFER,
    "add_service": OFFER,
    "publish": PUBLISH,
    "subscribe": SUBSCRIBE,
    "last_values": SUBSCRIBE,
    "forward": CALL,  # of the client whose request is forwarded
    "schedule": CALL,
    "pass_schedule": CALL,
    "open_bridge": BRIDGE,
    "bridge_offers": OFFER,
    "bridge_entry": REGISTER,
    "relay_publication": PUBLISH,
    "sibling_message": PEERS,
    "bridge_final": OWN,
    "bridge_failed": OWN,
    "adopt_worker": OWN,  # memo01 compares the principals of the two connections
    **dict.fromkeys(
        "cancel add_credit clear_credit set_credit release kept give_back heartbeat partial progress final fail worker_left orphan_worker "
        "unsubscribe session_opened session_closed report_violation report_refusal report_slow_subscriber set_timer "
        "record_route".split(),
        OWN,
    ),
    **dict.fromkeys(
        "denial denial_as is_reserved has_worker window random_bytes identity request_name".split(), PUBLIC
    ),
}

# --- built-in services: their registry has the right of each ---------------------------------------

BUILTIN = Broker(0.0, Counting()).builtin.by_name

# --- HTTP: path -> (method, path to try, body, right) ---------------------------------------

JOB = "{job}"  # a job of another principal
FLOW = "{flow}"  # a flow of another principal
CID = "uAXEAAfY"
Try = tuple[str, str, bytes, str]
LINK = b'{"cid":"uAXEAAfY"}'
MCP_CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"secret","arguments":{"body":"x"}}}'
# WebSocket subprotocols that are served at any path. memo01 checks the rights to call and to offer with each message, as over TCP.
UPGRADES = {".sp.nanomsg.org": (CALL, OFFER)}

HTTP: dict[str, list[Try]] = {
    "/v1/call": [("POST", "/v1/call/secret", b"x", CALL), ("GET", "/v1/call/secret", b"", CALL)],
    "/v1/jobs": [
        ("GET", "/v1/jobs", b"", INSPECT),
        ("GET", f"/v1/jobs/{JOB}", b"", CALL),
        ("GET", f"/v1/jobs/{JOB}/result", b"", CALL),
        ("GET", f"/v1/jobs/{JOB}/stream", b"", CALL),
        ("DELETE", f"/v1/jobs/{JOB}", b"", CALL),
        ("POST", "/v1/jobs", b'{"service":"secret","frames":["x"]}', CALL),
    ],
    "/v1/flows": [
        ("GET", "/v1/flows", b"", FILTERED),
        ("POST", "/v1/flows", b'{"node":[{"service":"secret"}]}', CALL),
        ("GET", f"/v1/flows/{FLOW}", b"", CALL),
        ("GET", f"/v1/flows/{FLOW}/result/secret-1", b"", CALL),
        ("POST", f"/v1/flows/{FLOW}/cancel", b"", CALL),
        ("POST", f"/v1/flows/{FLOW}/retry", b"", CALL),
        ("DELETE", f"/v1/flows/{FLOW}", b"", CALL),
    ],
    "/v1/dead": [("GET", "/v1/dead", b"", INSPECT)],
    "/v1/schedules": [("GET", "/v1/schedules", b"", INSPECT)],
    "/v1/work": [("POST", "/v1/work/secret?wait=0.1", b"", OFFER)],
    "/v1/reply": [("POST", "/v1/reply", b"x", OWN)],
    "/v1/ws": [("GET", "/v1/ws", b"", OWN)],
    "/mcp": [("POST", "/mcp", MCP_CALL, FILTERED), ("DELETE", "/mcp", b"", PUBLIC)],
    "/openapi.json": [("GET", "/openapi.json", b"", FILTERED)],
    "/cid": [("GET", f"/cid/{CID}", b"", CALL), ("POST", "/cid", b"x", CALL)],
    "/head": [("GET", "/head", b"", CALL), ("PUT", "/head/name", LINK, CALL)],
    "/call": [
        ("GET", "/call", b"", CALL),
        ("GET", "/call/secret", b"", CALL),
        ("DELETE", "/call/secret", b"", OFFER),
        ("PUT", f"/call/secret/{CID}", LINK, OFFER),
        ("POST", f"/call/secret/{CID}/evaluate", b"", CALL),
    ],
    "/worker": [("POST", "/worker", LINK, OFFER)],
    **{service.path: [("GET", service.path, b"", service.right)] for service in BUILTIN.values() if service.path},
    "/v1/schema": [("GET", "/v1/schema", b"", INSPECT), ("GET", "/v1/schema/secret", b"", INSPECT)],
    "/v1/requests": [("GET", "/v1/requests", b"", INSPECT), ("GET", f"/v1/requests/{JOB}", b"", INSPECT)],
    "/v1/finished": [("GET", "/v1/finished", b"", INSPECT)],
    "/metrics": [("GET", "/metrics", b"", INSPECT)],
    "/v1/session": [("POST", "/v1/session", b"no code", OWN)],
    **{
        path: [("GET", path, b"", PUBLIC)] for path in "/ /v1/polydomo.js /v1/polydomo.d.ts /try /docs /healthz".split()
    },
}  # files under /ui/ are public

# --- commands of the shell: the words after `polydomo`, and the right ---------------------------------------

CLI: dict[str, tuple[list[str], str]] = {
    "call": (["call", "secret", "x"], CALL),
    "work": (["work", "secret", "--", "cat"], OFFER),
    "publish": (["publish", "private.x", "x"], PUBLISH),
    "subscribe": (["subscribe", "private.", "--count", "1"], SUBSCRIBE),
    "register": (["register", "printer"], REGISTER),
    "update": (["update", "printer", "--port", "1"], REGISTER),
    "catalog": (["catalog"], INSPECT),
    "submit": (["submit", "secret", "x"], CALL),
    "result": (["result", JOB], CALL),
    "cancel": (["cancel", JOB], CALL),
    "job": (["job", JOB], CALL),
    "jobs": (["jobs"], INSPECT),
    "dead": (["dead"], INSPECT),
    "schedule": (["schedule", "ls"], INSPECT),
    "flow": (["flow", "cancel", FLOW], CALL),
    "pause": (["pause", "secret"], ADMIN),
    "limit": (["limit", "secret", "--running", "1"], ADMIN),
    "resume": (["resume", "secret"], ADMIN),
    "drain": (["drain", "secret"], ADMIN),
    **{name: ([name], INSPECT) for name in "services workers requests clients status".split()},
    "watch": (["watch", "--once"], INSPECT),
    "open": (["open", "--print"], INSPECT),
    "logs": (["logs"], INSPECT),
    "memo": (["memo", "stats"], INSPECT),
    "tap": (["tap", "--count", "1"], TAP),
    **{
        name: ([], LOCAL)
        for name in (
            "up dev backup restore doctor config discover trace spans replay journal pipeline query report spark bench help completion man "
            "keys access context"
        ).split()
    },
}
