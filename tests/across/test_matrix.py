"""Every client with every worker: the whole matrix on the pure core, with a clock set by hand."""

from dataclasses import replace

import pytest

from polydomo.protocols import registry
from polydomo.protocols.mdp.mdp1 import GUIDE_DIGITS, GUIDE_PHP
from polydomo.protocols.mdp.mdp2 import DIALECTS
from tests.across import world
from tests.across.cases import CASES
from tests.across.kinds import CLIENTS, PAIRS, WORKERS
from tests.across.table import PAGE, render, run

# All protocols that carry requests (HTTP is spoken by no library of ours), taken
# from the broker's code and not from the lists of these tests, and all dialects of MDP.
# Only a client can speak RFC 18 through a REQ socket, and only a worker can speak guide-php or guide-digits. The forms in which a
# document's client differs from our library's are for clients only, too. Only a worker's silence differs with DagBox's size of types.
SPOKEN = (set(registry.names()) - {"mdp2"}) | set(DIALECTS) | {"http"}
FORMS = {"dcp-addressed", "emqp-document"}
# DBP has no clients that send requests.
WORKERS_ONLY = {GUIDE_PHP, GUIDE_DIGITS, "dagbox", "dbp"}
EVERY_PAIR = {(client, worker) for client in SPOKEN | FORMS for worker in (SPOKEN | WORKERS_ONLY) - {"rfc18-req"}}


def test_every_pair_in_every_case_as_the_page_shows() -> None:
    results = run()
    assert set(results) == {(client, worker, case) for client, worker in EVERY_PAIR for case in CASES}
    assert len(EVERY_PAIR) == 182
    assert PAGE.read_text(encoding="utf-8") == render(results), "run `python -m tests.across.table`"


ZMTP_PAIRS = [(client, worker) for client, worker in PAIRS if not {client, worker} & {"memo", "http"}]
ONE_SIDE = [pair for pair in ZMTP_PAIRS if "mdx" in pair]  # for the others, only the long forms encrypt one side alone


@pytest.mark.parametrize(
    ("client", "worker", "sides"),
    [(*pair, "client worker") for pair in ZMTP_PAIRS]
    + [
        pytest.param(*pair, side, marks=() if pair in ONE_SIDE else pytest.mark.long)
        for pair in ZMTP_PAIRS
        for side in ("client", "worker")
    ],
)
def test_pair_with_curve(client: str, worker: str, sides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CURVE on one side, on the other, and on both: every pair behaves as without it."""
    monkeypatch.setattr(world, "CURVE_SIDES", frozenset(sides.split()))
    for case in CASES:
        _, check = CASES[case]
        assert check(CLIENTS[client], WORKERS[worker]), case


EXTENDED = ("mdx", "dcp", "emqp")  # protocols with extensions


@pytest.mark.parametrize("worker", EXTENDED)
@pytest.mark.parametrize("client", EXTENDED)
def test_pair_with_extensions(client: str, worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that announce polydomo's extensions behave as without them, whatever the other side does."""
    for sides in ("client", "worker", "client worker"):
        monkeypatch.setattr(world, "EXTENDED_SIDES", frozenset(sides.split()))
        for case in CASES:
            _, check = CASES[case]
            asker = CLIENTS[client]
            if client == "mdx" and "client" in sides:
                asker = replace(asker, timed=True)  # its deadline is sent
            assert check(asker, WORKERS[worker]), (sides, case)


@pytest.mark.parametrize("worker", [*EXTENDED, "memo"])
@pytest.mark.parametrize("client", CLIENTS)
def test_one_worker_connection_serves_several_clients_at_once(
    client: str, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "EXTENDED_SIDES", frozenset(["client", "worker"]))
    monkeypatch.setattr(world, "CREDIT", 4)
    scene = world.World()
    hand = world.Worker(scene, WORKERS[worker].end)
    clients = [world.Client(scene, CLIENTS[client].end) for _ in range(6)]
    for number, one in enumerate(clients):
        one.ask(b"work", [b"%d" % number])
    scene.settle()
    hand.look()
    assert [job.body for job in hand.jobs] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    for _ in range(len(clients)):
        job = hand.jobs.pop()  # the newest first
        hand.end.final(job, [b"to " + job.body[0]])
        scene.settle()
        hand.look()
    assert [one.wait_for_final() for one in clients] == [[b"to %d" % number] for number in range(6)]
    scene.broker.check_invariants()
