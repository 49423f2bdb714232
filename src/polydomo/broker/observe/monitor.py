"""Monitoring: events for state changes, recently disconnected peers, and metrics.

Every change of a stored state (see ``states``) is an event. Events are published as JSON, only if there are subscribers, under the topics

    monitor.worker.w12       monitor.service.echo       monitor.client.c7       monitor.figures (once a second)

The last few hundred events and disconnected peers are remembered. Finished requests are counted by service and client protocol.
"""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from polydomo import limits
from polydomo.broker.catalog.catalog import Catalog, CatalogEntry
from polydomo.broker.cluster.processes import send_event
from polydomo.broker.interfaces import Observer
from polydomo.broker.observe import states
from polydomo.broker.observe.figures import Figures
from polydomo.broker.observe.histogram import Tally
from polydomo.broker.observe.states import PeerState
from polydomo.broker.reserved_names import MONITOR
from polydomo.broker.state import State
from polydomo.broker.topics.subscriptions import Subscriptions
from polydomo.model.json_form import iso_time
from polydomo.model.records import LATE, LEFT, LOST, READY, Publication, Service, Session, Worker
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.frames import join

Row = dict[str, object]
Greeted = tuple[Session, bytes]  # a new subscriber and its prefix

WORKER: Final = "worker"
SERVICE: Final = "service"
CLIENT: Final = "client"
FIGURES = b"monitor.figures"


Gather = Callable[[Callable[[bytes], None]], None]


class Monitor(Observer):
    def __init__(self, state: State, subscriptions: Subscriptions, catalog: Catalog, figures: Figures) -> None:
        self._state = state
        self._subscriptions = subscriptions
        self._catalog = catalog
        self._figures = figures
        self.gather: Gather | None = None  # collects the figures of all processes of the broker
        self.tallies = state.tallies.table
        self.events = figures.events
        self.gone: dict[str, dict[str, Row]] = {WORKER: {}, SERVICE: {}, CLIENT: {}}  # by name, the oldest first
        # States still to be sent to new subscribers.
        self.greeting: dict[Greeted, list[Iterator[tuple[bytes, Row]]]] = {}
        self.fold_at = state.now + limits.MONITOR_TICK
        self.frequent: list[Tally] = []  # of services with many requests in the last second
        self._found = 0.0  # when these were looked for
        self.ticked = state.now
        self.max_gone = limits.MONITOR_GONE
        self.max_listed = limits.MAX_LISTED

    # --- state changes -----------------------------------------------------------------------------------------------------

    def opened(self, session: Session) -> None:
        session.since = self._state.now
        self._changed_client(session, PeerState(READY, self._state.now, "connected"))

    def closed(self, session: Session, reason: CloseReason) -> None:
        state = PeerState(LEFT if reason.orderly else LOST, self._state.now, str(reason))
        self._keep_gone(CLIENT, self._changed_client(session, state))
        for greeted in [greeted for greeted in self.greeting if greeted[0] is session]:
            del self.greeting[greeted]

    def registered(self, worker: Worker) -> None:
        now = self._state.now
        worker.state = READY
        worker.state_since = now
        worker.state_cause = f"registered from {worker.session.link.peer}"
        self._changed_worker(worker, PeerState(READY, now, worker.state_cause))
        for service in worker.services:
            self.offered(worker, service)

    def offered(self, worker: Worker, service: Service) -> None:
        if len(service.workers) == 1:
            self._set_service(service, READY, f"worker w{worker.number} offers it")

    def late(self, worker: Worker) -> None:
        self._set_worker(worker, LATE, f"silent for {self._state.now - worker.last_heard:.1f} s")

    def back(self, worker: Worker) -> None:
        self._set_worker(worker, READY, "heard again")

    def left(self, worker: Worker) -> None:
        """Called after the worker's state has changed and it has been removed from its services."""
        if worker.state == LOST:
            self._state.counters.workers_lost += 1
        state = PeerState(worker.state, worker.state_since, worker.state_cause)
        self._keep_gone(WORKER, self._changed_worker(worker, state))
        for service in worker.services:
            if not service.workers:
                self._set_service(service, worker.state, f"its last worker: {worker.state_cause}")

    def catalogued(self, entry: CatalogEntry) -> None:
        """Called when a service of the catalog changed."""
        row = self._event(SERVICE, entry.name, "dbp", PeerState(entry.state, entry.since, entry.cause))
        row["address"] = entry.address
        self._publish(SERVICE, entry.name.encode(), row)
        if entry.state in (LOST, LEFT):
            self._keep_gone(SERVICE, row)
        else:
            self.gone[SERVICE].pop(entry.name, None)

    def _set_worker(self, worker: Worker, state: str, cause: str) -> None:
        worker.state = state
        worker.state_since = self._state.now
        worker.state_cause = cause
        self._changed_worker(worker, PeerState(state, self._state.now, cause))

    def _set_service(self, service: Service, state: str, cause: str) -> None:
        service.state = state
        service.state_since = self._state.now
        service.state_cause = cause
        name = text(service.name)
        row = self._event(SERVICE, name, _protocols(service), PeerState(state, self._state.now, cause))
        row["queued"] = service.queue_length
        self._publish(SERVICE, service.name, row)
        if state in (LOST, LEFT):
            self._keep_gone(SERVICE, row)
        else:
            self.gone[SERVICE].pop(name, None)

    def _changed_worker(self, worker: Worker, state: PeerState) -> Row:
        name = f"w{worker.number}"
        row = self._event(WORKER, name, worker.session.protocol, state)
        row["peer"] = worker.session.link.peer
        row["connection"] = f"c{worker.session.number}"
        row["services"] = [text(service.name) for service in worker.services]
        row["done"] = worker.done
        row["failed"] = worker.failures
        self._publish(WORKER, name.encode(), row)
        return row

    def _changed_client(self, session: Session, state: PeerState) -> Row:
        name = f"c{session.number}"
        row = self._event(CLIENT, name, session.protocol, state)
        row["peer"] = session.link.peer
        row["workers"] = session.worker_count
        row["open_requests"] = len(session.requests)
        self._publish(CLIENT, name.encode(), row)
        return row

    def _event(self, kind: str, name: str, protocol: str, state: PeerState) -> Row:
        row = self._row(kind, name, protocol, state)
        if kind != CLIENT:  # clients connect and disconnect too often to remember all of them
            self.events.append(row)
        return row

    def _row(self, kind: str, name: str, protocol: str, state: PeerState) -> Row:
        return {
            "time": iso_time(self._state.wall + state.since),
            "kind": kind,
            "name": name,
            "protocol": protocol,
            "state": state.state,
            "cause": state.cause,
        }

    def _keep_gone(self, kind: str, row: Row) -> None:
        gone = self.gone[kind]
        name = str(row["name"])
        gone.pop(name, None)
        gone[name] = row
        if len(gone) > self.max_gone:
            del gone[next(iter(gone))]

    # --- subscribers -------------------------------------------------------------------------------------------------------

    def _publish(self, kind: str, name: bytes, row: Row) -> None:
        topic = b"monitor.%s.%s" % (kind.encode(), name)
        subscribers = self._subscriptions.match(topic)
        if subscribers:
            message = _message(topic, row)
            for subscriber in subscribers:
                if not subscriber.is_sibling:
                    subscriber.send_publication(message)
                elif kind != CLIENT:
                    send_event(subscriber, topic, row)

    def event_of_sibling(self, topic: bytes, content: bytes) -> None:
        """A worker or a service changed at another process of this broker, or a tap shows a message there."""
        for subscriber in self._subscriptions.match(topic):
            if not subscriber.is_sibling:
                subscriber.send_publication(Publication(topic, join([topic, content])))

    def send_current(self, session: Session, prefix: bytes) -> None:
        """A new subscriber first gets the current states, up to ``MAX_LISTED`` of each kind and a few per turn of the loop, then changes. A
        subscriber of all topics gets only changes."""
        if not prefix.startswith(MONITOR):
            return
        kinds = (self._workers(prefix), self._services(prefix), self._catalogued(prefix), self._clients(prefix))
        self.greeting[session, prefix] = [islice(kind, self.max_listed) for kind in kinds]
        # Else all processes are asked at the next tick.
        if FIGURES.startswith(prefix) and self._state.process.count == 1:
            session.link.charge(limits.WORK_ROW * (8 + min(len(self._state.services), limits.MAX_LISTED)))
            session.send_publication(_message(FIGURES, self._figures.figures()))
        if len(self.greeting) == 1:
            self.greet_some()

    def greet_some(self) -> None:
        """Sends one turn's worth of states to new subscribers."""
        room = limits.LISTING_ROWS
        for greeted, kinds in list(self.greeting.items()):
            session = greeted[0]
            while kinds and room > 0:
                row = next(kinds[0], None)
                if row is None:
                    del kinds[0]
                else:
                    room -= 1
                    session.link.charge(limits.WORK_ROW)
                    session.send_publication(_message(*row))
            if not kinds:
                del self.greeting[greeted]
            if room <= 0:
                return

    def unsubscribed(self, session: Session, prefix: bytes) -> None:
        self.greeting.pop((session, prefix), None)

    def _workers(self, prefix: bytes) -> "Iterator[tuple[bytes, Row]]":
        for worker in list(self._state.workers):
            topic = b"monitor.worker.w%d" % worker.number
            if worker.alive and topic.startswith(prefix):
                state = states.of_worker(self._state, worker)
                yield topic, self._row(WORKER, f"w{worker.number}", worker.session.protocol, state)

    def _services(self, prefix: bytes) -> "Iterator[tuple[bytes, Row]]":
        for name, service in list(self._state.services.items()):
            topic = b"monitor.service." + name
            if topic.startswith(prefix) and self._state.services.get(name) is service:
                state = states.of_service(self._state, service)
                yield topic, self._row(SERVICE, text(name), _protocols(service), state)

    def _catalogued(self, prefix: bytes) -> "Iterator[tuple[bytes, Row]]":
        for name, entry in list(self._catalog.entries.items()):
            topic = b"monitor.service." + name.encode()
            if topic.startswith(prefix):
                yield topic, self._row(SERVICE, name, "dbp", PeerState(entry.state, entry.since, entry.cause))

    def _clients(self, prefix: bytes) -> "Iterator[tuple[bytes, Row]]":
        for session in list(self._state.sessions):
            topic = b"monitor.client.c%d" % session.number
            if topic.startswith(prefix) and not session.disconnected:
                yield topic, self._row(CLIENT, f"c{session.number}", session.protocol, states.of_client(session))

    # --- counting ----------------------------------------------------------------------------------------------------------

    def fold(self) -> None:
        """Sorts finished requests into the histograms. Called when ``fold_at`` has passed, so that few are pending."""
        self.fold_at = self._state.now + limits.MONITOR_TICK
        self._find_frequent()
        for tally in self.tallies.values():
            tally.fold()

    def _find_frequent(self) -> None:
        now = self._state.now
        if now >= self._found + limits.MONITOR_TICK / 2:  # ``fold`` and ``tick`` may follow each other closely
            self._found = now
            self.frequent = [tally for tally in self.tallies.values() if tally.is_frequent()]

    def fold_frequent(self) -> None:
        """Once per turn: folds the durations of services with many requests, so that one turn does not fold those of a whole second."""
        for tally in self.frequent:
            if len(tally.fresh) >= limits.FOLD_FREQUENT:
                tally.fold()

    def tick(self) -> None:
        """Called once a second. Rates cover the time between the last two calls."""
        now = self._state.now
        self.fold_at = now + limits.MONITOR_TICK
        self._figures.span = now - self.ticked
        self.ticked = now
        self._find_frequent()
        for tally in self.tallies.values():
            tally.turn_over()
        subscribers = [subscriber for subscriber in self._subscriptions.match(FIGURES) if not subscriber.is_sibling]
        if subscribers and self._state.process.bridges and self.gather is not None:
            self.gather(self._send_figures)
        elif subscribers:
            self._send_figures(json.dumps(self._figures.figures()).encode())

    def _send_figures(self, content: bytes) -> None:
        message = Publication(FIGURES, join([FIGURES, content]))
        for subscriber in self._subscriptions.match(FIGURES):
            if not subscriber.is_sibling:
                subscriber.send_publication(message)


def _message(topic: bytes, row: Row) -> Publication:
    return Publication(topic, join([topic, json.dumps(row).encode()]))


def text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _protocols(service: Service) -> str:
    return ",".join(sorted({worker.session.protocol for worker in service.workers}))
