"""What a store has to do, without threads: read, and write groups of operations in one transaction each.

A backend is used by one thread at a time. It raises StoreError: ``FULL`` means that nothing of the group was written, ``NOT_LEADER`` that
another broker has taken the lease, ``UNAVAILABLE`` that the group may or may not have been written; applying it again is safe, since every
operation is idempotent.
"""

from polydomo.broker.jobs.ops import Loaded, Op

SCHEMA = 1  # the version of the tables


class Lease:
    """Who leads, and under which epoch."""

    __slots__ = ("address", "epoch", "mine")

    def __init__(self, epoch: int, address: str, mine: bool) -> None:
        self.epoch = epoch
        self.address = address  # where clients reach the leader
        self.mine = mine


class Backend:
    """One store. ``shared`` is true if several brokers may use it, so that a lease decides which one leads."""

    shared = False
    url = ""  # for people: without a password

    def open(self) -> None:
        """Opens the store and creates its tables if there are none. Raises StoreError with the reason."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def acquire(self, owner: str, address: str, seconds: float) -> Lease:
        """Takes the lease for ``seconds`` if it is free, has expired or is already ours; a new holder gets a new epoch."""
        raise NotImplementedError

    def renew(self, epoch: int, seconds: float) -> bool:
        """Extends the lease. False: another broker has it."""
        raise NotImplementedError

    def release(self, epoch: int) -> None:
        """Gives the lease up, so that another broker need not wait until it expires."""

    def load(self, since: float) -> Loaded:
        """Everything a new leader needs; uncollected results of plain requests that ended after ``since``."""
        raise NotImplementedError

    def apply(self, ops: list[Op], epoch: int) -> None:
        """Writes a group in one transaction, which is on disk when this returns, and fills in the answers. An empty group
        only shows whether the store can be written."""
        raise NotImplementedError

    def read(self, op: Op) -> None:
        """Answers a Get or a Select."""
        raise NotImplementedError
