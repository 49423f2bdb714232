"""The ids that clients gave their requests, as they come: two lists, because a request is the wrong moment to do more."""

from polydomo.limits import COST_CLIENT_ID


class ClientIds:
    """Ids by the sequence number of their event, in the order of these numbers. None is empty."""

    __slots__ = ("identities", "seqs")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.identities: list[bytes] = []

    def __bool__(self) -> bool:
        return len(self.seqs) > 0

    def add(self, seq: int, identity: bytes) -> None:
        self.seqs.append(seq)
        self.identities.append(identity)

    def memory(self) -> int:
        return COST_CLIENT_ID * len(self.seqs)

    def by_seq(self) -> dict[int, bytes]:
        return dict(zip(self.seqs, self.identities, strict=True))
