"""The flows that a leader knows, on a store that answers when the test says so."""

from polydomo.broker.flows.flow import RUNNING, FlowRow, Settled
from polydomo.broker.flows.flows import Flows
from polydomo.broker.flows.ops import Settle
from polydomo.limits import STORE_AGAIN
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


def test_a_slice_that_failed_alone_is_put_again() -> None:
    world = World()
    world.lead()
    flows = Flows(world.jobs)
    row = FlowRow(ID, "f", world.time)
    row.state, row.total, row.cursor = RUNNING, 2, 2
    MemoryFlows(world.backend.tables).add_flow(row)
    flows.load([row])
    assert world.store.fail_alone(Settle) == 1
    flows.settled(None, True)  # another transaction wants a slice, too
    assert not any(isinstance(op, Settle) for op in world.store.ops), "it waits for the one that failed"
    world.store.sync()
    world.time += STORE_AGAIN
    world.jobs.run_due()
    (slice,) = [op for op in world.store.ops if isinstance(op, Settle)]
    assert slice.now == world.time and slice.error is None
    world.store.fail_alone(Settle)
    world.jobs.follow("tcp://other", "its lease")
    flows.clear()
    world.time += 1000.0
    world.jobs.run_due()
    assert not any(isinstance(op, Settle) for op in world.store.ops), "another broker leads"
