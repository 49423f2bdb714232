"""Quotas of principals: who is refused or paused, and when it may continue."""

import pytest

from polydomo.broker.guard.rules import AccessRule, AccessRules, Quota
from tests.broker.rig import Peer, World


def limited() -> World:
    world = World()
    rules = [AccessRule(1, ["hasty"], {"call": ["*"]}), AccessRule(2, ["pool"], {"offer": ["*"]})]
    world.broker.access.replace(AccessRules(["hasty", "pool"], rules, {"hasty": Quota(requests_per_second=1.0)}))
    return world


def client(world: World, refuses: bool) -> Peer:
    peer = world.client()
    peer.principal = peer.link.principal = "hasty"
    peer.refuses_at_limit = refuses
    return peer


@pytest.mark.parametrize("refuses", [True, False], ids=["refused, as over HTTP", "paused, as over ZMTP"])
def test_a_client_over_its_rate_that_leaves_leaves_no_timer(refuses: bool) -> None:
    """A time in the past that nothing removes would keep the loop of the broker busy for ever."""
    world = limited()
    hasty = client(world, refuses)
    for _ in range(3):
        hasty.ask()
    world.broker.end_turn()
    assert (world.broker.next_deadline() is not None) == bool(world.broker.paused_clients or hasty.requests)
    hasty.close()
    world.broker.end_turn()
    assert world.broker.access.resume_at == 0.0


def test_a_message_with_several_jobs_counts_as_many_calls() -> None:
    world = limited()
    jobs = b'{"service":"echo","jobs":[%b]}\n' % b",".join([b'{"sizes":[0]}'] * 5)
    for body, seconds in ((jobs, 4.0), (b'{"jobs":', 1.0)):
        hasty = client(world, refuses=True)
        hasty.ask(body, b"polydomo.submit.many")
        assert hasty.ask(b"too soon") is None
        world.wait(seconds - 0.5)
        assert hasty.ask(b"too soon") is None
        world.wait(1.6)
        assert hasty.ask() is not None
        hasty.close()
        world.wait(5.0)
