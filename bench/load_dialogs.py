"""The messages of the protocols that the load speaks over ZMTP."""

from polydomo.wire.frames import join

Frames = list[bytes]

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

    def answer(self, frames: Frames) -> bytes:
        """The worker's reply to a message; b"" if the message needs none."""
        raise NotImplementedError

    def is_reply(self, frames: Frames) -> bool:
        return True


class Mdp1(Dialog):
    hello = join([b"", b"MDPW01", b"\x01", b"echo"])
    beat = join([b"", b"MDPW01", b"\x04"])

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", b"MDPC01", b"echo", body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"", b"MDPW01", b"\x03", *frames[3:]]) if frames[2] == b"\x02" else b""


class Mdp2(Dialog):
    hello = join([b"MDPW02", b"\x01", b"echo"])
    beat = join([b"MDPW02", b"\x05"])

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"MDPC02", b"\x01", b"echo", body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"MDPW02", b"\x04", *frames[2:]]) if frames[1] == b"\x02" else b""


class Mdx(Dialog):
    hello = join([b"MDXW01", b"\x01", b"echo"])
    beat = join([b"MDXW01", b"PING"])

    def ask(self, credit: int) -> bytes:
        return join([b"MDXW01", b"CREDIT", b"%d" % credit, b"%d" % credit]) if credit > 1 else b""

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"MDXC01", b"\x01", b"echo", b"%d" % number, body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"MDXW01", b"\x04", *frames[2:]]) if frames[1] == b"\x02" else b""


class Dcp(Dialog):
    hello = join([b"", DCP, b"\x01", b"echo"])

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", DCP, b"\x04", b"echo", b"", b"%d" % number, b"", body])

    def answer(self, frames: Frames) -> bytes:
        return join([b"", DCP, b"\x05", *frames[4:]]) if frames[2] == b"\x04" else b""


class Emqp(Dialog):
    hello = join([b"", EMQP, b"INFORM", b"i", b"echo", b"worker"]) + join([b"", EMQP, b"READY", b"r"])
    beat = join([b"", EMQP, b"HEARTBEAT", b"h", b"0"])

    def ask(self, credit: int) -> bytes:
        return join([b"", EMQP, b"READY", b"r"]) * (credit - 1)

    def request(self, number: int, body: bytes) -> bytes:
        return join([b"", EMQP, b"REQUEST", b"%d" % number, b"echo", b"reply-requested", body])

    def answer(self, frames: Frames) -> bytes:
        if frames[2] != b"REQUEST":
            return b""
        return join([b"", EMQP, b"REPLY", b"n", frames[6], frames[3]]) + join([b"", EMQP, b"READY", b"r"])


DIALOGS: dict[str, type[Dialog]] = {"mdp1": Mdp1, "mdp2": Mdp2, "mdx": Mdx, "dcp": Dcp, "emqp": Emqp}
