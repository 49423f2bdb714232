"""Progress in the broker: how often it is passed on, to whom, and when it ends."""

import pytest

from polydomo.limits import MAX_PROGRESS_TEXT
from polydomo.model.records import Request
from polydomo.protocols.ends import Progressed
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.zmtp.extensions import Extensions
from tests.broker.rig import Peer, World
from tests.protocols.extended_peers import client_of, jobs_of, peer_of, worker_of
from tests.protocols.mdx_dcp_rig import Rig


class Watching(Peer):
    """A client that notes when it gets progress."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.reports: list[tuple[float, float, str]] = []

    def send_progress(self, request: Request, share: float, text: str) -> None:
        self.reports.append((self.world.now, share, text))


def report(world: World, worker: Peer, share: float, text: str = "", token: bytes = b"") -> bool:
    known = world.broker.progress(worker.me, token or worker.jobs[0].token, share, text)
    world.check()
    return known


def test_at_most_ten_reports_a_second_are_passed_on_and_the_last_one_is_among_them() -> None:
    world = World()
    client, worker = Watching(world), world.worker()
    client.ask()
    for step in range(1000):
        assert report(world, worker, step / 1000, f"step {step}")
        world.wait(0.003)
    worker.answer()
    times = [time for time, _, _ in client.reports]
    for first in times:
        assert sum(first <= time < first + 1.0 for time in times) <= 10
    assert client.reports[0] == (0.0, 0.0, "step 0") and client.reports[-1][1:] == (0.999, "step 999")
    assert len(times) > 20
    assert client.finals == [[b"done"]]


def test_a_report_that_waits_is_passed_on_without_a_further_one() -> None:
    world = World()
    client, worker = Watching(world), world.worker()
    client.ask()
    report(world, worker, 0.1)
    report(world, worker, 0.2)
    world.wait(1.0)
    assert [share for _, share, _ in client.reports] == [0.1, 0.2]


def test_only_the_client_that_asked_gets_it_and_only_from_the_worker_that_holds_the_request() -> None:
    world = World()
    client, other = Watching(world), Watching(world)
    worker, thief = world.worker(), world.worker()
    client.ask()
    other.ask()
    token = worker.jobs[0].token
    assert report(world, worker, 0.5)
    assert not report(world, thief, 0.9, token=token)
    assert not report(world, worker, 0.9, token=b"000000000000")
    assert ([share for _, share, _ in client.reports], other.reports) == ([0.5], [])
    assert [what for _, what in world.notes.stales] == ["progress", "progress"]
    worker.answer()
    assert not report(world, worker, 1.0, token=token), "the request has ended"


def test_progress_ends_with_its_attempt() -> None:
    world = World()
    client, worker = Watching(world), world.worker()
    request = client.ask()
    assert request is not None
    report(world, worker, 0.5, "x" * 2000)
    report(world, worker, 0.6, "x" * 2000)
    assert request.history.progress is not None and worker.partial_bytes == MAX_PROGRESS_TEXT
    worker.close()
    assert request.history.progress is None and worker.partial_bytes == 0
    world.wait(1.0)
    assert [share for _, share, _ in client.reports] == [0.5], "what the lost worker said last is dropped"
    second = world.worker()
    report(world, second, 0.1)
    second.answer()
    assert [share for _, share, _ in client.reports] == [0.5, 0.1]
    assert second.partial_bytes == 0


def test_a_client_that_has_left_gets_nothing_and_the_worker_goes_on() -> None:
    world = World()
    client, worker = Watching(world), world.worker()
    client.ask()
    report(world, worker, 0.1)
    report(world, worker, 0.2)
    token = worker.jobs[0].token
    client.close()
    world.wait(1.0)
    assert report(world, worker, 0.3, token=token)
    assert len(client.reports) == 1


# --- MDX


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_mdx_carries_it_in_both_directions(rig: Rig) -> None:
    client, asker = client_of(rig, "mdx")
    worker, peer = worker_of(rig, "mdx", 2)
    client.request(1, b"echo", [b"1"])
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    worker.progress(job, 0.4, "page 3 of 8")
    peer.exchange(worker)
    assert asker.exchange(client) == [Progressed(1, 0.4, "page 3 of 8")]
    worker.final(job, [b"done"])
    worker.progress(job, 0.5, "late")
    assert worker.out[-1][1] == b"\x04", "a worker that has answered says no more"


def test_a_peer_without_the_extension_gets_none_and_one_that_uses_it_is_invalid(rig: Rig) -> None:
    client, asker = client_of(rig, "mdx")
    asker.link.extensions = asker.session.extended = Extensions(1)  # type: ignore[attr-defined]
    worker, peer = worker_of(rig, "mdx")
    client.request(1, b"echo", [b"1"])
    asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    worker.progress(job, 0.4, "page 3 of 8")
    peer.exchange(worker)
    assert asker.exchange(client) == []
    plain = peer_of(rig, MdxSession, Extensions(1))
    plain.say(b"MDXW01", b"\x01", b"plain")
    plain.say(b"MDXW01", b"PROGRESS", b"000000000000", b"0.5", b"")
    assert len(rig.notes.violations) == 1
    worker.agreed = Extensions(1)
    worker.progress(job, 0.9, "")
    assert not worker.out, "the broker does not understand it"


@pytest.mark.parametrize(
    "frames",
    [[], [b"token"], [b"token", b"2", b""], [b"token", b"x", b""], [b"token", b"nan", b""], [b"token", b"0.5"]],
    ids=repr,
)
def test_a_malformed_report_is_a_violation(rig: Rig, frames: list[bytes]) -> None:
    _, peer = worker_of(rig, "mdx")
    peer.say(b"MDXW01", b"PROGRESS", *frames)
    assert len(rig.notes.violations) == 1
    rig.broker.check_invariants()
