"""Publishers and subscribers: PUB and XPUB peers publish to the broker, SUB and XSUB peers subscribe to it (RFC 29)."""

from polydomo.errors import ProtocolViolation
from polydomo.limits import MAX_SUBSCRIPTIONS, MAX_TOPIC
from polydomo.protocols.verbs import Session
from polydomo.wire.frames import MORE, Body, bounds, cut, head, split
from polydomo.wire.mechanism import command
from polydomo.wire.zmtp import ZmtpLink


class SubscriberSession(Session):
    """A SUB or XSUB peer. 3.1 subscribes with commands, 3.0 and 2.0 with messages whose first byte is 01 or 00."""

    protocol = "sub"
    count = 0  # subscriptions it holds

    def on_command(self, name: bytes, data: bytes) -> None:
        self._change(name == b"SUBSCRIBE", data)

    def on_message(self, data: bytes, start: int, end: int) -> None:
        frames = split(data[start:end])
        if len(frames) != 1 or frames[0][:1] not in (b"\x00", b"\x01"):
            return  # XSUB may send messages of its own upstream; nobody here has asked for them
        self._change(frames[0][:1] == b"\x01", frames[0][1:])

    def _change(self, subscribe: bool, prefix: bytes) -> None:
        if len(prefix) > MAX_TOPIC or (subscribe and self.count >= MAX_SUBSCRIPTIONS):
            self.link.violation(ProtocolViolation(f"over {MAX_SUBSCRIPTIONS} subscriptions, or a prefix over {MAX_TOPIC} bytes"))
        elif subscribe:
            self.count += 1
            self.broker.subscribe(self, prefix)
        elif self.broker.unsubscribe(self, prefix):
            self.count -= 1

    def send_published(self, topic: bytes, body: Body) -> None:
        self.link.send(head(len(topic), bool(body)) + topic, body)


class PublisherSession(Session):
    """A PUB or XPUB peer: we subscribe to everything it has, and pass it on."""

    protocol = "pub"

    def on_open(self) -> None:
        link = self.link
        if isinstance(link, ZmtpLink) and link.version >= (3, 1):
            link.send(command(b"SUBSCRIBE"))
        else:
            link.send(b"\x00\x01\x01")

    def on_message(self, data: bytes, start: int, end: int) -> None:
        topic_at, after, flags = bounds(data, start)
        if after - topic_at <= MAX_TOPIC:
            self.broker.publish(self, data[topic_at:after], cut(data, after, end) if flags & MORE else b"")
        else:
            self.broker.violated(self, f"topic of {after - topic_at} bytes")
