"""Publishing: topics, their subscribers and last values, and the log records that services publish under ``log.``."""

from itertools import islice
from typing import Protocol

from polydomo.broker import sessions
from polydomo.broker.cluster.processes import owner_of
from polydomo.broker.guard.access import Access
from polydomo.broker.guard.rules import PUBLISH
from polydomo.broker.interfaces import SessionListener
from polydomo.broker.requests import request_ids
from polydomo.broker.requests.acceptance_times import AcceptanceTimes
from polydomo.broker.requests.request_names import request_id, request_name
from polydomo.broker.requests.tokens import number_of
from polydomo.broker.reserved_names import MONITOR
from polydomo.broker.state import State
from polydomo.broker.topics import logs
from polydomo.broker.topics.last_values import LastValues
from polydomo.broker.topics.logs import LogRecord, LogRecords
from polydomo.broker.topics.relayed import RelayedPublications
from polydomo.broker.topics.subscriptions import Subscriptions
from polydomo.limits import MAX_LISTED, MAX_PROCESSES, PROCESS_NUMBERS, WORK_PUBLISH, WORK_RECORD, WORK_SUBSCRIBE
from polydomo.model.records import Publication, Session
from polydomo.wire.close_reason import CloseReason
from polydomo.wire.frames import Body, flat, frame, head


class Greeter(Protocol):
    """Sends new subscribers what they should have besides the last values (``observe.monitor``)."""

    def send_current(self, session: Session, prefix: bytes) -> None:
        raise NotImplementedError

    def unsubscribed(self, session: Session, prefix: bytes) -> None:
        raise NotImplementedError


class Publishing(SessionListener):
    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access
        self.greeter: Greeter | None = None
        self.subscriptions = Subscriptions(access.hears)
        self.last_values = LastValues(
            state.policy.max_values,
            min(state.policy.max_value_bytes, state.policy.max_memory // 4 or state.policy.max_value_bytes),
            access.hears,
        )
        self.log_records = LogRecords()
        self.relayed = RelayedPublications(state, self.last_values)
        self.published = 0  # total number of messages

    def publish(self, session: Session, topic: bytes, body: Body) -> int:
        state = self._state
        if topic.startswith(MONITOR):
            state.recorder.refused(session, f"topics under {MONITOR.decode()} are reserved for the broker")
            return 0
        if self._access.denial(session, PUBLISH, topic):
            return 0
        if topic.startswith(logs.TOPIC):
            record = self._read_log_record(session, topic, body)
            if record is None:
                return 0
            session.link.charge(WORK_RECORD + (record.size >> 6))
            if not session.is_sibling and self._passed_on(topic, record, body):
                return 0
            self._name_request(record)
            return self._announce_log_record(session, topic, record)
        if state.records_messages:
            state.recorder.published(session, topic, body)
        reached = self.announce(topic, body)
        session.link.charge(WORK_PUBLISH + reached)
        return reached

    def _passed_on(self, topic: bytes, record: LogRecord, body: Body) -> bool:
        """Whether the record belongs to a request of another process of this broker, which gets it instead."""
        if self._state.process.count == 1 or not record.attempt or record.request_id:
            return False
        owner = owner_of(self._state, number_of(record.attempt.encode(), PROCESS_NUMBERS * MAX_PROCESSES))
        if owner is None:
            return False
        owner.session.send_to_sibling(b"LOG", [topic, flat(body)])
        return True

    def relay(self, session: Session, topic: bytes, body: Body, origin: bytes, number: int) -> None:
        """Handles a message that was published at another broker."""
        if topic.startswith(MONITOR):
            return
        if not session.is_sibling and self._access.denial(session, PUBLISH, topic):
            session.link.charge(WORK_PUBLISH)
            return
        if not self.relayed.first_seen(session, origin, topic, number):
            return
        if not topic.startswith(logs.TOPIC):
            reached = self.announce(topic, body, True, origin, number, session)
            session.link.charge(WORK_PUBLISH + reached)
            return
        session.link.charge(WORK_RECORD)
        record = self._read_log_record(session, topic, body)
        if record is not None:
            record.broker = origin.decode()
            if record.request_id:
                record.request = request_ids.parse(record.request_id).number
            self._announce_log_record(session, topic, record, origin, number, session)

    def _read_log_record(self, session: Session, topic: bytes, body: Body) -> LogRecord | None:
        try:
            return logs.read(topic, flat(body), self._state.now + self._state.wall)
        except ValueError as error:
            sessions.violated(self._state, session, f"a log record under {topic[:64]!r}: {error}")
            return None

    def _name_request(self, record: LogRecord) -> None:
        """The number and id of the request that a record belongs to. The id contains the acceptance time, which is known for requests
        that a worker holds and for recently finished ones. Finished requests are remembered from the first such record on."""
        state = self._state
        if record.request_id:
            record.request = request_ids.parse(record.request_id).number
            return
        record.request = number = number_of(record.attempt.encode(), state.newest_request)
        if not number:
            return
        if state.acceptance_times is None:
            state.acceptance_times = AcceptanceTimes()
        service = state.services.get(record.service.encode())
        token = record.attempt.encode()
        for worker in islice(service.workers, MAX_LISTED) if service is not None else ():
            request = worker.held.get(token)
            if request is not None:
                record.request_id = request_name(state, request)
                return
        accepted = state.acceptance_times.accepted(number)
        if accepted is not None:
            record.request_id = request_id(state, number, accepted)

    def _announce_log_record(
        self,
        session: Session,
        topic: bytes,
        record: LogRecord,
        origin: bytes = b"",
        number: int = 0,
        via: "Session | None" = None,
    ) -> int:
        """Log records are kept in a separate ring, not as last values."""
        self.log_records.add(record)
        if via is None or not via.is_sibling:  # else the journal of the broker has it
            self._state.recorder.log_record(session, record)
        return self.announce(topic, frame(record.content, False), False, origin, number, via)

    def announce(
        self,
        topic: bytes,
        body: Body,
        keep: bool = True,
        origin: bytes = b"",
        number: int = 0,
        via: "Session | None" = None,
    ) -> int:
        """Sends a message to every subscriber of the topic except ``via``, and stores it as the topic's last value. A message without a
        body removes the last value. Returns the number of subscribers."""
        if not number:
            self.published += 1
            number = self.published
        publication = Publication(topic, head(len(topic), bool(body)) + topic + body, origin, number)
        values = self.last_values
        kept = keep and bool(body) and values.put(publication)
        if not body:
            values.clear(topic)
        subscribers = self.subscriptions.match(topic)
        for subscriber in subscribers:
            if via is not None and (subscriber is via or (via.is_sibling and subscriber.is_sibling)):
                continue  # the processes of a broker are all joined to each other: the publisher's own has sent it
            if not (subscriber.catching_up and kept and values.catching_up[subscriber].expects(topic)):
                subscriber.send_publication(publication)
        return len(subscribers)

    def subscribe(self, session: Session, prefix: bytes) -> None:
        session.link.charge(WORK_SUBSCRIBE)
        if self._access.subscription_denial(session, prefix):
            return
        if self.subscriptions.add(session, prefix):
            if self.greeter is not None:
                self.greeter.send_current(session, prefix)
            self.last_values.subscribed(session, prefix, self.subscriptions)

    def unsubscribe(self, session: Session, prefix: bytes) -> bool:
        session.link.charge(WORK_SUBSCRIBE)
        if not self.subscriptions.remove(session, prefix):
            return False
        if not self.subscriptions.has(session, prefix):
            self.last_values.unsubscribed(session, prefix)
            if self.greeter is not None:
                self.greeter.unsubscribed(session, prefix)
        return True

    def closed(self, session: Session, reason: CloseReason) -> None:
        self.subscriptions.drop(session)
        self.last_values.forget(session)
