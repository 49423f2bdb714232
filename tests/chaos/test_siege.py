"""Attacks on real brokers: what an honest client beside each may feel, and how much memory each may take.

The small forms run with ``make test``, the full ones with ``make test-long``; ``make siege`` prints a table.
"""

import pytest

from chaos.siege import memory, trust, work
from chaos.siege.every import ATTACKS
from chaos.siege.peers import Foe, flood, long_frame
from chaos.siege.stand import MIB, Stand, run
from polydomo.wire.frames import join

# The small forms of these run with `make test`; for the others, tests of the parts count work, turns and bytes instead. All attacks of
# `work` use up turns of the loop: some of them stand for the others.
SMALL_MODULES = {module.__name__ for module in (memory, trust)}
SOME_WORK = {work.look_ups_then_sigterm, work.bridge_offers, work.redials, work.unread_metrics, work.crowd_of_one_host}


def is_small(name: str) -> bool:
    strike = ATTACKS[name].strike
    return strike.__module__ in SMALL_MODULES or strike in SOME_WORK


SMALL_FORMS = [
    name if is_small(name) else pytest.param(name, marks=pytest.mark.long)
    for name, attack in ATTACKS.items()
    if attack.strike.__module__ in SMALL_MODULES | {work.__name__}
]

TRIES = 2  # a machine may pause a process in a way that its own counters do not show
PATIENCE = 120.0  # seconds for what should happen at once
STALL = 10.0  # seconds of the small forms, on any machine: only a broker that serves nobody else keeps a client waiting for that long


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("siege")
@pytest.mark.parametrize("name", SMALL_FORMS)
def test_an_attack_does_not_affect_an_honest_client(name: str) -> None:
    _, breaches = run(ATTACKS[name], stall=STALL)
    assert not breaches


@pytest.mark.long
@pytest.mark.real_time
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ATTACKS)
def test_a_full_attack_does_not_affect_an_honest_client(name: str) -> None:
    for left in reversed(range(TRIES)):
        _, breaches = run(ATTACKS[name], full=True)
        if not breaches:
            return
        assert left, breaches


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("siege")
def test_the_account_and_the_resident_memory_agree() -> None:
    """Within 25 %, for bodies of open requests and for unfinished input."""
    stand = Stand()
    try:
        before = stand.memory(), stand.ask(b"polydomo.status")["memory"]["total_bytes"]
        foes = [Foe.zmtp(stand.port) for _ in range(6)]
        request = join([b"", b"MDPC01", b"nobody", bytes(50_000)])
        flood(foes[:3], [request * 300], PATIENCE)
        flood(foes[3:], [long_frame(40 * MIB), *[bytes(MIB)] * 20], PATIENCE)
        wanted = 3 * 300 * 50_000 + 3 * 20 * MIB

        def booked() -> int:
            return int(stand.ask(b"polydomo.status")["memory"]["total_bytes"] - before[1])

        assert stand.wait_until(lambda: booked() >= wanted, PATIENCE), (booked(), wanted)
        assert booked() == pytest.approx(stand.memory() - before[0], rel=0.25)
        for foe in foes:
            foe.close()
        assert stand.wait_until(lambda: booked() < MIB, PATIENCE)
    finally:
        stand.close()
