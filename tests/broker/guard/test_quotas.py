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
