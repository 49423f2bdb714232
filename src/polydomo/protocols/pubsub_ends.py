"""Publishers and subscribers as they speak to a broker (RFC 29): the topic is a message's first frame."""

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
    """It sends everything: the broker subscribes to all topics, and chooses for its subscribers."""

    protocol = "pub"
    socket_type = b"PUB"

    def publish(self, topic: bytes, body: Frames) -> None:
        self.out.append([topic, *body])

    def receive(self, message: Frames) -> list[Event]:
        return []  # a subscription
