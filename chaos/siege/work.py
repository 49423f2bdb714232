"""Attacks on the broker's CPU time: valid messages, or cheap ones that are expensive to answer, as fast as one connection can send them."""

import json

from chaos.siege.peers import Foe, command, dbp, fill_catalog, fill_values, flood, offer_services
from chaos.siege.stand import Stand, attack
from polydomo.wire.frames import join

BURST = 1.5  # seconds of a flood in its small form
LONG = 12.0  # ... and in its full form
HELLO = join([b"PDBR01", b"HELLO", b"a" * 16, b"4096", b"1000000000"])


def seconds(stand: Stand) -> float:
    return LONG if stand.full else BURST


def repeated(message: bytes, size: int) -> list[bytes]:
    """The message repeated to ``size`` bytes in all, in pieces that share their memory."""
    piece = message * max(1, (1 << 20) // len(message))
    return [piece] * max(1, size // len(piece))


def _catalog(stand: Stand) -> list[Foe]:
    fill_catalog(stand.port, 1000 if stand.full else 150, 16_000)
    return []


@attack("400 DBP info requests for everything, against a catalog full of 16 KB entries", _catalog)
def directory_answers(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, buffer=4096)
    flood([foe], [dbp(b"u_U") * 400], seconds(stand))
    stand.watch(seconds(stand))
    return [foe]


def _values(stand: Stand) -> list[Foe]:
    fill_values(stand.port, 1000, 16_000)
    return []


@attack("a 349-byte info request for `values:,values:a,...`, where every name has 16 MB", _values)
def value_answers(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, buffer=4096)
    prefixes = ["", "a", "a0", *(f"a0{digit}" for digit in range(10)), *(f"a00{digit}" for digit in range(10))]
    asked = ",".join(f"values:{prefix}" for prefix in prefixes)
    foe.socket.sendall(dbp(b"u_U", asked.encode()) * (20 if stand.full else 4))
    stand.watch(seconds(stand))
    return [foe]


def _services(stand: Stand) -> list[Foe]:
    return offer_services(stand.port, 9000 if stand.full else 3000)


@attack("look-ups of an unknown name with thousands of services", _services)
def look_ups(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    flood([foe], [dbp(b"u_U", b"zzz") * (100_000 if stand.full else 2_000)], seconds(stand))
    stand.watch(seconds(stand))
    return [foe]


def _ends_in_time(stand: Stand) -> list[str]:
    try:
        stand.notes["stop"] = stand.stop(20.0 if stand.full else 60.0)
    except TimeoutError as error:
        return [str(error)]
    return []


@attack("a burst of look-ups of 3 MB, then SIGTERM", _services, words=("--grace=2s",), check=_ends_in_time)
def look_ups_then_sigterm(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    flood([foe], [dbp(b"u_U", b"zzz") * 140_000], 0.5)
    return [foe]


def _mdx_client(stand: Stand) -> Foe:
    foe = Foe.zmtp(stand.port)
    foe.send(b"MDXC01", b"\x01", b"mmi.service", b"1", b"x")
    foe.receive()
    return foe


@attack("7 MB of invalid MDX messages")
def invalid_messages(stand: Stand) -> list[Foe]:
    foe = _mdx_client(stand)
    flood([foe], repeated(join([b"MDXC01", b"\x7f", b"x"]), 7_000_000), seconds(stand))
    return [foe]


@attack("118,000 OFFERs of a fake bridge")
def bridge_offers(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    foe.socket.sendall(HELLO)
    offers = [join([b"PDBR01", b"OFFER", b"n%06d" % number, b"a" * 16]) for number in range(118_000)]
    flood([foe], [b"".join(offers)], seconds(stand))
    return [foe]


def _thousand_services(stand: Stand) -> list[Foe]:
    return offer_services(stand.port, 1000)


@attack("37 KB of SUBSCRIBE and CANCEL of `monitor.` with 1,000 services", _thousand_services)
def monitor_subscriptions(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, b"SUB")
    pair = command(b"SUBSCRIBE", b"monitor.") + command(b"CANCEL", b"monitor.")
    flood([foe], [pair * 1000], seconds(stand))
    stand.watch(seconds(stand))
    return [foe]


@attack("780,000 log records")
def log_records(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, b"PUB")
    record = join([b"log.x", json.dumps({"message": "x", "level": "info"}).encode()])
    flood([foe], repeated(record, 780_000 * len(record)), seconds(stand))
    return [foe]


@attack("messages of 1,000 empty frames")
def empty_frames(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, b"PUB")
    flood([foe], repeated(b"\x01\x01t" + b"\x01\x00" * 999 + b"\x00\x00", 64_000_000), seconds(stand))
    return [foe]


@attack("messages of 16,000 empty frames")
def many_empty_frames(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, b"PUB")
    flood([foe], repeated(b"\x01\x01t" + b"\x01\x00" * 15_999 + b"\x00\x00", 64_000_000), seconds(stand))
    return [foe]


@attack("requests of 16,000 empty frames to built-in services")
def many_empty_request_frames(stand: Stand) -> list[Foe]:
    foe = _mdx_client(stand)
    request = join([b"MDXC01", b"\x01", b"mmi.service", b"2", *[b""] * 16_000])
    flood([foe], repeated(request, 64_000_000), seconds(stand))
    return [foe]


@attack("requests of 1,000 empty frames to built-in services")
def empty_request_frames(stand: Stand) -> list[Foe]:
    foe = _mdx_client(stand)
    request = join([b"MDXC01", b"\x01", b"mmi.service", b"2", *[b""] * 1000])
    flood([foe], repeated(request, 64_000_000), seconds(stand))
    return [foe]


@attack("5.3 million valid publications")
def publications(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, b"PUB")
    flood([foe], repeated(b"\x01\x01t\x00\x01x", 32_000_000), seconds(stand))
    return [foe]


@attack("DBP updates, each of which names another port to subscribe to")
def redials(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    foe.socket.sendall(dbp(b"UwU", json.dumps({"name": "caller"}).encode()))
    foe.receive()
    updates = []
    for number in range(20_000):
        place = {"interfaces": {"pub": {"port": 1 + number % 1000}}, "topics": ["t"]}
        updates.append(dbp(b"UoU", json.dumps({"name": "caller", **place}).encode()))
    flood([foe], [b"".join(updates)], seconds(stand))
    return [foe]


@attack("READY, then 300 `polydomo.services` from the same connection", _services)
def worker_asks(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port, buffer=4096)
    foe.send(b"", b"MDPW01", b"\x01", b"mine")
    flood([foe], [join([b"", b"MDPC01", b"polydomo.services", b""]) * 300], seconds(stand))
    stand.watch(seconds(stand))
    return [foe]


@attack("300 unread scrapes of /metrics with 2,000 services", _services, connections=300)
def unread_metrics(stand: Stand) -> list[Foe]:
    foes = []
    for _ in range(300):
        foe = Foe(stand.port, buffer=4096)
        foe.socket.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        foes.append(foe)
    stand.watch(seconds(stand))
    return foes


@attack("many connections of one host that flood the built-in services", connections=1000)
def crowd_of_one_host(stand: Stand) -> list[Foe]:
    foes = [Foe.zmtp(stand.port) for _ in range(1000 if stand.full else 150)]
    asked = join([b"", b"MDPC01", b"mmi.service", b"x"])
    flood(foes, repeated(asked, 8_000_000), seconds(stand))
    return foes
