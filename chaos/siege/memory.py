"""Attacks on the broker's memory: peers that send much, or request much and do not read it."""

import contextlib
import json

from chaos.siege.peers import Foe, command, dbp, fill_catalog, flood, long_frame, memo_ready, names
from chaos.siege.stand import MIB, Stand, attack
from chaos.siege.work import seconds
from polydomo.wire.frames import join

PIECE = bytes(MIB)


@attack("80 connections with an unfinished frame of 64 MiB each", connections=80)
def unfinished_frames(stand: Stand) -> list[Foe]:
    count = 80 if stand.full else 20
    foes = [Foe.zmtp(stand.port) for _ in range(count)]
    flood(foes, [long_frame(60 * MIB), *[PIECE] * 59], 3 * seconds(stand))
    return foes


@attack("60 MDX workers with held partials for one MDP/0.1 client", connections=60)
def held_partials(stand: Stand) -> list[Foe]:
    count = 60 if stand.full else 12
    client = Foe.zmtp(stand.port)
    workers = []
    for _ in range(count):
        worker = Foe.zmtp(stand.port)
        worker.send(b"MDXW01", b"\x01", b"held")
        workers.append(worker)
    for _ in range(count):
        client.send(b"", b"MDPC01", b"held", b"x")
    partials = {}
    for worker in workers:
        with contextlib.suppress(OSError):
            message = worker.receive()
            partials[worker] = join([b"MDXW01", b"\x03", *message[2:5], PIECE])
    for _ in range(60):
        for worker, partial in partials.items():
            flood([worker], [partial], 0.05)
        if stand.process.poll() is not None or stand.memory() > 4 << 30:
            break
    return [client, *workers]


@attack("25 clients that leave 150 MiB of replies unread each", connections=25)
def unread_replies(stand: Stand) -> list[Foe]:
    count = 25 if stand.full else 6
    worker = Foe.zmtp(stand.port)
    worker.send(b"MDXW01", b"\x01", b"large")
    clients = [Foe.zmtp(stand.port, buffer=4096) for _ in range(count)]
    for number in range(15):
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(b"MDXC01", b"\x01", b"large", b"%d" % number, b"x")
    worker.socket.settimeout(2.0)
    with contextlib.suppress(OSError):
        for _ in range(15 * count):
            message = worker.receive()
            if message[1] == b"\x02":
                worker.socket.sendall(join([b"MDXW01", b"\x04", *message[2:5], PIECE * 10]))
    stand.watch(0.5)
    return [worker, *clients]


@attack("2 million subscriptions, then all of them are closed", connections=200)
def subscriptions(stand: Stand) -> list[Foe]:
    foes = [Foe.zmtp(stand.port, b"SUB") for _ in range(200 if stand.full else 40)]
    for number, foe in enumerate(foes):
        wanted = b"".join(command(b"SUBSCRIBE", b"%04d.%06d" % (number, topic)) for topic in range(10_000))
        flood([foe], [wanted], seconds(stand))
    for foe in foes:
        foe.close()
    stand.watch(seconds(stand))
    return []


@attack("memo01 READYs of 1,000 names each on one connection")
def memo_readys(stand: Stand) -> list[Foe]:
    foe = Foe.sp(stand.port)
    services = names(1000)
    flood([foe], [memo_ready(number, services) for number in range(4096 if stand.full else 500)], 2 * seconds(stand))
    foe.close()
    stand.watch(seconds(stand))
    return []


@attack("60 MiB of JSON to `polydomo.logs`")
def log_query(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    body = b'{"a": [' + b"[], " * (15 * MIB if stand.full else 3 * MIB) + b"0]}"
    flood([foe], [b"\x01\x00\x01\x06MDPC01\x01\x0dpolydomo.logs" + long_frame(len(body)) + body], 10.0)
    stand.watch(1.0)
    return [foe]


@attack("9 × 120 MiB to a service without workers", connections=9)
def no_workers(stand: Stand) -> list[Foe]:
    foes = [Foe.zmtp(stand.port) for _ in range(9)]
    half = [b"\x01\x00\x01\x06MDPC01\x01\x04none" + long_frame(60 * MIB), *[PIECE] * 60]
    flood(foes, half * 2, 3 * seconds(stand))
    return foes


def _catalog(stand: Stand) -> list[Foe]:
    fill_catalog(stand.port, 1000 if stand.full else 150, 16_000)
    return []


@attack("25 connections that leave directory replies unread", _catalog, connections=25)
def unread_directories(stand: Stand) -> list[Foe]:
    foes = [Foe.zmtp(stand.port, buffer=4096) for _ in range(25)]
    for foe in foes:
        foe.socket.sendall(dbp(b"u_U") * 8)
    stand.watch(seconds(stand))
    return foes


def _lets_in(stand: Stand) -> list[str]:
    try:
        foe = Foe.zmtp(stand.port)
        foe.send(b"", b"MDPC01", b"mmi.service", b"honest")
        found = foe.receive()[3]
        foe.close()
    except OSError as error:
        return [f"a new client was refused: {error}"]
    return [] if found == b"200" else [f"the answer was {found!r}"]


@attack(
    "connections that are idle after their handshake, up to the limit",
    connections=300,
    words=("--limits-max-connections=300",),
    check=_lets_in,
)
def idle_connections(stand: Stand) -> list[Foe]:
    foes: list[Foe] = []
    with contextlib.suppress(OSError):
        for _ in range(300):
            foes.append(Foe.zmtp(stand.port))
    stand.watch(1.0)
    return foes


@attack("a flood of last values and log records", connections=2)
def values_and_records(stand: Stand) -> list[Foe]:
    foes = [Foe.zmtp(stand.port, b"PUB") for _ in range(2)]
    values = b"".join(join([b"v%06d" % number, PIECE[:4000]]) for number in range(20_000))
    record = json.dumps({"message": "x" * 8000, "fields": {str(n): n for n in range(500)}}).encode()
    flood(foes[:1], [values] * (8 if stand.full else 2), 2 * seconds(stand))
    flood(foes[1:], [join([b"log.x", record]) * 100] * (100 if stand.full else 10), seconds(stand))
    return foes
