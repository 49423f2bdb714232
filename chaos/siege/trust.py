"""Attacks on trust: peers that pretend to be another peer, or make the broker connect to itself."""

import json
import time

from chaos.siege.peers import Foe, command, dbp
from chaos.siege.stand import PATIENCE, Stand, attack
from polydomo.wire.frames import join


def bridge(stand: Stand, identity: bytes) -> Foe:
    foe = Foe.zmtp(stand.port)
    foe.send(b"PDBR01", b"HELLO", identity, b"4096", b"1000000000", b"")
    assert foe.receive()[1] == b"HELLO"
    return foe


def subscriber(stand: Stand, prefix: bytes) -> Foe:
    foe = Foe.zmtp(stand.port, b"SUB")
    foe.socket.sendall(command(b"SUBSCRIBE", prefix))
    return foe


def heard(foe: Foe, seconds: float, last: bytes = b"") -> list[list[bytes]]:
    """What the subscriber receives within some time, or until it receives ``last``."""
    found: list[list[bytes]] = []
    end = time.monotonic() + seconds
    foe.socket.settimeout(0.2)
    while time.monotonic() < end:
        try:
            found.append(foe.receive())
        except TimeoutError:
            continue
        if last and found[-1][-1] == last:
            break
    return found


def _one_copy(stand: Stand) -> list[str]:
    count = stand.notes["copies"]
    return [] if count <= 1 else [f"one message was delivered {count} times"]


@attack("a catalog entry whose publisher is the broker's own port", check=_one_copy)
def own_publisher(stand: Stand) -> list[Foe]:
    listening = subscriber(stand, b"t")
    foe = Foe.zmtp(stand.port)
    place = {"interfaces": {"pub": {"port": stand.port}}, "topics": ["t"]}
    foe.socket.sendall(dbp(b"UwU", json.dumps({"name": "echo", **place}).encode()))
    foe.receive()
    time.sleep(0.5)  # until the broker has connected to itself
    publisher = Foe.zmtp(stand.port, b"PUB")
    publisher.send(b"t", b"once")
    stand.notes["copies"] = len(heard(listening, 1.0))
    return [foe, listening, publisher]


def _came_through(stand: Stand) -> list[str]:
    found = stand.notes["heard"]
    wanted = [[b"t", b"real 1"], [b"t", b"real 2"]]
    return [] if found == wanted else [f"only these messages of the real broker arrived: {found}"]


@attack("a bridge that publishes in another broker's name, with a huge number", check=_came_through)
def forged_origin(stand: Stand) -> list[Foe]:
    listening = subscriber(stand, b"t")
    real = bridge(stand, b"b" * 16)
    forger = bridge(stand, b"c" * 16)
    forger.send(b"PDBR01", b"PUBLISH", b"b" * 16, b"9" * 17, b"t", b"forged")
    time.sleep(0.3)
    real.send(b"PDBR01", b"PUBLISH", b"b" * 16, b"1", b"t", b"real 1")
    real.send(b"PDBR01", b"PUBLISH", b"b" * 16, b"2", b"t", b"real 2")
    all_heard = heard(listening, PATIENCE, b"real 2") + heard(listening, 0.5)
    stand.notes["heard"] = [found for found in all_heard if found[1] != b"forged"]
    return [real, forger, listening]


def _still_shown(stand: Stand) -> list[str]:
    found = stand.notes["shown"]
    return [] if found.get("protocol") == "mdx" else [f"the catalog shows {found}"]


@attack("a catalog entry from another address with the name of a live service", check=_still_shown)
def hidden_service(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, host="127.66.0.1")
    foe.socket.sendall(dbp(b"UwU", json.dumps({"name": "honest", "address": "tcp://evil:1"}).encode()))
    foe.receive()
    asking = Foe.zmtp(stand.port)
    asking.socket.sendall(dbp(b"u_U", b"honest"))
    stand.notes["shown"] = json.loads(asking.receive()[3])["honest"]
    return [foe, asking]


def _answered(stand: Stand) -> list[str]:
    return [] if stand.notes["answered"] else ["the request stayed at an idle bridge"]


@attack(
    "a bridge that beats and keeps a request while a local worker is idle",
    check=_answered,
    limits=("BRIDGE_PATIENCE=0.5",),
)
def silent_bridge(stand: Stand) -> list[Foe]:
    away = bridge(stand, b"d" * 16)
    away.send(b"PDBR01", b"OFFER", b"kept", b"d" * 16)
    client = Foe.zmtp(stand.port)
    time.sleep(0.2)
    client.send(b"MDXC01", b"\x01", b"kept", b"1", b"x")
    while away.receive()[1] != b"REQUEST":
        pass
    worker = Foe.zmtp(stand.port)
    worker.send(b"MDXW01", b"\x01", b"kept")
    worker.socket.settimeout(0.05)
    beat = join([b"PDBR01", b"BEAT"])
    end = time.monotonic() + PATIENCE
    stand.notes["answered"] = False
    while time.monotonic() < end and not stand.notes["answered"]:
        away.socket.sendall(beat)
        try:
            message = worker.receive()
        except TimeoutError:
            continue
        stand.notes["answered"] = message[1] == b"\x02"
    return [away, client, worker]


def _few_beats(stand: Stand) -> list[str]:
    count = stand.notes["beats"]
    return [] if count <= 10 else [f"{count} beats were sent to the victim in a second"]


@attack("forged UDP goodbyes, each of which makes the broker ask the victim", check=_few_beats)
def forged_goodbyes(stand: Stand) -> list[Foe]:
    import socket

    from polydomo.protocols.dbp import session as names
    from polydomo.protocols.dbp import udp

    victim = Foe.zmtp(stand.port)
    victim.socket.sendall(dbp(b"UwU", json.dumps({"name": "victim", "heartbeat": 60}).encode()))
    victim.receive()
    goodbye = udp.write(names.DISCONNECT, "victim", 1.0e9)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        for number in range(5000):
            forger.sendto(goodbye, ("127.0.0.1", stand.port))
            if not number % 100:
                time.sleep(0.005)
    stand.notes["beats"] = len(heard(victim, 1.0))
    return [victim]
