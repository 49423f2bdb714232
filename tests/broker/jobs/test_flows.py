"""The flows that a leader knows, on a store that answers when the test says so."""

from polydomo.broker.flows.flow import RUNNING, FlowRow, Settled
from polydomo.broker.flows.flows import Flows
from polydomo.broker.flows.ops import Settle
from polydomo.model.jobs.messages import make_id
from polydomo.stores.flows.memory import MemoryFlows
from tests.broker.jobs.machine import World

ID = make_id(1_000_000.0, bytes(10))


def test_work_that_another_transaction_leaves_is_not_forgotten() -> None:
    """The transaction of a slice may be before one that leaves something to do, although its answer comes after it."""
    world = World()
    world.lead()
    flows = Flows(world.jobs)
    row = FlowRow(ID, "f", world.time)
    row.state, row.total, row.cursor = RUNNING, 2, 2
    MemoryFlows(world.backend.tables).add_flow(row)
    flows.load([row])
    world.store.ops = [op for op in world.store.ops if isinstance(op, Settle)]
    assert len(world.store.ops) == 1  # a slice is under way
    left = Settled()
    left.flows[ID] = row
    left.more.add(ID)
    flows.settled(left)
    (slice,) = world.store.ops
    world.store.ops = []
    world.backend.apply([slice], world.store.epoch)
    slice.finish()
    assert [type(op) for op in world.store.ops] == [Settle]  # the next one
