"""Packed ids that clients gave their requests: the writer's thread reads them without creating an object for each."""

from struct import Struct

_ENTRY = Struct("=qq")


class ClientIds:
    """Ids by the sequence number of their event, in the order of these numbers."""

    __slots__ = ("entries", "octets")

    def __init__(self) -> None:
        self.entries = bytearray()  # for each id, the sequence number and the length
        self.octets = bytearray()  # the ids, one after the other; none is empty

    def __bool__(self) -> bool:
        return len(self.entries) > 0

    def add(self, seq: int, identity: bytes) -> None:
        self.entries += _ENTRY.pack(seq, len(identity))
        self.octets += identity

    def memory(self) -> int:
        return len(self.entries) + len(self.octets)

    def by_seq(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        at = 0
        for seq, length in _ENTRY.iter_unpack(bytes(self.entries)):
            found[seq] = bytes(self.octets[at : at + length])
            at += length
        return found
