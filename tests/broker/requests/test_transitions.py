"""The states of a request change in one module, and only as its table says."""

import ast
from pathlib import Path

import pytest

import polydomo
from polydomo.broker.requests import transitions
from polydomo.broker.requests.transitions import EVENTS, STATES, TABLE, new_request
from polydomo.model.outcomes import OK, REFUSED
from polydomo.model.records import DONE, HELD, NEW, PARKED, QUEUED, Request, Service, Worker
from tests.broker.rig import Peer, World

SOURCE = Path(polydomo.__file__).parent
HOME = SOURCE / "broker" / "requests" / "transitions.py"

# Other classes that have a state, by the variable that holds an instance.
OTHERS = {"self", "worker", "service", "entry", "job", "link", "node"}
STORES = SOURCE / "stores"  # they know jobs and flows, and no requests


def assignments(path: Path) -> list[str]:
    """The objects whose attribute ``state`` this module assigns or deletes."""
    return [
        ast.unparse(node.value)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "state" and not isinstance(node.ctx, ast.Load)
    ]


def test_no_other_module_writes_the_state_of_a_request() -> None:
    others = [path for path in sorted(SOURCE.rglob("*.py")) if path != HOME and not path.is_relative_to(STORES)]
    assert not any(
        "Request," in path.read_text() or "import Request\n" in path.read_text() for path in STORES.glob("*.py")
    )
    writers = {str(path.relative_to(SOURCE)): set(assignments(path)) - OTHERS for path in others}
    assert {path: written for path, written in writers.items() if written} == {}
    assert set(assignments(HOME)) == {"request"}


def test_only_one_function_makes_requests() -> None:
    makers = [
        (path.name, node.lineno)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Request", "request.Request")
    ]
    assert [name for name, _ in makers] == ["transitions.py"]


def in_state(world: World, client: Peer, worker: Worker, state: int) -> Request:
    """A request that has come to this state."""
    request = new_request(1, client, Service(b"echo"), b"body", None, world.broker.now)
    way = {NEW: [], QUEUED: ["accept"], HELD: ["accept", "hold"], PARKED: ["accept", "park"], DONE: ["refuse"]}
    for event in way[state]:
        happen(world, request, worker, event)
    assert request.state == state
    return request


def happen(world: World, request: Request, worker: Worker, event: str) -> None:
    broker = world.broker
    if event == "accept":
        transitions.accept(broker, request)
    elif event == "refuse":
        transitions.refuse(request, REFUSED, "a reason")
    elif event == "answer":
        transitions.answer(request, OK)
    elif event == "hold":
        transitions.hold(broker, request, worker)
    elif event == "park":
        transitions.park(request)
    elif event == "open":
        transitions.open(request)
    elif event == "requeue":
        transitions.requeue(request)
    else:
        transitions.end(broker, request, OK, "")


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES, ids=STATES.get)
def test_an_event_that_is_not_in_the_table_is_an_error(state: int, event: str) -> None:
    world = World()
    client, worker = world.client(), world.worker(b"other").worker
    assert worker is not None
    request = in_state(world, client, worker, state)
    if event in TABLE[state]:
        happen(world, request, worker, event)
        assert request.state == TABLE[state][event]
    else:
        with pytest.raises(KeyError):
            happen(world, request, worker, event)
        assert request.state == state


def test_what_is_counted_for_an_open_request_is_gone_when_it_has_ended() -> None:
    world = World()
    broker, client = world.broker, world.client()
    body = b"b" * 100_000
    request = new_request(1, client, Service(b"echo"), body, None, broker.now)
    transitions.accept(broker, request)
    assert (broker.held_bytes, client.held_bytes, list(client.requests)) == (len(body), len(body), [request])
    transitions.end(broker, request, OK, "")
    assert (broker.held_bytes, client.held_bytes, list(client.requests)) == (0, 0, [])


def test_every_open_state_can_end_and_done_is_final() -> None:
    assert set(TABLE) == set(STATES) and TABLE[DONE] == {}
    assert all(DONE in TABLE[state].values() for state in STATES if state != DONE)
    assert {event for row in TABLE.values() for event in row} == set(EVENTS)
