"""Publishers and subscribers for programs (RFC 29): the topic is the first frame of a message."""

from polydomo.protocols.ends import ClientEnd, Event, Frames, Published


class SubscriberEnd(ClientEnd):
    protocol = "sub"
    socket_type = b"SUB"

    def subscribe(self, prefix: bytes) -> None:
        self.out.append([b"\x01" + prefix])

    def unsubscribe(self, prefix: bytes) -> None:
        self.out.append([b"\x00" + prefix])

    def receive(self, message: Frames) -> list[Event]:
        return [Published(message[0], message[1:])]


class PublisherEnd(ClientEnd):
    """Sends all messages: the broker subscribes to all topics and selects for its subscribers."""

    protocol = "pub"
    socket_type = b"PUB"

    def publish(self, topic: bytes, body: Frames) -> None:
        self.out.append([topic, *body])

    def receive(self, message: Frames) -> list[Event]:
        return []  # a subscription
