"""Who is still there: one look at a worker when something about it may be due, and not before.

"A peer MUST consider the other peer "disconnected" if no heartbeat arrives within some multiple of that interval (usually 3-5)."
Messages only set ``seen`` and ``told``; a worker's one timer is set to the earliest moment at which those could matter.
"""

from typing import TYPE_CHECKING

from polydomo.broker.timers import HAIR
from polydomo.limits import BEAT_CROSSES, LATE_FRACTION
from polydomo.protocols.verbs import LATE, Worker

if TYPE_CHECKING:
    from polydomo.broker.floor import Floor
    from polydomo.broker.ledger import Ledger

NEVER = 0.0
NO_BEAT = "no beat for"  # how the cause of a loss by silence begins


def schedule(broker: "Floor", worker: Worker) -> None:
    """Sets the worker's timer."""
    when = _next_look(broker, worker)
    if when != NEVER:
        worker.timer = broker.timers.add(broker.now, when, worker)


def reschedule(broker: "Floor", worker: Worker) -> None:
    if worker.timer:
        if worker.timer <= broker.now * 1000.0:
            return  # it is looked at in this turn: setting the timer anew would only put that off
        broker.timers.remove(worker.timer, worker)
        worker.timer = 0
    schedule(broker, worker)


def judge(broker: "Floor", worker: Worker) -> None:
    """The worker's timer is due: beat, mark late, give up, or look again later."""
    if not worker.alive:
        return
    now = broker.now + HAIR
    if worker.orphaned and now >= worker.orphaned:
        broker.lose(worker, "lost", "its connection was lost, and it did not come back")
        return
    allowed = _allowed_silence(broker, worker)
    if allowed and now >= _last_sign(worker) + allowed:
        worker.session.expire(worker)
        broker.lose(worker, "lost", f"{NO_BEAT} {now - worker.seen:.1f} s")
        return
    if is_late(broker, worker):
        if worker.state != LATE:
            broker.monitor.late(worker)
            broker.recorder.late(worker)
    elif worker.state == LATE:
        broker.monitor.back(worker)
    if worker.beat and now >= worker.told + worker.beat and (worker.waiting or not worker.session.polls):
        if worker.session.polls:
            broker.revoke(worker)
        worker.session.beat(worker)
        worker.told = broker.now
        if worker.session.polls:
            worker.seen = broker.now  # its answer is due from now on
    schedule(broker, worker)


def overslept(broker: "Floor", late: float) -> None:
    """The loop comes ``late`` to its timers: what others said meanwhile is not read yet, so that time is not their silence."""
    for worker in broker.workers:
        worker.seen = min(broker.now, worker.seen + late)
        if worker.orphaned:
            worker.orphaned += late
    broker.catalog.overslept(broker.now, late)


def busy_beat(broker: "Floor", worker: Worker) -> bool:
    """Whether a beat was sent by a worker that had its request already. One that crossed the request on its way tells nothing, and
    taking it for more would cost a worker that cannot beat while busy its next long job."""
    first = next(iter(worker.held.values()))
    return broker.now - first.dispatched >= worker.silence * BEAT_CROSSES


def is_late(broker: "Ledger", worker: Worker) -> bool:
    """It has used up half of the silence that it is allowed."""
    allowed = _allowed_silence(broker, worker)
    return bool(allowed) and broker.now + HAIR >= _last_sign(worker) + allowed * LATE_FRACTION


def silence(broker: "Ledger", worker: Worker) -> tuple[float, float]:
    """How long it has said nothing, and how long it may; 0 is for ever."""
    return broker.now - _last_sign(worker), _allowed_silence(broker, worker)


def _allowed_silence(broker: "Ledger", worker: Worker) -> float:
    """How long it may say nothing. Many published workers do not beat while they work: until one has done so once, it is given
    ``busy_timeout`` while it holds a request. A polling worker's silence means nothing while it waits for us, nor while the
    job it holds has a time of its own."""
    if worker.waiting or (worker.session.polls and any(r.run or r.deadline for r in worker.held.values())):
        return 0.0
    if worker.held and not worker.beats_busy and worker.silence:
        return max(broker.policy.busy_timeout, worker.silence)
    return worker.silence


def _last_sign(worker: Worker) -> float:
    """From when its silence counts: its last message, or, if it does not beat while busy, the request it got after that."""
    if not worker.held or worker.beats_busy:
        return worker.seen
    return max(worker.seen, max(request.dispatched for request in worker.held.values()))


def _next_look(broker: "Floor", worker: Worker) -> float:
    if worker.orphaned:
        return worker.orphaned
    when = NEVER
    if worker.silence:
        now = broker.now + HAIR
        part = 1.0 if worker.state == LATE else LATE_FRACTION
        when = worker.seen + worker.silence * part
        if when <= now:  # silent, but it may be
            when = now + worker.silence * part
            allowed = _allowed_silence(broker, worker)
            if allowed:
                sign = _last_sign(worker)
                due = sign + allowed * LATE_FRACTION
                when = min(when, due if due > now else sign + allowed)
    if worker.beat and (worker.waiting or not worker.session.polls):
        beat = worker.told + worker.beat
        if when == NEVER or beat < when:
            when = beat
    return when
