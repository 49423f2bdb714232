"""What published programs mean by MDP, as tables: the bytes they send and expect, over plain pyzmq sockets.

Nothing here imports polydomo: these peers are what is already out there.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    name: str
    label: str  # for people
    empty: bool  # its messages begin with an empty frame
    version: bytes
    request: bytes  # the client's command frame; empty: there is none
    partial: bytes  # and those of its replies
    final: bytes
    names: bool  # replies to the client name the service
    work_partial: bytes  # commands of a worker; empty: it has no partials
    work_final: bytes
    heartbeat: bytes
    disconnect: bytes
    ready: bytes = b"\x01"
    deliver: bytes = b"\x02"

    @property
    def lead(self) -> list[bytes]:
        return [b""] if self.empty else []

    def to_client(self, frames: list[bytes]) -> tuple[bool, list[bytes]]:
        """A reply: whether it is the final one, and its body."""
        at = len(self.lead) + 1
        final = True
        if self.final:
            final = frames[at] == self.final
            at += 1
        return final, frames[at + self.names :]


_RFC18 = {"work_partial": b"\x03", "work_final": b"\x04", "heartbeat": b"\x05", "disconnect": b"\x06"}

MDP1 = Dialect(
    "mdp1", "MDP/0.1", True, b"01", b"", b"", b"", True,
    work_partial=b"", work_final=b"\x03", heartbeat=b"\x04", disconnect=b"\x05",
)  # fmt: skip
RFC18 = Dialect("rfc18", "MDP/0.2", False, b"02", b"\x01", b"\x02", b"\x03", True, **_RFC18)
RFC18_REQ = Dialect("rfc18-req", "MDP/0.2, REQ socket", True, b"02", b"\x01", b"\x02", b"\x03", True, **_RFC18)
MAJORTOMO = Dialect("majortomo", "MDP/0.2 of majortomo", True, b"02", b"\x02", b"\x03", b"\x04", False, **_RFC18)
LIBMDP = Dialect(
    "libmdp", "MDP/0.2 of libmdp", True, b"02", b"", b"", b"", True,
    work_partial=b"", work_final=b"\x03", heartbeat=b"\x04", disconnect=b"\x05",
)  # fmt: skip
ZMQ_MDP2 = Dialect(
    "zmq-mdp2", "MDP/0.2 of zmq-mdp2", False, b"02", b"1", b"2", b"3", True,
    work_partial=b"3", work_final=b"4", heartbeat=b"5", disconnect=b"6", ready=b"1", deliver=b"2",
)  # fmt: skip

DIALECTS = {dialect.name: dialect for dialect in (MDP1, RFC18, RFC18_REQ, MAJORTOMO, LIBMDP, ZMQ_MDP2)}
