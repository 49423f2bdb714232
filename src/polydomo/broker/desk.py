"""The desk: what is published and who subscribed, log records, and the catalog of services that registered themselves."""

from polydomo.broker import logs, reserved
from polydomo.broker.catalog import Entry
from polydomo.broker.crossing import Crossing
from polydomo.broker.ledger import number_of
from polydomo.protocols.verbs import LATE, Publication, Session
from polydomo.wire.frames import Body, flat, frame, head

RESERVED_TOPIC = b"monitor."  # what the broker tells of itself; nobody else may publish there


class Desk(Crossing):
    __slots__ = ()

    def publish(self, session: Session, topic: bytes, body: Body) -> int:
        if topic.startswith(RESERVED_TOPIC):
            self.recorder.refused(session, f"topics under {RESERVED_TOPIC.decode()} are the broker's own")
            return 0
        if topic.startswith(logs.TOPIC):
            return self._log(session, topic, body)
        if self._wants_messages:
            self.recorder.published(session, topic, body)
        return self.announce(topic, body)

    def _log(self, session: Session, topic: bytes, body: Body) -> int:
        """A log record: it is kept in the ring of records, not as a value, and subscribers get it with the request it belongs to."""
        try:
            record = logs.read(topic, flat(body), self.now + self.wall)
        except ValueError as error:
            self.violated(session, f"a log record under {topic[:64]!r}: {error}")
            return 0
        record.request = number_of(record.attempt.encode(), self._requests)
        self.logs.add(record)
        self.recorder.log_record(session, record)
        return self.announce(topic, frame(record.content, False), keep=False)

    def relay(self, session: Session, topic: bytes, body: Body, origin: bytes, number: int) -> None:
        if topic.startswith(RESERVED_TOPIC) or not self.first_seen(origin, topic, number):
            return
        if not topic.startswith(logs.TOPIC):
            self.announce(topic, body, True, origin, number, session)
            return
        try:
            record = logs.read(topic, flat(body), self.now + self.wall)
        except ValueError as error:
            self.violated(session, f"a log record under {topic[:64]!r}: {error}")
            return
        record.broker = origin.decode()
        self.logs.add(record)
        self.recorder.log_record(session, record)
        self.announce(topic, frame(record.content, False), False, origin, number, session)

    def announce(
        self,
        topic: bytes,
        body: Body,
        keep: bool = True,
        origin: bytes = b"",
        number: int = 0,
        via: "Session | None" = None,
    ) -> int:
        """A message to every subscriber of the topic but ``via``; it becomes the topic's last value. One without a body is no value, and
        ends the one there was. Returns how many it reached."""
        if not number:
            self.publications += 1
            number = self.publications
        publication = Publication(topic, head(len(topic), bool(body)) + topic + body, origin, number)
        values = self.values
        kept = keep and bool(body) and values.put(publication)
        if not body:
            values.clear(topic)
        subscribers = self.subscriptions.match(topic)
        for subscriber in subscribers:
            if subscriber is not via and not (subscriber.late and kept and values.late[subscriber].expects(topic)):
                subscriber.send_message(publication)
        return len(subscribers)

    def subscribe(self, session: Session, prefix: bytes) -> None:
        if self.subscriptions.add(session, prefix):
            self.monitor.greet(session, prefix)
            self.values.welcome(session, prefix, self.subscriptions)

    def unsubscribe(self, session: Session, prefix: bytes) -> bool:
        if not self.subscriptions.remove(session, prefix):
            return False
        if not self.subscriptions.has(session, prefix):
            self.values.unwelcome(session, prefix)
        return True

    def last_values(self, prefix: bytes, most: int) -> list[bytes]:
        return [value.message for value in self.values.under(prefix, most)]

    def enlist(self, session: Session, name: str, address: str, info: "dict[str, object]", beat: float) -> str:
        return self._catalogued(self.catalog.enlist(self.now, name, address, info, beat, session))

    def amend(self, session: Session, name: str, address: str, changes: "dict[str, object]") -> str:
        return self._catalogued(self.catalog.amend(self.now, name, address, changes, session))

    def beaten(self, name: str, address: str) -> bool:
        known = self.catalog.beaten(self.now, name, address)
        self._catalogued("")
        return known

    def delist(self, name: str, address: str, why: str) -> bool:
        known = self.catalog.delist(self.now, name, address, why)
        self._catalogued("")
        return known

    def beaten_by_datagram(self, name: str, address: str) -> None:
        self.catalog.beaten_by_datagram(self.now, name, address)
        self._catalogued("")

    def by_datagram(self, name: str) -> bool:
        return self.catalog.by_datagram(self.now, name)

    def _catalogued(self, answer: str) -> str:
        if self.catalog.changed:
            self._catalog_changed()
        return answer

    def lookup(self, name: str) -> "dict[str, object] | None":
        return self.catalog.lookup(name) or reserved.foreign(self).get(name)

    def directory(self) -> "dict[str, dict[str, object]]":
        return {**reserved.foreign(self), **self.catalog.directory()}

    def _catalog_changed(self) -> None:
        changed = self.catalog.changed
        self.catalog.changed = []
        for entry in changed:
            self.monitor.catalogued(entry)
            if entry.state == LATE and entry.datagram:
                # "In the event of a missing beat, heartbeats will switch over to reliable TCP connections"
                self.probe(entry)

    def probe(self, entry: Entry) -> None:
        """Asks the service itself, over the connection that registered it, if there still is one."""
        if entry.session is not None and not entry.session.over:
            entry.session.probe(entry.name)
