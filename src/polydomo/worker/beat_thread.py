"""Heartbeats while the event loop is blocked.

A worker's heartbeats are sent by its event loop. An ``async`` function that computes or calls ``time.sleep`` blocks the loop, and a broker
would take the worker for a frozen one. So a thread looks from time to time whether the loop is late with a heartbeat, and sends it itself.

While C code keeps Python's interpreter lock, this thread does not run either. It logs that afterwards: only other processes help.
"""

import logging
import threading
import time
from collections.abc import Callable

from polydomo.errors import ProtocolViolation
from polydomo.limits import BEAT_LATE, OVERSLEPT, SILENT_BEATS
from polydomo.worker.registration import Registration

log = logging.getLogger("polydomo.worker")

LOOP_BLOCKED = (
    "the event loop was blocked for %.1f s; another thread sent the heartbeats, but nothing else was sent or received. Write a function "
    "that blocks as a normal function (def instead of async def), or run it with processes="
)
NO_PYTHON = (
    "no heartbeats were sent for %.1f s: %s. A broker gives the calls of a silent worker to other workers. Run functions that call such "
    "code with processes="
)
LOCK_KEPT = "C code kept Python's interpreter lock"
LOCK_KEPT_OR_SUSPENDED = "C code kept Python's interpreter lock, or this process was suspended"


class BeatThread:
    """The thread of one worker. ``start`` and ``stop`` belong to ``run``; registrations come and go meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._registrations: set[Registration] = set()
        self._clock = clock
        self._stopped = threading.Event()
        self._blocked_since = 0.0  # 0: the loop is not late
        self._told = False  # a blocked loop was logged as a warning

    def start(self, interval: float) -> None:
        """``interval`` is that of the heartbeats."""
        self._stopped = stopped = threading.Event()
        threading.Thread(target=self._run, args=(interval, stopped), name="polydomo-beats", daemon=True).start()

    def watch(self, registration: Registration) -> None:
        """Until it ends."""
        self._registrations.add(registration)
        registration.ended.add_done_callback(lambda ended: self._registrations.discard(registration))

    def stop(self) -> None:
        self._stopped.set()

    def look(self, now: float) -> None:
        """Sends the heartbeats that the loop is late with."""
        blocked_since = 0.0
        for registration in self._registrations.copy():
            interval = registration.end.interval
            due = registration.due
            if now < due + BEAT_LATE * interval:
                continue
            blocked_since = min(blocked_since or due, due)
            if now < registration.sent_while_blocked + interval:
                continue
            message = registration.end.heartbeat()
            if message is None:
                continue
            try:
                registration.connection.send_while_blocked(message)
            except ProtocolViolation:
                continue  # the peer does not speak TLS correctly, and the loop will notice
            registration.sent_while_blocked = now
        if self._blocked_since and not blocked_since:
            # Later ones are most likely calls of the same function.
            log.log(logging.DEBUG if self._told else logging.WARNING, LOOP_BLOCKED, now - self._blocked_since)
            self._told = True
        self._blocked_since = blocked_since

    def _run(self, interval: float, stopped: threading.Event) -> None:
        wait = BEAT_LATE * interval
        while True:
            before, computed = self._clock(), time.process_time()
            if stopped.wait(wait):
                return
            now = self._clock()
            late = now - before - wait
            if late > max(SILENT_BEATS * interval, OVERSLEPT) and self._registrations:
                busy = time.process_time() - computed > late / 2
                log.warning(NO_PYTHON, late, LOCK_KEPT if busy else LOCK_KEPT_OR_SUSPENDED)
            blocked_since = self._blocked_since
            self.look(now)
            if late > OVERSLEPT and self._blocked_since:
                # The loop could not run either. Only if it was late before does that say that a function blocks it.
                self._blocked_since = blocked_since + late if blocked_since else 0.0
