"""The messages of the protocols that the load speaks over ZMTP.

The generator shares the machine with the broker, and a slow generator gives the broker smaller batches. So it does as little as it can: a
worker of MDP and MDX copies a request behind the head of its reply, without looking into it.
"""

from polydomo.wire.frames import frame, join, more, split

DCP = b"DGBX\x01"
EMQP = b"eMQP/1.0"


class Dialog:
    """The messages of a client and a worker of one protocol, without the connection."""

    hello = b""  # a worker's first bytes after the handshake
    beat = b""  # a worker's heartbeat

    def ask(self, credit: int) -> bytes:
        """A worker asks for ``credit`` requests at a time; ``hello`` has asked for one."""
        return b""

    def request(self, number: int, body: bytes) -> bytes:
        raise NotImplementedError

    def answer(self, message: bytes) -> bytes:
        """The worker's reply to a message; b"" if the message needs none."""
        raise NotImplementedError


class Copying(Dialog):
    """A reply differs from its request in the first frames only."""

    call_head = b""  # of a client's request
    request_head = b""  # of a request at the worker
    reply_head = b""  # of the worker's reply

    def answer(self, message: bytes) -> bytes:
        head = self.request_head
        return self.reply_head + message[len(head) :] if message.startswith(head) else b""


class Mdp1(Copying):
    hello = join([b"", b"MDPW01", b"\x01", b"echo"])
    beat = join([b"", b"MDPW01", b"\x04"])
    call_head = more([b"", b"MDPC01", b"echo"])
    request_head = more([b"", b"MDPW01", b"\x02"])
    reply_head = more([b"", b"MDPW01", b"\x03"])

    def request(self, number: int, body: bytes) -> bytes:
        return self.call_head + frame(body, False)


class Mdp2(Copying):
    hello = join([b"MDPW02", b"\x01", b"echo"])
    beat = join([b"MDPW02", b"\x05"])
    call_head = more([b"MDPC02", b"\x01", b"echo"])
    request_head = more([b"MDPW02", b"\x02"])
    reply_head = more([b"MDPW02", b"\x04"])

    def request(self, number: int, body: bytes) -> bytes:
        return self.call_head + frame(body, False)


class Mdx(Copying):
    hello = join([b"MDXW01", b"\x01", b"echo"])
    beat = join([b"MDXW01", b"PING"])
    call_head = more([b"MDXC01", b"\x01", b"echo"])
    request_head = more([b"MDXW01", b"\x02"])
    reply_head = more([b"MDXW01", b"\x04"])

    def ask(self, credit: int) -> bytes:
        return join([b"MDXW01", b"CREDIT", b"%d" % credit, b"%d" % credit]) if credit > 1 else b""

    def request(self, number: int, body: bytes) -> bytes:
        return self.call_head + frame(b"%d" % number, True) + frame(body, False)


class Dcp(Dialog):
    hello = join([b"", DCP, b"\x01", b"echo"])

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", DCP, b"\x04", b"echo", b"", b"%d" % number, b"", body])

    def answer(self, message: bytes) -> bytes:
        frames = split(message)
        return join([b"", DCP, b"\x05", *frames[4:]]) if frames[2] == b"\x04" else b""


class Emqp(Dialog):
    hello = join([b"", EMQP, b"INFORM", b"i", b"echo", b"worker"]) + join([b"", EMQP, b"READY", b"r"])
    beat = join([b"", EMQP, b"HEARTBEAT", b"h", b"0"])

    def ask(self, credit: int) -> bytes:
        return join([b"", EMQP, b"READY", b"r"]) * (credit - 1)

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", EMQP, b"REQUEST", b"%d" % number, b"echo", b"reply-requested", body])

    def answer(self, message: bytes) -> bytes:
        frames = split(message)
        if frames[2] != b"REQUEST":
            return b""
        return join([b"", EMQP, b"REPLY", b"n", frames[6], frames[3]]) + join([b"", EMQP, b"READY", b"r"])


DIALOGS: dict[str, type[Dialog]] = {"mdp1": Mdp1, "mdp2": Mdp2, "mdx": Mdx, "dcp": Dcp, "emqp": Emqp}
