"""Publishers and subscribers: PUB and XPUB peers publish to the broker, SUB and XSUB peers subscribe to it (RFC 29).

Messages are forwarded unchanged, topic first. Messages for a slow subscriber are queued up to a limit. Beyond it, the subscriber misses
messages (``skip_slow``) or is disconnected, so that it notices: libzmq reconnects automatically and gets the last values again.
"""

from polydomo.errors import ProtocolViolation
from polydomo.limits import COST_SUBSCRIPTION, MAX_SUBSCRIPTIONS, MAX_TOPIC
from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Publication
from polydomo.model.session import ProtocolSession
from polydomo.protocols.pubsub.backlog import Backlog
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import MORE, bounds, cut, split
from polydomo.wire.link import PAUSE_NOT_READING, Link
from polydomo.wire.security.mechanism import command
from polydomo.wire.zmtp.link import ZmtpLink


class SubscriberSession(ProtocolSession):
    """A SUB or XSUB peer. 3.1 subscribes with commands, 3.0 and 2.0 with messages whose first byte is 01 or 00."""

    protocol = "sub"

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(broker, link)
        self.max_subscriptions = MAX_SUBSCRIPTIONS
        self.count = 0  # subscriptions it holds
        self.backlog = Backlog(self, link.send)

    def held(self) -> int:
        return super().held() + self.backlog.size + COST_SUBSCRIPTION * self.count

    def on_command(self, name: bytes, data: bytes) -> None:
        self._change(name == b"SUBSCRIBE", data)

    def on_message(self, data: bytes, start: int, end: int) -> None:
        frames = split(data[start:end])
        if len(frames) != 1 or frames[0][:1] not in (b"\x00", b"\x01"):
            return  # XSUB may send messages upstream; they are ignored
        self._change(frames[0][:1] == b"\x01", frames[0][1:])

    def _change(self, subscribe: bool, prefix: bytes) -> None:
        if len(prefix) > MAX_TOPIC or (subscribe and self.count >= self.max_subscriptions):
            self.link.violation(
                ProtocolViolation(f"over {self.max_subscriptions} subscriptions, or a prefix over {MAX_TOPIC} bytes")
            )
        elif subscribe:
            self.count += 1
            self.broker.subscribe(self, prefix)
        elif self.broker.unsubscribe(self, prefix):
            self.count -= 1

    # --- output ----------------------------------------------------------------------------------------------------------

    def send_publication(self, publication: Publication) -> None:
        if self.catching_up or self.backlog.messages or self.link.pauses & PAUSE_NOT_READING:
            self.backlog.add(publication.message, self.broker.tuning.skip_slow)
        else:
            self.link.send(publication.message)

    def send_last_value(self, publication: Publication) -> None:
        self.link.send(publication.message)

    def can_send_values(self) -> bool:
        return not self.link.pauses & PAUSE_NOT_READING

    def on_caught_up(self) -> None:
        self.backlog.release()

    def on_writable(self) -> None:
        self.backlog.release()


class PublisherSession(ProtocolSession):
    """A PUB or XPUB peer. The broker subscribes to ``wanted``, or to everything if the peer connected to the broker, and forwards the
    messages."""

    protocol = "pub"
    publishes = True

    def __init__(self, broker: BrokerApi, link: Link, wanted: "tuple[bytes, ...]" = (b"",)) -> None:
        super().__init__(broker, link)
        self.wanted = wanted

    def on_open(self) -> None:
        link = self.link
        if link.peer_is_broker:
            # Two brokers that subscribe to each other, or one that subscribes to itself, would forward each message forever.
            link.close(
                CloseCause.REFUSED, "the publisher is a broker; connect brokers with a bridge (bridge.to)", abort=True
            )
            return
        new = isinstance(link, ZmtpLink) and link.version >= (3, 1)
        for prefix in self.wanted:
            if new:
                link.send(command(b"SUBSCRIBE", prefix))
            else:
                link.send(b"\x00" + bytes((1 + len(prefix),)) + b"\x01" + prefix)

    def on_message(self, data: bytes, start: int, end: int) -> None:
        topic_at, after, flags = bounds(data, start)
        if after - topic_at > MAX_TOPIC:
            self.broker.report_violation(self, f"topic of {after - topic_at} bytes")
            return
        topic = data[topic_at:after]
        if topic.startswith(self.wanted):
            self.broker.publish(self, topic, cut(data, after, end) if flags & MORE else b"")
