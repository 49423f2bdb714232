"""Attacks on the ways in: handshakes of CURVE and TLS, datagrams, and beacons."""

import contextlib
import json
import os
import socket
import ssl
import time

from chaos.siege.peers import SIGNATURE, TLS, Foe, dbp
from chaos.siege.stand import Stand, attack
from chaos.siege.trust import heard
from chaos.siege.work import seconds
from polydomo.keys import read_public
from polydomo.protocols.dbp import session as names
from polydomo.protocols.dbp import udp
from polydomo.wire.security.curve import CurveClient, new_pair

CURVE = b"CURVE".ljust(20, b"\0") + bytes(32)


def rush(stand: Stand, hello: bytes, at_once: int, lasting: float) -> list[Foe]:
    """Opens connections as fast as it can, ``at_once`` of them at a time, and sends the same first bytes on each."""
    end = time.monotonic() + lasting
    foes: list[Foe] = []
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            foes.append(Foe(stand.port))
            foes[-1].socket.sendall(hello)
        if len(foes) >= at_once:
            for foe in foes:
                foe.close()
            foes.clear()
    return foes


@attack("a flood of CURVE handshakes: the same HELLO on 200 connections at a time", connections=200, access=True)
def curve_handshakes(stand: Stand) -> list[Foe]:
    public = read_public(str(stand.keys / "server.key"), "server.key")
    client = CurveClient(new_pair(os.urandom), public, os.urandom, b"DEALER")
    greeting = SIGNATURE + b"\x03\x01" + CURVE
    return rush(stand, greeting + client.begin(), 200, seconds(stand))


def client_hello() -> bytes:
    """The first bytes of a TLS handshake."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = TLS.wrap_bio(into, out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


@attack("a flood of TLS handshakes: the same ClientHello on 200 connections at a time", connections=200, access=True)
def tls_handshakes(stand: Stand) -> list[Foe]:
    return rush(stand, client_hello(), 200, seconds(stand))


@attack("500 TLS handshakes that arrive at the same time", connections=500, access=True)
def tls_burst(stand: Stand) -> list[Foe]:
    hello = client_hello()
    foes = [Foe(stand.port) for _ in range(500)]
    for foe in foes:
        with contextlib.suppress(OSError):
            foe.socket.sendall(hello)
    stand.watch(1.0)
    return foes


def datagrams(stand: Stand, contents: list[bytes]) -> int:
    """Sends datagrams as fast as it can. Returns how many bytes the broker sent back."""
    end = time.monotonic() + seconds(stand)
    answered = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        forger.bind(("127.0.0.1", 0))
        forger.setblocking(False)
        while time.monotonic() < end:
            for content in contents:
                with contextlib.suppress(BlockingIOError):
                    forger.sendto(content, ("127.0.0.1", stand.port))
            with contextlib.suppress(BlockingIOError):
                while True:
                    answered += len(forger.recv(65536))
    return answered


def _no_answer(stand: Stand) -> list[str]:
    size = stand.notes["answered"]
    return [] if not size else [f"{size} bytes were sent to the source of the datagrams, which is not verified"]


@attack("UDP: beacons, heartbeats and garbage from a spoofed source", check=_no_answer)
def spoofed_datagrams(stand: Stand) -> list[Foe]:
    forged = [udp.write(names.HEARTBEAT, f"service-{number}", 1.0e9) for number in range(100)]
    garbage = [os.urandom(1400), b"", b"SHALOM 5246", b"\x01\x00" * 700, bytes(60_000)]
    stand.notes["answered"] = datagrams(stand, [*forged, *garbage])
    return []


def _few_bytes(stand: Stand) -> list[str]:
    sent, came = stand.notes["sent"], stand.notes["came"]
    return [] if came * 10 <= sent else [f"{sent} bytes of heartbeats made the broker send {came} bytes"]


@attack(
    "UDP: heartbeats of a registered service as an amplifier of the broker's broadcast",
    check=_few_bytes,
    words=("--dbp-broadcast=127.0.0.1:{udp}",),
)
def amplified_heartbeats(stand: Stand) -> list[Foe]:
    """The broker answers heartbeats over UDP with its own, to the broadcast address: at most once per interval, however many come."""
    service = Foe.zmtp(stand.port)
    service.socket.sendall(dbp(b"UwU", json.dumps({"name": "beats", "heartbeat": 1}).encode()))
    service.receive()
    beat = udp.write(names.HEARTBEAT, "beats", 1.0e9)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as audience:
        audience.bind(("127.0.0.1", stand.udp))
        audience.setblocking(False)
        stand.notes["answered"] = datagrams(stand, [beat])
        came = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                came += len(audience.recv(65536))
    stand.notes["came"] = came
    stand.notes["sent"] = int(seconds(stand) * 1000) * len(beat)  # far fewer than were sent
    assert heard(service, 0.2) is not None
    return [service]
