"""The access column of the journal, which is evaluated independently of the check that admitted a request."""

import pytest

from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.broker.requests.transitions import new_request
from polydomo.model import principals
from polydomo.model.records import Service
from tests.broker.rig import World

RULES = AccessRules(
    ["alice", "reader"], [AccessRule(1, ["alice"], {"call": ["echo"]}), AccessRule(2, ["reader"], {"inspect": ["*"]})]
)


@pytest.mark.parametrize(
    ("who", "service", "column"),
    [
        ("alice", b"echo", 1),
        ("alice", b"other", 2),
        ("alice", b"polydomo.submit", 1),  # the service checks the right to call the job's service
        ("alice", b"polydomo.jobs", 2),
        ("reader", b"polydomo.jobs", 1),
        ("reader", b"polydomo.pause", 2),
        ("alice", b"polydomo.join", 2),
        (principals.RUNS, b"polydomo.join", 1),  # a process passes requests with keys on to process 0
    ],
)
def test_a_request_for_a_built_in_service_is_recorded_by_the_right_that_it_needs(
    who: str, service: bytes, column: int
) -> None:
    world = World()
    world.broker.access.replace(RULES)
    peer = world.client()
    peer.principal = peer.link.principal = who
    request = new_request(1, peer, Service(service), b"", None, world.broker.now)
    assert world.broker.access.recorded_call(request, service) == column
