"""Timekeeping: the end of a turn of the loop, the next deadline, and timers that are due."""

from typing import TYPE_CHECKING

from polydomo.broker.catalog import changes
from polydomo.broker.cluster.siblings import Expiry, Siblings
from polydomo.broker.requests import deadlines
from polydomo.broker.workers import liveness
from polydomo.model.request import Request
from polydomo.model.service import Service, Worker
from polydomo.model.session import Session

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker


class SessionTimer:
    """A timer that a session set with ``set_timer``."""

    def __init__(self, session: Session, key: object) -> None:
        self.session = session
        self.key = key


def end_turn(broker: "Broker") -> None:
    """Called once per turn of the loop: resumes paused clients that have room again, and does a share of long tasks."""
    publishing = broker.publishing
    monitor = broker.monitor
    if publishing.last_values.catching_up:
        publishing.last_values.serve()
    if broker.bridging.missed:
        broker.bridging.retry_missed()
    if broker.siblings.wanted or broker.siblings.short:
        broker.siblings.end_turn()
    if broker.durable is not None:
        broker.durable.end_turn()
    if publishing.subscriptions.leaving:
        publishing.subscriptions.drop_some()
    if broker.listings.open:
        broker.listings.end_turn()
    if monitor.greeting:
        monitor.greet_some()
    broker.backpressure.end_turn()
    if broker.now >= broker.memory.look_at:
        broker.memory.end_turn()
    if monitor.frequent:
        monitor.fold_frequent()
    if broker.now >= monitor.fold_at:
        monitor.fold()


def has_more_work(broker: "Broker") -> bool:
    """Whether work is left for the next turn, which should then start soon."""
    publishing = broker.publishing
    if publishing.subscriptions.leaving or broker.listings.open or broker.monitor.greeting:
        return True
    return bool(publishing.last_values.catching_up and publishing.last_values.can_serve())


def own_deadline(broker: "Broker") -> float | None:
    """When the first timer on the broker's own clock is due. Timers of jobs are left out: they follow the wall clock, which can be set."""
    own = broker.timers.next()
    resume = broker.access.resume_at
    if resume and (own is None or resume < own):
        own = resume
    catalog = broker.catalog.next_deadline()
    if own is None or (catalog is not None and catalog < own):
        own = catalog
    return own


def next_deadline(broker: "Broker") -> float | None:
    """When ``run_timers`` must be called next."""
    own = own_deadline(broker)
    if broker.durable is not None:
        jobs = broker.durable.next_deadline()
        if own is None or (jobs is not None and jobs < own):
            own = jobs
    return own


def was_suspended(broker: "Broker", seconds: float) -> None:
    """Messages that arrived while the process was suspended are not read yet. So that time does not count as silence of peers, and
    questions to the other processes of the broker wait again."""
    liveness.excuse_silence(broker, seconds)
    broker.siblings.extend_deadlines()


def run_timers(broker: "Broker") -> None:
    """Runs all timers that are due at ``now``."""
    fault: Exception | None = None
    for key, item in broker.timers.due(broker.now):
        try:
            _timer_due(broker, key, item)
        except Exception as error:  # the other timers must still run
            fault = error
    if broker.durable is not None:
        broker.durable.run_due()
    broker.catalog.run_timers(broker.now)
    changes.report(broker)
    if fault is not None:
        raise fault


def _timer_due(broker: "Broker", key: int, item: object) -> None:
    # An earlier timer may have ended this item or given it a new timer with another key.
    if isinstance(item, Request):
        if item.time_limits is not None and item.time_limits.timer == key:
            deadlines.request_due(broker, item, item.time_limits)
    elif isinstance(item, Worker):
        if item.timer == key:
            item.timer = 0
            liveness.check_worker(broker, item)
    elif isinstance(item, Service):
        if item.timer == key:
            deadlines.service_due(broker, item)
    elif isinstance(item, SessionTimer):
        if not item.session.disconnected:
            item.session.on_timer(item.key)
    elif isinstance(item, (Siblings, Expiry)):
        item.on_timer()
