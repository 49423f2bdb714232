"""The interface of a store, without threads: reads, and writes of groups of operations, each in one transaction.

A backend is used by one thread at a time. It raises StoreError: ``FULL`` means that nothing of the group was written, ``NOT_LEADER`` that
another broker has taken the lease, ``UNAVAILABLE`` that the group may or may not have been written. Applying a group again is safe, because
every operation is idempotent.
"""

from polydomo.broker.jobs.ops import Loaded, Op

# The version of the tables; 1 had no checksums, 2 had keys without their principals and services, 3 had no flows, 4 had flows that
# could not grow and no partial replies, and there were no limits.
SCHEMA = 5


class Lease:
    """The leader and its epoch."""

    __slots__ = ("address", "epoch", "mine")

    def __init__(self, epoch: int, address: str, mine: bool) -> None:
        self.epoch = epoch
        self.address = address  # the leader's address for clients
        self.mine = mine


class Backend:
    """One store. ``shared`` is true if several brokers may use it; then a lease decides which one is the leader."""

    shared = False
    url = ""  # for messages, without the password

    def open(self) -> None:
        """Opens the store and creates its tables if there are none. Raises StoreError with the reason."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def acquire(self, owner: str, address: str, seconds: float) -> Lease:
        """Takes the lease for ``seconds`` if it is free, has expired or is already held by this broker, which is one with the same name and
        address. A new holder gets a new epoch."""
        raise NotImplementedError

    def renew(self, epoch: int, seconds: float) -> bool:
        """Extends the lease. Returns False if another broker has it."""
        raise NotImplementedError

    def release(self, epoch: int) -> None:
        """Releases the lease, so that another broker need not wait until it expires."""

    def load(self, since: float) -> Loaded:
        """Loads the data of a new leader, including unsent results of ordinary requests that ended after ``since``."""
        raise NotImplementedError

    def apply(self, ops: list[Op], epoch: int) -> None:
        """Writes a group in one transaction, which is on disk when this returns, and fills in the answers. An empty group only tests
        whether the store can be written to."""
        raise NotImplementedError

    def used_bytes(self) -> int:
        """Bytes of the store that hold data; 0 if they are not on a disk of this broker."""
        return 0

    def read(self, op: Op) -> None:
        """Answers a Get or a Select."""
        raise NotImplementedError
