"""Liveness of workers. Each worker has one timer and is checked only when that is due.

"A peer MUST consider the other peer "disconnected" if no heartbeat arrives within some multiple of that interval (usually 3-5)."
Messages only update timestamps; the worker's timer is set to the earliest time at which these could matter.
"""

from typing import TYPE_CHECKING

from polydomo.broker.requests import dispatch
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.broker.workers import registration
from polydomo.limits import BEAT_CROSSES, LATE_FRACTION, LOOK_FRACTION
from polydomo.model.service import LATE, Departure, Worker
from polydomo.wire.link import PAUSE_SHARE_USED

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

NEVER = 0.0


def schedule(broker: "Broker", worker: Worker) -> None:
    """Sets the worker's timer."""
    when = _next_look(broker, worker)
    if when != NEVER:
        worker.timer = broker.timers.add(broker.now, when, worker)


def reschedule(broker: "Broker", worker: Worker) -> None:
    if worker.timer:
        if worker.timer <= broker.now * 1000.0:
            return  # it is checked in this turn; setting the timer again would only delay that
        broker.timers.remove(worker.timer, worker)
        worker.timer = 0
    schedule(broker, worker)


def check_worker(broker: "Broker", worker: Worker) -> None:
    """The worker's timer is due: send a heartbeat, mark it late, remove it, or check again later."""
    if not worker.alive:
        return
    now = broker.now + TIME_TOLERANCE
    if worker.orphaned_until and now >= worker.orphaned_until:
        registration.lose(broker, worker, Departure.LOST, "the connection was lost, and the worker did not reconnect")
        return
    allowed = _allowed_silence(broker, worker)
    if worker.session.link.pauses & PAUSE_SHARE_USED:
        worker.last_heard = broker.now  # its messages are waiting to be read
    if allowed and now >= _last_sign(worker) + allowed:
        worker.session.on_worker_expired(worker)
        registration.lose(broker, worker, Departure.SILENT, f"no heartbeat for {now - worker.last_heard:.1f} s")
        return
    if is_late(broker, worker):
        if worker.state != LATE:
            broker.monitor.late(worker)
            broker.recorder.late(worker, *silence(broker, worker))
    elif worker.state == LATE:
        broker.monitor.back(worker)
    if (
        worker.heartbeat_interval
        and now >= worker.last_sent + worker.heartbeat_interval
        and (worker.polling or not worker.session.polls)
    ):
        if worker.session.polls:
            dispatch.clear_credit(worker)
        worker.session.send_heartbeat(worker)
        worker.last_sent = broker.now
        if worker.session.polls:
            worker.last_heard = broker.now  # its answer is expected from now on
    schedule(broker, worker)


def excuse_silence(broker: "Broker", late: float) -> None:
    """The process was suspended for ``late`` seconds, which do not count as silence."""
    for worker in broker.workers:
        worker.last_heard = min(broker.now, worker.last_heard + late)
        if worker.orphaned_until:
            worker.orphaned_until = min(worker.orphaned_until + late, broker.now + broker.tuning.memo_reconnect)
    broker.catalog.extend_deadlines(broker.now, late)


def heartbeat(broker: "Broker", worker: Worker) -> None:
    worker.last_heard = broker.now
    if worker.held and not worker.beats_while_busy and busy_beat(broker, worker):
        worker.beats_while_busy = True
        reschedule(broker, worker)


def busy_beat(broker: "Broker", worker: Worker) -> bool:
    """Whether a heartbeat proves that the worker sends heartbeats while busy. One that crossed the request on the wire proves nothing.
    Counting it would make the broker give up on a worker that cannot send heartbeats during its next long job."""
    first = next(iter(worker.held.values()))
    return broker.now - first.dispatched >= worker.max_silence * BEAT_CROSSES


def is_late(broker: "Broker", worker: Worker) -> bool:
    """Whether it has used up half of its allowed silence."""
    allowed = _allowed_silence(broker, worker)
    return bool(allowed) and broker.now + TIME_TOLERANCE >= _last_sign(worker) + allowed * LATE_FRACTION


def silence(broker: "Broker", worker: Worker) -> tuple[float, float]:
    """How long it has been silent, and the allowed silence; 0 is unlimited."""
    return broker.now - _last_sign(worker), _allowed_silence(broker, worker)


def _allowed_silence(broker: "Broker", worker: Worker) -> float:
    """The allowed silence. Many published workers send no heartbeats while busy. Until a worker has done so once, it is allowed
    ``busy_timeout`` while it holds a request. The silence of a polling worker does not count while it waits for the broker, or while
    its job has its own timeout."""
    if worker.polling or (worker.session.polls and any(r.max_run or r.deadline for r in worker.held.values())):
        return 0.0
    if worker.held and not worker.beats_while_busy and worker.max_silence:
        return max(broker.tuning.busy_timeout, worker.max_silence)
    return worker.max_silence


def _last_sign(worker: Worker) -> float:
    """The start of its silence: its last message, or, if it sends no heartbeats while busy, a later request."""
    if not worker.held or worker.beats_while_busy:
        return worker.last_heard
    return max(worker.last_heard, max(request.dispatched for request in worker.held.values()))


def _next_look(broker: "Broker", worker: Worker) -> float:
    if worker.orphaned_until:
        return worker.orphaned_until
    when = NEVER
    if worker.max_silence:
        now = broker.now + TIME_TOLERANCE
        part = 1.0 if worker.state == LATE else LOOK_FRACTION
        when = worker.last_heard + worker.max_silence * part
        if when <= now:  # silent, but allowed to be
            when = now + worker.max_silence * part
            allowed = _allowed_silence(broker, worker)
            if allowed:
                sign = _last_sign(worker)
                due = sign + allowed * LATE_FRACTION
                when = min(when, due if due > now else sign + allowed)
    if worker.heartbeat_interval and (worker.polling or not worker.session.polls):
        beat = worker.last_sent + worker.heartbeat_interval
        if when == NEVER or beat < when:
            when = beat
    return when
