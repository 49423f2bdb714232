"""Runs a store in its own thread: group commit, retries, and the lease.

The event loop passes operations with ``put``. The thread writes all pending operations in one transaction and returns them to the loop
once they are on disk; operations that arrive in the meantime form the next group. So under load many jobs share one disk sync, and
without load each job waits for one sync. The first operation wakes the thread, which then waits for the GIL until the loop has handled all
its input; that is faster than waking it at the end of the turn.

Without a delay, clients that keep several submissions outstanding would split into two halves, one being written while the other waits, and
every submission would take two syncs. So a group that follows another one waits for a fraction of a sync (``STORE_GATHER``), until as many
new operations have arrived as were just finished. An operation that no caller waits for (``Op.can_wait``) does not start a group: it is
written with the next one, or by ``tick``. The thread waits on a condition instead of polling, because on a busy machine each sleep ends
with a wait for the CPU.

While the store cannot be written to, new jobs are rejected, and all other writes are kept in memory and retried.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from polydomo.broker.jobs.ops import DAMAGED, FULL, NOT_LEADER, UNAVAILABLE, Loaded, Op, Store, StoreError
from polydomo.limits import (
    DISK_MEASURED,
    LEASE_RENEW,
    LEASE_TIME,
    MIB,
    STORE_GATHER,
    STORE_GATHER_MOST,
    STORE_GROUP,
    STORE_PENDING,
    STORE_PENDING_BYTES,
    STORE_RETRY,
)
from polydomo.stores.backend import Backend, Lease

LOG = logging.getLogger("polydomo.store")

LEAST_GATHER = 0.0001  # seconds: a shorter sleep costs more than it gains


class Owner:
    """The owner of the store. All methods are called on the owner's thread, through ``post``."""

    def lead(self, epoch: int, loaded: Loaded) -> None:
        """This broker is now the leader; ``loaded`` has the open jobs and schedules of the store."""

    def follow(self, leader: str, why: str) -> None:
        """Another broker is the leader, or none: nothing may be dispatched or acknowledged. ``leader`` is its address, if known."""

    def opened(self) -> None:
        """The store is open. ``lead`` or ``follow`` is called next."""

    def unavailable(self) -> None:
        """The store cannot be used; it is tried again."""

    def suspend(self, suspended: bool) -> None:
        """The lease could not be renewed in time: nothing may be dispatched until it is renewed."""


def awake_time() -> float:
    """A clock that keeps running while the machine is suspended, because a lease also expires then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def internal_error(error: Exception) -> StoreError:
    """The answer to an operation that a fault of this program kept from being done, once the traceback is in the log."""
    LOG.error("internal error in the job store", exc_info=error)
    return StoreError(UNAVAILABLE, f"internal error: {error!r}")


@dataclass(frozen=True)
class LeaseTimes:
    """The right to be the one broker that uses the store: how long it lasts, and how often it is renewed, in seconds."""

    time: float = LEASE_TIME
    renew: float = LEASE_RENEW


DEFAULT_LEASE = LeaseTimes()


class StoreThread(Store):
    """``post`` runs a function on the owner's thread and must be callable from any thread."""

    def __init__(
        self,
        backend: Backend,
        owner: Owner,
        name: str,
        post: Callable[[Callable[[], None]], None],
        repeat: float = 0.0,
        lease: LeaseTimes = DEFAULT_LEASE,
        disk_share: int = 0,
    ) -> None:
        self.backend = backend
        self.owner = owner
        self.name = name  # identity of this broker, with which it takes back its own lease after a restart
        self.address = ""  # of this broker, for the others that share the store; the owner sets it once it is known
        self.repeat = repeat  # age in seconds up to which unsent results of ordinary requests are loaded
        self.lease_time = lease.time
        self.lease_renew = lease.renew
        self.disk_share = disk_share  # most bytes of the store on this disk; 0: no limit
        self.used_bytes = 0  # at the last measurement
        self._measured = 0.0
        self.groups = 0  # transactions so far, and the operations in them
        self.written = 0
        self._post = post
        self._condition = threading.Condition()
        self._asleep = False  # the thread waits for ``_condition`` until this many operations are pending
        self._wanted = 1
        self._pending: deque[Op] = deque()  # not yet taken by the thread
        self._later: deque[Op] = deque()  # those that can wait for the next group
        self._put_bytes = 0  # of all operations: written by the owner's thread only ...
        self._taken_bytes = 0  # ... and by the store's only
        self._expected = 0  # operations that are pending once every client that was just answered has sent its next one
        self._urgent = 0  # operations of the group that callers wait for
        self._commit_time = 0.0  # seconds of the last commit
        self._committed = 0.0  # when it ended
        self._kept: list[Op] = []  # taken by the thread, to be retried; used only by the thread
        self._trouble: StoreError | None = None
        self._stopping = False
        self._open = False
        self._leads = False
        self._epoch = 0
        self._leader = ""
        self._lease_until = 0.0
        self._found_late = False  # ``holds_lease`` said no: jobs wait to be resumed
        self._renew_at = 0.0
        self._suspended = False
        self._thread = threading.Thread(target=self._run, name="polydomo-store", daemon=True)

    # --- on the owner's thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Writes pending operations, releases the lease, and stops the thread."""
        self.ask_to_stop()
        self._thread.join()

    def ask_to_stop(self) -> None:
        """The same without waiting; ``running`` becomes false when it has ended."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def abandon(self) -> None:
        """For tests: stops the thread as a crash would. Operations that are not on disk are lost."""
        with self._condition:
            self._stopping = True
            self._pending.clear()
            self._later.clear()
            self._leads = False  # the lease is not released either
            self._condition.notify()
        self._thread.join()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def put(self, op: Op) -> None:
        if op.can_wait:
            self._later.append(op)
            return
        self._put_bytes += op.size()
        self._pending.append(op)
        # The thread sets ``_asleep`` before it checks ``_pending`` for the last time, so it misses no operation.
        if self._asleep and len(self._pending) >= self._wanted:
            with self._condition:
                self._asleep = False
                self._condition.notify()

    def tick(self) -> None:
        """Called about once a second: writes operations that wait for a group."""
        if self._later and not self._pending:
            with self._condition:
                self._move(self._pending)
                self._condition.notify()

    def _move(self, to: "deque[Op] | list[Op]") -> None:
        """Moves the operations that can wait into a group. Either thread may do this."""
        while True:
            try:
                to.append(self._later.popleft())
            except IndexError:
                return

    def holds_lease(self) -> bool:
        if not self.backend.shared or awake_time() < self._lease_until:
            return True
        self._found_late = True
        return False

    def refusal(self) -> StoreError | None:
        trouble = self._trouble
        if trouble is not None:
            return trouble
        if len(self._pending) >= STORE_PENDING or self._put_bytes - self._taken_bytes >= STORE_PENDING_BYTES:
            return StoreError(FULL, f"{len(self._pending)} writes are waiting for the job store; try again later")
        if self.disk_share and self.used_bytes >= self.disk_share:
            return StoreError(
                FULL,
                f"the job store has {self.used_bytes / MIB:,.1f} MiB; its share of the disk is {self.disk_share / MIB:,.1f} MiB "
                "(`limits.max_disk`); results are removed after `durable.keep`",
            )
        return None

    @property
    def trouble(self) -> str:
        """The current error of the store; "" if there is none."""
        trouble = self._trouble
        return trouble.text if trouble is not None else ""

    # --- on the thread --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                if self._step():
                    break
            except StoreError as error:
                if self._failed(error):
                    break
            except Exception as error:
                # An internal error must not end the thread, because then nothing would be written again.
                if self._failed(internal_error(error)):
                    break
        try:
            if self._leads and self._open:
                self.backend.release(self._epoch)
        except StoreError:
            pass  # the lease expires
        self.backend.close()

    def _step(self) -> bool:
        """Processes pending operations, or waits for them. Returns True when it is time to end."""
        if not self._open:
            self.backend.open()
            self._open = True
            self._post(self.owner.opened)
        if not self._leads:
            self._try_to_lead()
        elif self.backend.shared and awake_time() >= self._renew_at:
            self._renew()
        self._gather()
        reads, self._kept = self._take()
        self._read(reads)
        writes, self._kept = self._kept, []
        if self._leads and (writes or self._trouble is not None):
            self._write(writes)
        elif writes:
            self._refuse(writes)
        if reads or writes:
            return False
        with self._condition:
            if self._stopping and not self._pending:
                if not self._later:
                    return True
                self._move(self._pending)
            self._sleep(1, self._patience())
        return False

    def _sleep(self, wanted: int, seconds: float | None) -> None:
        """Waits until this many operations are pending, or the time is over. The caller has the lock."""
        self._wanted = wanted
        self._asleep = True
        if len(self._pending) < wanted:
            self._condition.wait(seconds)
        self._asleep = False

    def _gather(self) -> None:
        """Waits a moment for more operations, if some are pending and more are likely to arrive."""
        if not self._pending:
            return
        expected, self._expected = self._expected, 0
        most = min(STORE_GATHER * self._commit_time, STORE_GATHER_MOST)
        if len(self._pending) >= expected or most < LEAST_GATHER or self._stopping:
            return
        if time.monotonic() - self._committed > self._commit_time:
            return  # the clients that were answered last have not sent new operations
        with self._condition:
            self._sleep(expected, most)

    def _patience(self) -> float | None:
        if not self.backend.shared and self._leads:
            return None
        return self.lease_renew if not self._leads else max(0.01, self._renew_at - awake_time())

    def _take(self) -> tuple[list[Op], list[Op]]:
        """The pending reads, and the next group of writes, starting with those to retry."""
        reads: list[Op] = []
        writes, self._kept = self._kept, []
        pending = self._pending
        while pending and len(writes) < STORE_GROUP:
            op = pending.popleft()
            self._taken_bytes += op.size()
            (writes if op.writes else reads).append(op)
        self._urgent = len(writes)
        if writes:
            self._move(writes)
        return reads, writes

    def _read(self, reads: list[Op]) -> None:
        for at, op in enumerate(reads):
            try:
                self.backend.read(op)
            except StoreError as error:
                if error.code != DAMAGED:
                    self._refuse(reads[at:], error)
                    raise
                LOG.error("%s", error.text)  # the rest of the store can be used
                op.error = error
            except Exception as error:
                op.error = internal_error(error)
            self._finish([op])

    def _write(self, writes: list[Op]) -> None:
        stale = [op for op in writes if op.epoch != self._epoch]
        if stale:  # queued before this broker lost and regained the lease, so it is based on outdated state
            self._refuse(stale)
            writes = [op for op in writes if op.epoch == self._epoch]
        began = time.monotonic()
        try:
            self.backend.apply(writes, self._epoch)
        except StoreError as error:
            self._not_written(writes, error)
            return
        except Exception as error:
            if not writes:
                raise
            internal_error(error)
            self._write_each(writes)
            return
        self._committed = time.monotonic()
        self._commit_time = self._committed - began
        if self.disk_share and self._committed - self._measured >= DISK_MEASURED:
            self._measured = self._committed
            self.used_bytes = self.backend.used_bytes()
        self._expected = len(self._pending) + self._urgent
        self._wrote(writes)

    def _not_written(self, writes: list[Op], error: StoreError) -> None:
        """Keeps what is to be retried, and raises the error unless this broker is no longer the leader."""
        if error.code == NOT_LEADER:
            self._refuse(writes, error)
            self._step_down(error.text)
            return
        if error.code == DAMAGED:  # opening the store again saves what is left; then this broker loads it
            self._refuse(writes, error)
            self._step_down(error.text)
            raise error
        if error.code == FULL:  # nothing of the group was written; operations that are not retained fail
            refused = [op for op in writes if not op.retained and not op.in_doubt]
            self._refuse(refused, error)
            writes = [op for op in writes if op.retained or op.in_doubt]
        else:
            for op in writes:
                op.in_doubt = True
        self._kept = writes
        raise error

    def _write_each(self, writes: list[Op]) -> None:
        """After an internal error, with which nothing of the group was written: each operation alone, so that only those fail that cause
        it."""
        for at, op in enumerate(writes):
            try:
                self.backend.apply([op], self._epoch)
            except StoreError as error:
                self._not_written(writes[at:], error)
                return
            except Exception as error:
                self._refuse([op], internal_error(error))
            else:
                self._wrote([op])

    def _wrote(self, ops: list[Op]) -> None:
        self.groups += 1
        self.written += len(ops)
        if self._trouble is not None:
            self._recovered()
        self._finish(ops)

    def _refuse(self, ops: list[Op], error: StoreError | None = None) -> None:
        for op in ops:
            op.error = error if error is not None else self._not_leading()
        self._finish(ops)

    def _not_leading(self) -> StoreError:
        text = (
            f"another broker is the leader, at {self._leader}"
            if self._leader
            else "the job store has no leader at the moment"
        )
        return StoreError(NOT_LEADER, text)

    def _finish(self, ops: list[Op]) -> None:
        def finish() -> None:
            left = iter(ops)
            try:
                for op in left:
                    op.finish()
            finally:
                self._finish(list(left))  # if one of them has failed

        if ops:
            self._post(finish)

    # --- errors ---------------------------------------------------------------------------------------------------------------

    def _failed(self, error: StoreError) -> bool:
        """Waits before the next attempt. Returns True if there is none, because the thread is to stop: operations that callers wait
        for fail."""
        first = self._trouble is None
        self._trouble = error
        if first:
            LOG.error("the job store is not available: %s", error.text)
            self._post(self.owner.unavailable)
        if error.code != FULL:
            self._reopen()
        if self.backend.shared and self._leads and not self._suspended and awake_time() >= self._lease_until:
            self._suspended = True
            self._post(lambda: self.owner.suspend(True))
        with self._condition:
            if not self._stopping:
                self._condition.wait(STORE_RETRY)
                return False
            lost = [*self._kept, *self._pending]
            self._kept = []
            self._pending.clear()
            for op in lost:
                op.error = error
            self._finish(lost)
            return True

    def _reopen(self) -> None:
        """Reopens the connection or file after an error."""
        if self.backend.shared or (self._trouble is not None and self._trouble.code == DAMAGED):
            self._open = False
            self.backend.close()

    def _recovered(self) -> None:
        LOG.warning("the job store is available again")
        self._trouble = None

    # --- the lease --------------------------------------------------------------------------------------------------------------

    def _try_to_lead(self) -> None:
        asked = awake_time()
        lease: Lease = self.backend.acquire(self.name, self.address, self.lease_time)
        if self._trouble is not None:
            self._recovered()
        if not lease.mine:
            if lease.address != self._leader:
                leader = self._leader = lease.address
                LOG.debug("another broker is the leader: %s", leader)
                self._post(lambda: self.owner.follow(leader, "another broker is the leader"))
            return
        loaded = self.backend.load(time.time() - self.repeat)
        self._epoch = lease.epoch
        self._leads = True
        self._leader = self.address
        self._lease_until = asked + self.lease_time
        self._renew_at = asked + self.lease_renew
        LOG.debug("this broker is the leader under epoch %d: %d open jobs", lease.epoch, len(loaded.jobs))
        self._post(lambda: self.owner.lead(lease.epoch, loaded))

    def _renew(self) -> None:
        asked = awake_time()
        if not self.backend.renew(self._epoch, self.lease_time):
            self._step_down("another broker took over the lease")
            return
        self._lease_until = asked + self.lease_time
        self._renew_at = asked + self.lease_renew
        if self._trouble is not None and not self._kept:
            self._recovered()
        if self._suspended or self._found_late:
            self._suspended = self._found_late = False
            self._post(lambda: self.owner.suspend(False))

    def _step_down(self, why: str) -> None:
        LOG.debug("this broker is no longer the leader: %s", why)
        self._leads = False
        self._suspended = False
        self._leader = ""
        self._refuse(self._kept)
        self._kept = []
        self._post(lambda: self.owner.follow("", why))
