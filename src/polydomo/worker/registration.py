"""A worker's registration on one connection, from its READY to its end."""

import asyncio
from collections.abc import Callable

from polydomo.client.connection import BrokerConnection
from polydomo.client.message import check_size
from polydomo.errors import PolydomoError
from polydomo.limits import OVERSLEPT
from polydomo.protocols.ends import Cancelled, Delivery, Dismissed, Event, Revoked, WorkerEnd
from polydomo.worker.call import Forward


class Registration:
    connection: BrokerConnection
    worked = False  # it got a job
    failed = False  # it left because a job failed; the broker is not at fault
    _timer: asyncio.TimerHandle | None = None  # of the next heartbeat
    due = 0.0  # when that is
    sent_while_blocked = 0.0  # when another thread last sent a heartbeat, because the loop was late

    def __init__(
        self,
        end: WorkerEnd,
        on_job: "Callable[[Registration, Delivery], None]",
        on_unwanted: "Callable[[Registration, Cancelled | Revoked], None]",
    ) -> None:
        self.end = end
        self.on_job = on_job
        self.on_unwanted = on_unwanted
        self.loop = asyncio.get_running_loop()
        self.since = self.loop.time()
        self.said = self.since  # when it last answered
        self.ended: asyncio.Future[str] = self.loop.create_future()  # why

    def register(self, services: list[bytes], slots: int, prefetch: int) -> None:
        self.end.open(services, slots, prefetch)
        self.connection.write_at_once()
        self.connection.flush()  # heartbeats of another thread come after it
        self._schedule(self.end.interval)

    def leave(self, reason: str) -> None:
        """Sends the protocol's DISCONNECT and closes the connection."""
        if self.connection.alive:
            self.end.close()
            self.connection.close(reason)
        self._over(reason)

    def drain(self) -> None:
        """Asks the broker for no further jobs."""
        if not self.ended.done():
            self.end.drain()
            self.connection.flush_soon()

    def grow(self, count: int) -> None:
        """Jobs of an earlier connection have ended, so this connection can take as many more."""
        if not self.ended.done():
            self.end.grow(count)
            self.connection.flush_soon()

    def partial(self, delivery: Delivery, body: list[bytes]) -> None:
        check_size(body, self.connection.max_body)
        self.end.partial(delivery, body)
        self._answered()

    def progress(self, delivery: Delivery, share: float, text: str) -> None:
        if not self.ended.done():
            self.end.progress(delivery, share, text)
            self.connection.flush_soon()

    def final(self, delivery: Delivery, body: list[bytes]) -> None:
        check_size(body, self.connection.max_body)
        self.end.final(delivery, body)
        self._answered()

    def forward(self, delivery: Delivery, onward: Forward) -> None:
        check_size(onward.body, self.connection.max_body)
        self.end.forward(delivery, onward.service, onward.body, onward.metadata)
        self._answered()

    def fail(self, delivery: Delivery, code: str, text: str) -> None:
        if self.end.fail(delivery, code, text):
            self.failed = True
            self.connection.close("a job failed, and the protocol can only report that by leaving")
            self._over("a job failed")
        else:
            self._answered()

    def release(self, delivery: Delivery) -> bool:
        """Returns a job that will not run. False if the protocol cannot do that."""
        if self.ended.done() or not self.end.release(delivery):
            return False
        self._answered()
        return True

    def keep(self, delivery: Delivery) -> None:
        if not self.ended.done():
            self.end.keep(delivery)
            self._answered()

    def on_event(self, event: Event) -> None:
        if isinstance(event, Delivery):
            self.worked = True
            self.on_job(self, event)
        elif isinstance(event, Cancelled | Revoked):
            self.on_unwanted(self, event)
        elif isinstance(event, Dismissed):
            self.connection.close(f"the broker sent {event.why}")
            self._over(f"the broker sent {event.why}")

    def on_lost(self, error: PolydomoError) -> None:
        self._over(str(error))

    def _answered(self) -> None:
        self.said = self.loop.time()
        self.connection.flush_soon()

    def _over(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(reason)

    def _beat(self) -> None:
        now = self.loop.time()
        if now - self.due > OVERSLEPT:  # this process was suspended: what the broker sent meanwhile is still unread
            self.connection.heard = min(now, self.connection.heard + now - self.due)
        silence = now - self.connection.heard
        if self.end.patience and silence > self.end.patience:
            self.connection.close(f"the broker has been silent for {silence:.1f} s", abort=True)
            return
        waiting = len(self.end.out)
        self.end.beat()
        self.connection.flush_soon()
        wait = self.end.interval
        if len(self.end.out) == waiting and now < self.said + wait:
            # An MDX worker that has just answered need not beat. The next beat is due one interval after that answer, not after
            # this moment: otherwise the broker would consider the worker late.
            wait = self.said + wait - now
        self._schedule(wait)

    def _schedule(self, wait: float) -> None:
        self.due = self.loop.time() + wait
        self._timer = self.loop.call_at(self.due, self._beat)
