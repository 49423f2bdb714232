"""What must always be true of the queue of a service with limits."""

from collections import Counter

from polydomo.broker.limiting.limited_queue import LimitedQueue


def check_invariants(queue: LimitedQueue) -> None:
    limits = queue.limits
    ready = 0
    for key, lane in queue.lanes.items():
        who = f"lane {key!r} of {queue.name!r}"
        assert lane.key == key, f"{who} is listed under another key"
        assert lane.is_used() or lane.listings, f"{who} is kept without a reason"
        queues = lane.queues()
        assert lane.waiting == sum(len(each.requests) for each in queues), f"{who} miscounts its requests"
        assert lane.ready == sum(each.is_ready for each in queues), f"{who} miscounts its ready queues"
        assert set(lane.parked or ()) == {each for each in queues if not each.is_ready}, f"{who} lost a queue"
        ready += lane.ready
        held = sum(found is lane for found in queue.held.values()) if len(queue.held) < 1000 else -1
        away = sum(share.reserved + share.running for share in (lane.shares or {}).values())
        assert held < 0 or lane.running == held + away, f"{who} counts {lane.running} running and has {held} + {away}"
        room = queue.room(lane)
        assert lane.ready <= max(room, 0), f"{who} starts {lane.ready} requests and has room for {room}"
        # A timer that is due a moment late serves them.
        waits = lane.parked and lane.ready < room and not lane.timer
        assert not waits, f"{who} has room, and its requests wait"
    listed = Counter(queue.idle)
    assert all(lane.listings == count for lane, count in listed.items()), f"{queue.name!r} miscounts idle lanes"
    starts = sum(len(lane.starts) for lane in queue.lanes.values() if lane.starts)
    assert queue.start_count == starts, f"{queue.name!r} counts {queue.start_count} starts and has {starts}"
    assert queue.ready == ready == sum(len(turn.ready) for turn in queue.turns), (
        f"{queue.name!r} miscounts ready queues"
    )
    for turn in queue.turns:
        assert turn.ready, f"{queue.name!r} lists a client without ready queues"
    assert not limits.starts or not queue.idle or queue.timer, f"{queue.name!r} never forgets its lanes"
