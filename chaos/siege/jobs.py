"""Attacks on durable jobs: very many small ones, and some large ones. ``polydomo.submit`` answers when a job is stored."""

import contextlib

from chaos.siege.peers import Foe, flood
from chaos.siege.stand import MIB, Stand, attack
from polydomo.wire.frames import join


def submission(number: int, service: bytes, body: bytes) -> bytes:
    header = b'{"service":"%b"}\n' % service
    return join([b"MDXC01", b"\x01", b"polydomo.submit", b"%d" % number, header, body])


def _all_stored(stand: Stand) -> list[str]:
    stored, wanted = stand.notes["stored"], stand.notes["wanted"]
    return [] if stored >= wanted else [f"{stored} of {wanted} jobs were answered"]


@attack("a million small jobs on one connection", words=("--store=sqlite",), check=_all_stored)
def small_jobs(stand: Stand) -> list[Foe]:
    """Each is answered: stored, or refused because a limit is reached."""
    wanted = 1_000_000 if stand.full else 20_000
    foe = Foe.zmtp(stand.port)
    foe.send(b"MDXC01", b"\x01", b"mmi.service", b"first", b"x")
    foe.receive()
    stored = sent = 0
    with contextlib.suppress(OSError):
        while stored < wanted:
            while sent < wanted and sent < stored + 500:
                foe.socket.sendall(b"".join(submission(number, b"later", b"x") for number in range(sent, sent + 100)))
                sent += 100
            foe.receive()
            stored += 1
    stand.notes["stored"], stand.notes["wanted"] = stored, wanted
    return [foe]


@attack("339 jobs of 2 MiB", words=("--store=sqlite",))
def large_jobs(stand: Stand) -> list[Foe]:
    foe = Foe.zmtp(stand.port)
    body = bytes(2 * MIB)
    flood([foe], [submission(number, b"later", body) for number in range(339 if stand.full else 150)], 30.0, reads=True)
    return [foe]
