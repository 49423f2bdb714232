"""Liveness of workers. Each worker has one timer and is checked only when that is due.

"A peer MUST consider the other peer "disconnected" if no heartbeat arrives within some multiple of that interval (usually 3-5)."
Messages only update timestamps; the worker's timer is set to the earliest time at which these could matter.
"""

from polydomo.broker.requests import dispatch
from polydomo.broker.state import State
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.broker.workers import registration, silence
from polydomo.limits import BEAT_CROSSES
from polydomo.model.records import LATE, Departure, Worker
from polydomo.wire.link import PAUSE_SHARE_USED


def check_worker(state: State, worker: Worker) -> None:
    """The worker's timer is due: send a heartbeat, mark it late, remove it, or check again later."""
    if not worker.alive:
        return
    now = state.now + TIME_TOLERANCE
    if worker.orphaned_until and now >= worker.orphaned_until:
        registration.lose(state, worker, Departure.LOST, "the connection was lost, and the worker did not reconnect")
        return
    allowed = silence.allowed_silence(state, worker)
    if worker.session.link.pauses & PAUSE_SHARE_USED:
        worker.last_heard = state.now  # its messages are waiting to be read
    if allowed and now >= silence.last_sign(worker) + allowed:
        worker.session.on_worker_expired(worker)
        registration.lose(state, worker, Departure.SILENT, f"no heartbeat for {now - worker.last_heard:.1f} s")
        return
    if silence.is_late(state, worker):
        if worker.state != LATE:
            state.observer.late(worker)
            state.recorder.late(worker, *silence.measure(state, worker))
    elif worker.state == LATE:
        state.observer.back(worker)
    if (
        worker.heartbeat_interval
        and now >= worker.last_sent + worker.heartbeat_interval
        and (worker.polling or not worker.session.polls)
    ):
        if worker.session.polls:
            dispatch.clear_credit(worker)
        worker.session.send_heartbeat(worker)
        worker.last_sent = state.now
        if worker.session.polls:
            worker.last_heard = state.now  # its answer is expected from now on
    silence.schedule(state, worker)


def excuse_silence(state: State, late: float) -> None:
    """The process was suspended for ``late`` seconds, which do not count as silence."""
    for worker in state.workers:
        worker.last_heard = min(state.now, worker.last_heard + late)
        if worker.orphaned_until:
            worker.orphaned_until = min(worker.orphaned_until + late, state.now + state.tuning.memo_reconnect)


def heartbeat(state: State, worker: Worker) -> None:
    worker.last_heard = state.now
    if worker.held and not worker.beats_while_busy and busy_beat(state, worker):
        worker.beats_while_busy = True
        silence.reschedule(state, worker)


def busy_beat(state: State, worker: Worker) -> bool:
    """Whether a heartbeat proves that the worker sends heartbeats while busy. One that crossed the request on the wire proves nothing.
    Counting it would make the broker give up on a worker that cannot send heartbeats during its next long job."""
    first = next(iter(worker.held.values()))
    return state.now - first.dispatched >= worker.max_silence * BEAT_CROSSES
