"""The tap: publishes messages live under ``monitor.tap.``. It costs nothing without subscribers.

With a subscriber, events are collected as for the journal, at most ``TAP_ROWS`` per tick, and published as JSON under the service's name.
Further events are only counted, so that a tap cannot slow down a busy broker. If the broker has several processes, a subscriber at one of
them gets the events of all.
"""

import json
from typing import Any

from polydomo import limits
from polydomo.broker.broker import Broker
from polydomo.broker.cluster.processes import send_event
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.requests.request_names import request_id
from polydomo.broker.reserved_names import ENDED, TAP
from polydomo.journal import schema
from polydomo.journal.levels import Levels
from polydomo.journal.recording.chunk import NO_PEER, Peer, Run
from polydomo.journal.recording.live import LiveRequests
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.recording.tee import Tee
from polydomo.model.json_form import iso_time
from polydomo.model.name_patterns import PatternMap
from polydomo.model.records import Request, Session, Worker
from polydomo.wire.frames import Body, frame

NUMBERED = {"connection": "c", "client": "c", "worker": "w"}  # columns that number connections and workers
SKIPPED = "skipped"  # the event with the number of skipped events

Row = dict[str, Any]


class Tap:
    """Adds a recorder to the broker's while there are subscribers. ``tick`` is called by the loop."""

    def __init__(self, broker: Broker, recorder: Recorder, run: Run, bodies: "PatternMap[bool] | None" = None) -> None:
        self._broker = broker
        self._recorder = recorder
        self._run = run
        self._bodies = bodies
        self._watcher: Watcher | None = None
        self._live: LiveRequests | None = None

    @property
    def watched(self) -> bool:
        return self._watcher is not None

    def tick(self) -> None:
        siblings = self._broker.siblings
        subscriptions = self._broker.publishing.subscriptions
        tap, live = bool(subscriptions.under(TAP)), bool(subscriptions.under(ENDED))
        siblings.set_tap(tap)
        siblings.set_live(live)
        if self._watcher is not None:
            self._show(self._watcher)
        if self._live is not None:
            self._show_ended(self._live)
        tap, live = tap or bool(siblings.tapping), live or bool(siblings.watching)
        if (tap, live) == (self._watcher is not None, self._live is not None):
            return
        recorder = self._recorder
        if not tap:
            self._watcher = None
        elif self._watcher is None:
            self._watcher = Watcher(self._broker, self._run, self._bodies)
        if not live:
            self._live = None
        elif self._live is None:
            self._live = LiveRequests(self._broker)
        for more in (self._watcher, self._live):
            if more is not None:
                recorder = Tee(recorder, more)
        self._broker.record_to(recorder)

    def _show_ended(self, live: LiveRequests) -> None:
        row = live.take()
        if row is None:
            return
        for worker in self._broker.siblings.watching:
            send_event(worker.session, ENDED, row)
        body = frame(json.dumps(row).encode(), False)
        for session in self._broker.publishing.subscriptions.match(ENDED):
            session.send_published(ENDED, body)

    def _show(self, watcher: "Watcher") -> None:
        subscriptions = self._broker.publishing.subscriptions
        siblings = self._broker.siblings
        for row in watcher.take():
            topic = TAP + row["service"].encode("utf-8", "backslashreplace")
            for worker in siblings.tapping:
                send_event(worker.session, topic, row)
            body = frame(json.dumps(row).encode(), False)
            for session in subscriptions.match(topic):
                session.send_published(topic, body)


class Watcher(JournalRecorder):
    """Collects the events of one tick."""

    def __init__(self, broker: Broker, run: Run, bodies: "PatternMap[bool] | None") -> None:
        super().__init__(run, Levels(schema.MESSAGES), bodies=bodies, chunk_rows=1 << 60)
        self.attach(broker)
        self.skipped = 0
        self._room = limits.TAP_ROWS
        self._begun = 0
        self._accepted = {request.number: request.accepted for peer in broker.sessions for request in peer.requests}
        self._just_ended: list[int] = []  # numbers of requests that ended since the last ``take``

    def take(self) -> list[Row]:
        """The events since the last call, ready for JSON, with the number of skipped ones."""
        rows = [self._plain(row) for row in self.rows((schema.MESSAGES,))]
        if self.skipped:
            time = iso_time(self.run.wall + self._broker.now)
            rows.append({"event": SKIPPED, "service": "", "skipped": self.skipped, "time": time})
        for number in self._just_ended:
            self._accepted.pop(number, None)
        self._just_ended.clear()
        self.skipped = 0
        self.peers.forget(self.peers.take_closed())
        self._open()
        self._begun = self._seq
        return rows

    def _plain(self, row: Row) -> Row:
        """The non-empty columns of a row, in the common JSON format (see ``json_form``); payloads as text."""
        made = {name: value for name, value in row.items() if value or name in ("time", "event", "service")}
        made["time"] = iso_time(row["time"] / 1e6)
        accepted = self._accepted.get(row["number"])
        if accepted is not None:
            made["request"] = request_id(self._broker, row["number"], accepted)
        for name, letter in NUMBERED.items():
            if name in made:
                made[name] = f"{letter}{made[name]}"
        if "size" in made:
            made["size_bytes"] = made.pop("size")
        if "body" in made:
            made["body"] = bytes(made["body"]).decode("latin-1")
        return made

    def who(self, connection: int) -> Peer:
        known = super().who(connection)
        if known is not NO_PEER:
            return known
        for session in self._broker.sessions:  # it connected before the tap started
            if session.number == connection:
                self.peers.add(session)
                return super().who(connection)
        return NO_PEER

    def _full_up(self) -> bool:
        if self._seq - self._begun < self._room:
            return False
        self.skipped += 1
        return True

    def accepted(self, request: Request, queued: bool, queue_length: int) -> None:
        self._accepted[request.number] = request.accepted
        if not self._full_up():
            super().accepted(request, queued, queue_length)

    def dispatched(self, request: Request, worker: Worker) -> None:
        if not self._full_up():
            super().dispatched(request, worker)

    def ended(self, request: Request) -> None:
        self._just_ended.append(request.number)
        if not self._full_up():
            super().ended(request)
        else:
            self._lost.pop(request.number, None)
            self._first_service.pop(request.number, None)
            self._jobs.pop(request.number, None)
            self._body = b""

    def partial(self, request: Request, worker: Worker, size: int) -> None:
        if not self._full_up():
            super().partial(request, worker, size)

    def credit_added(self, worker: Worker, count: int) -> None:
        if not self._full_up():
            super().credit_added(worker, count)

    def window_set(self, worker: Worker, change: int, runs: int) -> None:
        if not self._full_up():
            super().window_set(worker, change, runs)

    def published(self, session: Session, topic: bytes, body: Body) -> None:
        if not topic.startswith((TAP, ENDED)) and not self._full_up():
            super().published(session, topic, body)
