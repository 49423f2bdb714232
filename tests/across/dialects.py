"""The clients and workers of the MDP/0.2 dialects, as their published libraries put them on the wire."""

from polydomo.errors import ProtocolViolation
from polydomo.protocols.ends import Event, Frames
from polydomo.protocols.mdp.ends import Mdp1ClientEnd, Mdp1WorkerEnd, Mdp2ClientEnd, Mdp2WorkerEnd, MdpClientEnd


class Mdp1ReqClientEnd(Mdp1ClientEnd):
    """The Guide's client has a REQ socket, which writes the empty frame itself."""

    socket_type = b"REQ"


class GuidePhpWorkerEnd(Mdp1WorkerEnd):
    """The Guide's PHP worker: no empty frame between the client address and the body of a REPLY."""

    def say(self, command: bytes, rest: Frames) -> None:
        super().say(command, [rest[0], *rest[2:]] if command == b"\x03" else rest)


class GuideDigitsWorkerEnd(Mdp1WorkerEnd):
    """The Guide's C# and Haskell workers: commands are two ASCII digits, in both directions."""

    def say(self, command: bytes, rest: Frames) -> None:
        super().say(b"0%d" % command[0], rest)

    def receive(self, message: Frames) -> list[Event]:
        assert message[2] in (b"02", b"04", b"05"), message  # they read no other form
        return super().receive([*message[:2], bytes((int(message[2]),)), *message[3:]])


class Rfc18ReqClientEnd(MdpClientEnd):
    """RFC 18 through a REQ socket, whose empty frame comes first."""

    protocol = "mdp2"
    socket_type = b"REQ"

    def envelope(self, service: bytes) -> Frames:
        return [b"", b"MDPC02", b"\x01", service]

    def receive(self, message: Frames) -> list[Event]:
        if message[:3] != [b"", b"MDPC02", b"\x03"] or len(message) < 5:
            raise ProtocolViolation("a REQ socket hears one FINAL and nothing else")
        return self.reply(message[3], message[4:], True)


class MajortomoClientEnd(MdpClientEnd):
    """REQUEST is 02, PARTIAL 03 and FINAL 04, and no service stands in the replies."""

    protocol = "mdp2"

    def envelope(self, service: bytes) -> Frames:
        return [b"", b"MDPC02", b"\x02", service]

    def receive(self, message: Frames) -> list[Event]:
        if message[:2] != [b"", b"MDPC02"] or len(message) < 4 or message[2] not in (b"\x03", b"\x04"):
            raise ProtocolViolation("not a PARTIAL or FINAL as majortomo reads them")
        return self.reply(self.service, message[3:], message[2] == b"\x04")


class LibmdpClientEnd(MdpClientEnd):
    """MDP/0.1 in the clothes of 0.2: no command between the client and the broker."""

    protocol = "mdp2"

    def envelope(self, service: bytes) -> Frames:
        return [b"", b"MDPC02", service]

    def receive(self, message: Frames) -> list[Event]:
        if message[:2] != [b"", b"MDPC02"] or len(message) < 4:
            raise ProtocolViolation("not a reply as libmdp reads it")
        return self.reply(message[2], message[3:], True)


class AsciiClientEnd(Mdp2ClientEnd):
    """zmq-mdp2 writes its commands as digits."""

    def envelope(self, service: bytes) -> Frames:
        return [b"MDPC02", b"1", service]

    def receive(self, message: Frames) -> list[Event]:
        if len(message) < 2 or message[1] not in (b"2", b"3"):
            raise ProtocolViolation("a command that is not a digit")
        return super().receive([message[0], bytes((int(message[1]),)), *message[2:]])


class MajortomoWorkerEnd(Mdp2WorkerEnd):
    """RFC 18's commands after an empty frame."""

    header = [b"", b"MDPW02"]


class LibmdpWorkerEnd(Mdp1WorkerEnd):
    """MDP/0.1's commands under MDP/0.2's name: one reply, 03; HEARTBEAT 04, DISCONNECT 05."""

    protocol = "mdp2"
    header = [b"", b"MDPW02"]


class AsciiWorkerEnd(Mdp2WorkerEnd):
    """zmq-mdp2's worker, in digits too."""

    def say(self, command: bytes, rest: Frames) -> None:
        super().say(b"%d" % command[0], rest)

    def receive(self, message: Frames) -> list[Event]:
        if len(message) < 2 or not message[1].isdigit():
            raise ProtocolViolation("a command that is not a digit")
        return super().receive([message[0], bytes((int(message[1]),)), *message[2:]])
