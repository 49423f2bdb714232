"""eMQP for clients and workers, with polydomo, EventMQ's router, or a broker that follows the document.

Messages are sent in EventMQ's form where the two differ, because its router accepts no other; both forms are accepted. Our heartbeats have
no time frame, as in the document: EventMQ's router does not read it, and an end has no clock.
"""

import itertools
import json

from polydomo.errors import ProtocolViolation
from polydomo.limits import EMQP_BEAT, EMQP_MAX_SLOTS, EMQP_PATIENCE, EMQP_WEIGHT
from polydomo.model.jobs.messages import PERMANENT_CODES
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols.emqp import headers as emqp_headers
from polydomo.protocols.emqp.commands import EXPIRED, HEADER
from polydomo.protocols.ends import (
    Cancelled,
    Delivery,
    Dismissed,
    Event,
    Frames,
    HeldParts,
    NumberedClientEnd,
    Reply,
    Revoked,
    WorkerEnd,
)
from polydomo.wire.zmtp.extensions import MAX_DIGITS


class EmqpClientEnd(NumberedClientEnd):
    """A client with any number of concurrent requests, each with its own message id."""

    protocol = "emqp"
    carries_keys = True

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        msgid = self.new_id()
        self.track(key, msgid)
        asked = b"reply-requested"
        if timeout > 0:
            asked += b",timeout:%d" % max(1, round(timeout))
        for name, value in (
            (emqp_headers.IDEMPOTENCY_KEY, options.key),
            (emqp_headers.GROUP, options.group),
            (emqp_headers.NEAR, options.near),
        ):
            if value:
                asked += b",%b:%b" % (name.encode(), value)
        if headers:
            asked += b"," + headers
        self.out.append([b"", HEADER, b"REQUEST", msgid, service, asked, b"".join(body)])

    def publish(self, topic: bytes, message: bytes) -> None:
        """Publishes to all subscribers of a prefix of ``topic``."""
        self.out.append([b"", HEADER, b"PUBLISH", self.new_id(), topic, message])

    def schedule(
        self, queue: bytes, message: bytes, interval: int = -1, cron: bytes = b"", headers: bytes = b"guarantee"
    ) -> None:
        """Asks a scheduler to send ``message`` to ``queue`` every ``interval`` seconds, or, without one, as ``cron`` says."""
        self.out.append([b"", HEADER, b"SCHEDULE", self.new_id(), queue, headers, b"%d" % interval, message, cron])

    def unschedule(self, queue: bytes, message: bytes) -> None:
        """Removes the schedule of the same message."""
        self.out.append([b"", HEADER, b"UNSCHEDULE", self.new_id(), queue, b"", b"-1", message, b""])

    def receive(self, message: Frames) -> list[Event]:
        check(message)
        command = message[2]
        if command == b"HEARTBEAT":
            return []
        if command == b"DISCONNECT" or command == b"KBYE":
            return [Dismissed(command.decode())]
        if command != b"REPLY" or not 5 <= len(message) <= 6:
            raise ProtocolViolation("not an eMQP message to a client")
        # EventMQ's router acknowledges each REQUEST with a REPLY of five frames under an id that is not ours. The document's reply
        # has five frames under our id.
        msgid = message[5] if len(message) == 6 else message[3]
        key = self.settle(msgid)
        return [] if key is None else [Reply(key, [message[4]])]

    def cancellation(self, identity: bytes, expired: bool) -> Frames:
        return [b"", HEADER, b"CANCEL", self.new_id(), identity, *([EXPIRED] if expired else [])]

    def new_id(self) -> bytes:
        self.count += 1
        return b"c%d" % self.count


class EmqpWorkerEnd(WorkerEnd):
    """A worker that sends one READY for each free slot. If it prefetches, and the broker understands it, it names its window instead.

    A request for a queue without workers may be sent to a worker of ``default``; then the job's ``service`` is a name that was not in
    ``open``.
    """

    protocol = "emqp"
    slots = EMQP_MAX_SLOTS
    interval = EMQP_BEAT
    patience = EMQP_PATIENCE

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)  # of messages; a thread that sends a heartbeat may take one
        self.jobs: dict[bytes, Delivery] = {}  # by the id of the REQUEST
        self.parts: dict[bytes, HeldParts] = {}
        self.runs = 0
        self.prefetch = 0  # if not 0, the worker has named its window instead of sending READYs
        self.draining = False
        self.left = False

    def capacity(self) -> int:
        return self.slots if self.agreed.give_back else 1  # a failure must not take other jobs with it

    def open(self, services: list[bytes], slots: int = 1, prefetch: int = 0) -> None:
        queues = json.dumps([[EMQP_WEIGHT, service.decode()] for service in services])
        self.say(b"INFORM", [queues.encode(), b"worker"])
        if prefetch and self.agreed.window:
            self.prefetch = prefetch
            self.grow(slots)
        else:
            self.grow(min(slots + prefetch, self.slots))

    def grow(self, count: int) -> None:
        self.runs += count
        if self.prefetch:
            self.say(b"CREDIT", [b"%d" % (self.runs + self.prefetch), b"%d" % self.runs])
            return
        for _ in range(count):
            self._ready()

    def _ready(self) -> None:
        if not self.draining and not self.prefetch:
            self.say(b"READY", [])

    def receive(self, message: Frames) -> list[Event]:
        if self.left:
            return []
        check(message)
        command = message[2]
        if command == b"REQUEST":
            if len(message) != 7:
                raise ProtocolViolation(f"REQUEST of {len(message)} frames")
            msgid = message[3]
            if msgid in self.jobs:
                raise ProtocolViolation("a second REQUEST under an id that is still held")
            headers = {name: value or "" for name, value in emqp_headers.items(message[5])}
            timeout = emqp_headers.read(message[5]).timeout
            exact = headers.get(emqp_headers.TIMEOUT_MS, "")
            if self.agreed.deadline_jobs and exact.isdigit():
                timeout = int(headers.pop(emqp_headers.TIMEOUT_MS)[:MAX_DIGITS]) / 1000
            delivery = Delivery(message[4], [message[6]], msgid, timeout, headers, msgid)
            delivery.job, delivery.key = headers.get(emqp_headers.JOB, ""), headers.get(emqp_headers.KEY, "")
            self.jobs[msgid] = delivery
            return [delivery]
        if command == b"HEARTBEAT" or command == b"ACK":
            return []
        if command in (b"CANCEL", b"REVOKE") and len(message) == 5:
            unwanted = self.jobs.get(message[4])
            if unwanted is None:
                return []  # its reply is on the way
            return [Cancelled(unwanted) if command == b"CANCEL" else Revoked(unwanted)]
        if command == b"DISCONNECT" or command == b"KBYE":
            self.left = True
            return [Dismissed(command.decode())]
        raise ProtocolViolation("not an eMQP message to a worker")

    def beat(self) -> None:
        self.say(b"HEARTBEAT", [])

    def heartbeat(self) -> Frames | None:
        return None if self.left else self.message(b"HEARTBEAT", [])

    def partial(self, delivery: Delivery, body: Frames) -> None:
        msgid = self.held(delivery)
        if msgid not in self.parts:
            self.parts[msgid] = HeldParts("eMQP")
        self.parts[msgid].add(body)

    def final(self, delivery: Delivery, body: Frames) -> None:
        msgid = self.held(delivery)
        parts = self.parts.pop(msgid, None)
        whole = b"".join(body if parts is None else parts.join(body))
        del self.jobs[msgid]
        self.say(b"REPLY", [whole, msgid])
        self._ready()

    def fail(self, delivery: Delivery, code: str, text: str) -> bool:
        self.held(delivery)
        if self.agreed.fail and code in PERMANENT_CODES:
            self._return(b"FAIL", delivery, code.encode(), text.encode("utf-8", "replace"))
            return False
        if self.agreed.give_back:
            self._return(b"RETURN", delivery)
            return False
        self.close()  # eMQP has no message for failures: disconnecting makes the broker requeue the request
        return True

    def release(self, delivery: Delivery) -> bool:
        if not self.agreed.give_back:
            return False
        self._return(b"RELEASED" if self.agreed.window else b"RETURN", delivery)
        return True

    def keep(self, delivery: Delivery) -> None:
        self.say(b"KEPT", [self.held(delivery)])

    def _return(self, command: bytes, delivery: Delivery, *rest: bytes) -> None:
        msgid = self.held(delivery)
        del self.jobs[msgid]
        self.parts.pop(msgid, None)
        self.say(command, [msgid, *rest])
        self._ready()

    def drain(self) -> None:
        self.draining = True  # no more READY: the worker finishes what it holds
        if self.prefetch:
            self.say(b"CREDIT", [b"0", b"0"])

    def close(self) -> None:
        self.say(b"DISCONNECT", [])
        self.left = True

    def say(self, command: bytes, rest: Frames) -> None:
        if not self.left:
            self.out.append(self.message(command, rest))

    def message(self, command: bytes, rest: Frames) -> Frames:
        return [b"", HEADER, command, b"w%d" % next(self.numbers), *rest]

    def held(self, delivery: Delivery) -> bytes:
        assert isinstance(delivery.ref, bytes)
        if self.jobs.get(delivery.ref) is not delivery:
            raise ValueError("a reply to a request that this worker does not hold")
        return delivery.ref


def check(message: Frames) -> None:
    if len(message) < 4 or message[0] or message[1] != HEADER:
        raise ProtocolViolation("not a message of eMQP/1.0")
