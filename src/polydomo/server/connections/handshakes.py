"""Limits the CPU time of handshakes, so that a flood of them does not slow down connected peers.

Any peer can cause a key agreement, which costs about 50 microseconds, by sending 200 bytes. The pacer admits a burst at once and then
``HANDSHAKES_PER_SECOND``. Further handshakes wait, and hosts take turns.
"""

import asyncio
import time
from collections import deque

from polydomo.limits import HANDSHAKE_BURST, HANDSHAKES_PER_SECOND
from polydomo.wire.link import PAUSE_HANDSHAKE, HandshakeBudget, Link

INTERVAL = HANDSHAKE_BURST / 2 / HANDSHAKES_PER_SECOND


class HandshakePacer(HandshakeBudget):
    """One for all connections of a server."""

    def __init__(self, rate: float = HANDSHAKES_PER_SECOND, burst: int = HANDSHAKE_BURST) -> None:
        self.delayed = 0  # total number of handshakes that had to wait
        self.rate = rate
        self.burst = burst
        self._tokens = float(burst)
        self._then = time.monotonic()
        self._hosts: dict[str, deque[Link]] = {}  # waiting links, by host
        self._granted: set[Link] = set()  # links that are admitted, once
        self._timer: asyncio.TimerHandle | None = None

    def start(self, link: Link) -> bool:
        if link in self._granted:
            self._granted.discard(link)
            return True
        if not self._hosts and self._take():
            return True
        self.delayed += 1
        self._hosts.setdefault(host_of(link.peer), deque()).append(link)
        link.pause(PAUSE_HANDSHAKE)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._go_on)
        return False

    @property
    def waiting(self) -> int:
        return sum(map(len, self._hosts.values()))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._then) * self.rate)
        self._then = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _go_on(self) -> None:
        self._timer = None
        while self._hosts:
            host, links = next(iter(self._hosts.items()))
            while links and links[0].state:
                links.popleft()
            if links and not self._take():
                break
            del self._hosts[host]
            if links:
                link = links.popleft()
                self._granted.add(link)
                link.owner.server.wake()
                link.resume(PAUSE_HANDSHAKE)
                if links:
                    self._hosts[host] = links  # to the end of the queue, so that hosts take turns
        if self._hosts:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._go_on)
        self._granted = {link for link in self._granted if not link.closed}


def host_of(peer: str) -> str:
    return peer.rpartition(":")[0] or peer
