"""The dialogue at the top of each page of docs/protocols: programs that exchange it with a real broker, over raw sockets."""

import io
import struct
import time
from collections.abc import Callable

import cbor2
import pynng

from tests.protocol_pages.dialogue import Dialogue, Names
from tests.statements.raw import WAIT, RawPeer


class Speaker(RawPeer):
    """A peer whose messages are recorded."""

    def __init__(self, dialogue: Dialogue, name: str, url: str) -> None:
        super().__init__(url)
        self.dialogue = dialogue
        self.name = name

    def sends(self, command: str, *frames: bytes) -> None:
        self.say(*frames)
        self.dialogue.record(self.name, "broker", command, list(frames))

    def gets(self, command: str) -> list[bytes]:
        frames = self.hear()
        self.dialogue.record("broker", self.name, command, frames)
        return frames


def mdp(url: str) -> Dialogue:
    dialogue = Dialogue()
    with Speaker(dialogue, "worker", url) as worker, Speaker(dialogue, "client", url) as client:
        worker.sends("READY", b"", b"MDPW01", b"\x01", b"upper")
        client.sends("REQUEST", b"", b"MDPC01", b"upper", b"hello")
        address = worker.gets("REQUEST")[3]
        dialogue.names[address] = "client"
        worker.sends("REPLY", b"", b"MDPW01", b"\x03", address, b"", b"HELLO")
        client.gets("REPLY")
        worker.sends("HEARTBEAT", b"", b"MDPW01", b"\x04")
        worker.sends("DISCONNECT", b"", b"MDPW01", b"\x05")
    return dialogue


def mdp2(url: str) -> Dialogue:
    dialogue = Dialogue()
    with Speaker(dialogue, "worker", url) as worker, Speaker(dialogue, "client", url) as client:
        worker.sends("READY", b"MDPW02", b"\x01", b"upper")
        client.sends("REQUEST", b"MDPC02", b"\x01", b"upper", b"hello")
        address = worker.gets("REQUEST")[2]
        dialogue.names[address] = "client"
        worker.sends("PARTIAL", b"MDPW02", b"\x03", address, b"", b"HE")
        client.gets("PARTIAL")
        worker.sends("FINAL", b"MDPW02", b"\x04", address, b"", b"LLO")
        client.gets("FINAL")
        worker.sends("HEARTBEAT", b"MDPW02", b"\x05")
        worker.sends("DISCONNECT", b"MDPW02", b"\x06")
    return dialogue


def mdx(url: str) -> Dialogue:
    dialogue = Dialogue()
    with Speaker(dialogue, "worker", url) as worker, Speaker(dialogue, "client", url) as client:
        worker.sends("READY", b"MDXW01", b"\x01", b"upper")
        worker.sends("PING", b"MDXW01", b"PING")
        worker.gets("PONG")
        client.sends("REQUEST", b"MDXC01", b"\x01", b"upper", b"id-1", b"hello")
        token = worker.gets("REQUEST")[2]
        dialogue.names[token] = "token"
        worker.sends("PARTIAL", b"MDXW01", b"\x03", token, b"", b"id-1", b"HE")
        client.gets("PARTIAL")
        worker.sends("FINAL", b"MDXW01", b"\x04", token, b"", b"id-1", b"LLO")
        client.gets("FINAL")
        worker.sends("DISCONNECT", b"MDPW02", b"\x06")
    return dialogue


def dcp(url: str) -> Dialogue:
    dialogue = Dialogue()
    head = (b"", b"DGBX\x01")
    with Speaker(dialogue, "worker", url) as worker, Speaker(dialogue, "client", url) as client:
        worker.sends("ping", *head, b"\x02")
        worker.gets("reconnect")
        worker.sends("registration", *head, b"\x01", b"upper")
        worker.gets("registration")
        worker.sends("ping", *head, b"\x02")
        worker.gets("pong")
        client.sends("request", *head, b"\x04", b"upper", b"", b"id-1", b"", b"hello")
        address = worker.gets("request")[4]
        dialogue.names[address] = "address"
        worker.sends("reply", *head, b"\x05", address, b"", b"id-1", b"", b"HELLO")
        client.gets("reply")
    return dialogue


def emqp(url: str) -> Dialogue:
    dialogue = Dialogue()
    head = (b"", b"eMQP/1.0")
    with Speaker(dialogue, "worker", url) as worker, Speaker(dialogue, "client", url) as client:
        worker.sends("INFORM", *head, b"INFORM", b"w-1", b"upper")
        dialogue.names[worker.gets("ACK")[3]] = "msgid"
        dialogue.names[worker.gets("HEARTBEAT")[3]] = "msgid"
        worker.sends("READY", *head, b"READY", b"w-2")
        client.sends("REQUEST", *head, b"READY", b"c-1", b"upper", b"", b"hello")  # READY: as the document prints it
        request = worker.gets("REQUEST")[3]
        dialogue.names[request] = "request"
        worker.sends("REPLY", *head, b"REPLY", request, b"HELLO")
        client.gets("REPLY")
        worker.sends("HEARTBEAT", *head, b"HEARTBEAT", b"w-3")
        worker.sends("DISCONNECT", *head, b"DISCONNECT", b"w-4")
    return dialogue


def dbp(url: str) -> Dialogue:
    dialogue = Dialogue()
    now = struct.pack("=d", time.time())
    dialogue.names[now] = "time"
    with Speaker(dialogue, "service", url) as service, Speaker(dialogue, "client", url) as client:
        about = b'{"name": "upper", "port": 4001, "function": "text", "heartbeat": 5, "interfaces": {"requests": true}}'
        service.sends("REGISTRATION", b"", b"UwU", now, about)
        dialogue.names[service.gets("APPROVED")[2]] = "time"
        service.sends("HEARTBEAT", b"", b"<3", now, b"upper")
        dialogue.names[service.gets("AWK")[2]] = "time"
        client.sends("REQUEST", b"", b"u_U", now, b"upper")
        dialogue.names[client.gets("REPLY")[2]] = "time"
        with Speaker(dialogue, "MDP client", url) as caller:
            caller.sends("REQUEST", b"", b"MDPC01", b"upper", b"hello")
            dialogue.names[service.gets("REQUEST")[2]] = "time"
            service.sends("REPLY", b"", b"o_O", now, b"HELLO")
            caller.gets("REPLY")
        service.sends("DISCONNECT", b"", b"</3", now, b"")
    return dialogue


def shown_memo(frames: list[bytes], names: Names) -> list[str]:
    """A memo01 message: its header in CBOR's diagnostic notation and its payload, then its bytes."""
    stream = io.BytesIO(frames[0])
    header = cbor2.load(stream)
    payload = stream.read()

    def item(value: object) -> str:
        if isinstance(value, bytes):
            return f"<{names[value]}>" if value in names else f"h'{value.hex()}'"
        if isinstance(value, list):
            return f"[{', '.join(item(inner) for inner in value)}]"
        return f'"{value}"' if isinstance(value, str) else str(value).lower()

    octets = frames[0].hex()
    for value, name in names.items():
        octets = octets.replace(value.hex(), f"<{name}>")
    return [item(header) + (f' "{payload.decode()}"' if payload else ""), octets]


def memo01(url: str) -> Dialogue:
    dialogue = Dialogue(lines_of=shown_memo)

    def sends(socket: pynng.Req0, peer: str, command: str, *header: object, payload: bytes = b"") -> None:
        message = bytes(cbor2.dumps(["memo01", *header], canonical=True)) + payload
        socket.send(message)
        dialogue.record(peer, "broker", command, [message])

    def gets(socket: pynng.Req0, peer: str, command: str) -> list[object]:
        message = socket.recv()
        dialogue.record("broker", peer, command, [message])
        header = cbor2.load(io.BytesIO(message))
        assert isinstance(header, list)
        return header

    timeouts = {"recv_timeout": WAIT, "send_timeout": WAIT}
    with pynng.Req0(dial=url, **timeouts) as worker, pynng.Req0(dial=url, **timeouts) as client:
        sends(worker, "worker", "READY", 1, b"", ["upper"])
        sends(client, "client", "JOB", 2, b"", "upper", 60_000, payload=b"hello")
        identity = gets(worker, "worker", "JOB")[2]
        assert isinstance(identity, bytes)
        dialogue.names[identity] = "worker id"
        sends(worker, "worker", "RESULT", 3, identity, True, payload=b"HELLO")
        gets(client, "client", "RESULT")
        gets(worker, "worker", "DISCONNECT")
    return dialogue


DIALOGUES: dict[str, Callable[[str], Dialogue]] = {
    "mdp": mdp,
    "mdx": mdx,
    "dcp": dcp,
    "emqp": emqp,
    "memo01": memo01,
    "dbp": dbp,
}
FURTHER: dict[str, dict[str, Callable[[str], Dialogue]]] = {"mdp": {"mdp2": mdp2}}  # on the page of another one
