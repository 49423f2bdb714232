"""How long a worker may be silent, and when it is checked next.

"A peer MUST consider the other peer "disconnected" if no heartbeat arrives within some multiple of that interval (usually 3-5)."
Messages only update timestamps; the worker's timer is set to the earliest time at which these could matter.
"""

from polydomo.broker.state import State
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.limits import LATE_FRACTION, LOOK_FRACTION
from polydomo.model.records import LATE, Worker

NEVER = 0.0


def schedule(state: State, worker: Worker) -> None:
    """Sets the worker's timer."""
    when = _next_look(state, worker)
    if when != NEVER:
        worker.timer = state.timers.add(state.now, when, worker)


def reschedule(state: State, worker: Worker) -> None:
    if worker.timer:
        if worker.timer <= state.now * 1000.0:
            return  # it is checked in this turn; setting the timer again would only delay that
        state.timers.remove(worker.timer, worker)
        worker.timer = 0
    schedule(state, worker)


def is_late(state: State, worker: Worker) -> bool:
    """Whether it has used up half of its allowed silence."""
    allowed = allowed_silence(state, worker)
    return bool(allowed) and state.now + TIME_TOLERANCE >= last_sign(worker) + allowed * LATE_FRACTION


def measure(state: State, worker: Worker) -> tuple[float, float]:
    """How long it has been silent, and the allowed silence; 0 is unlimited."""
    return state.now - last_sign(worker), allowed_silence(state, worker)


def allowed_silence(state: State, worker: Worker) -> float:
    """The allowed silence. The published workers of MDP, and DagBox's of DCP, send no heartbeats while busy (``WorkerTerms.strict`` is
    False). Until such a worker has done so once, it is allowed ``busy_timeout`` while it holds a request. The silence of a polling
    worker does not count while it waits for the broker, or while its job has its own timeout."""
    if worker.polling or (worker.session.polls and any(r.max_run or r.deadline for r in worker.held.values())):
        return 0.0
    if worker.held and not worker.beats_while_busy and worker.max_silence:
        return max(state.tuning.busy_timeout, worker.max_silence)
    return worker.max_silence


def last_sign(worker: Worker) -> float:
    """The start of its silence: its last message, or, if it sends no heartbeats while busy, a later request."""
    if not worker.held or worker.beats_while_busy:
        return worker.last_heard
    return max(worker.last_heard, max(request.dispatched for request in worker.held.values()))


def _next_look(state: State, worker: Worker) -> float:
    if worker.orphaned_until:
        return worker.orphaned_until
    when = NEVER
    if worker.max_silence:
        now = state.now + TIME_TOLERANCE
        part = 1.0 if worker.state == LATE else LOOK_FRACTION
        when = worker.last_heard + worker.max_silence * part
        if when <= now:  # silent, but allowed to be
            when = now + worker.max_silence * part
            allowed = allowed_silence(state, worker)
            if allowed:
                sign = last_sign(worker)
                due = sign + allowed * LATE_FRACTION
                when = min(when, due if due > now else sign + allowed)
    if worker.heartbeat_interval and (worker.polling or not worker.session.polls):
        beat = worker.last_sent + worker.heartbeat_interval
        if when == NEVER or beat < when:
            when = beat
    return when
