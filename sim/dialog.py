"""One connection as seen from outside, and the rules that hold in every protocol.

A dialog gets every message that the peer sent (``heard``) and that the broker sent (``said``), as frames. It knows nothing of the broker's
internals, and reports messages that the protocol's document does not allow.
"""

from typing import TYPE_CHECKING

from polydomo.limits import BEAT_CROSSES
from polydomo.model.records import HELD
from sim.record import TAG

if TYPE_CHECKING:
    from sim.watch import Watcher

Message = list[bytes]

EMQP = b"eMQP/1.0"
GOODBYES = (
    [b"", b"MDPW01", b"\x05"],
    [b"MDPW02", b"\x06"],
    [b"MDXW01", b"\x06"],
)


def is_goodbye(frames: Message) -> bool:
    """DISCONNECT, in any protocol that has it for a whole connection."""
    return frames in GOODBYES or (len(frames) > 2 and frames[1] == EMQP and frames[2] in (b"DISCONNECT", b"KBYE"))


class Dialog:
    """Rules of every protocol: nothing is sent after DISCONNECT, and a worker gets what it asked for."""

    protocol = ""
    beats = False  # the broker beats after an interval without output
    strict = False  # a busy worker must send heartbeats, too

    def __init__(self, watcher: "Watcher", name: str) -> None:
        self.watcher = watcher
        self.name = name
        self.parted = ""  # which side sent DISCONNECT
        self.garbled = name.startswith("g")  # a peer that sends invalid messages: what it receives is not judged
        self.last_heard = watcher.node.clock
        self.last_said = watcher.node.clock
        self.asked = 0  # requests that the worker may still get
        self.window = -1  # requests that the worker may hold; -1: it has not named a number
        self.jobs: dict[bytes, float] = {}  # by token: requests that the worker holds, and since when
        self.beat_busy = False  # the worker has sent a heartbeat while it held a request
        self.tags: dict[bytes, bytes] = {}  # request id -> tag of the call

    def asks(self, identity: bytes, body: Message) -> None:
        found = TAG.search(b"".join(body)[:256])
        if found is not None:
            self.tags[identity] = found[1]

    def cancelled(self, identity: bytes, is_open: bool) -> None:
        """The client cancelled a call. ``is_open``: it was not answered yet."""
        if is_open and identity in self.tags and not self.garbled:
            self.watcher.cancelled.add(self.tags[identity].decode())

    def breach(self, rule: str, text: str) -> None:
        if not self.garbled:
            self.watcher.breach(rule, f"{self.protocol} {self.name}: {text}")

    def heard(self, frames: Message) -> None:
        if is_goodbye(frames):
            self.parted = self.parted or "the peer"

    def said(self, frames: Message) -> None:
        if self.parted:
            self.breach("after-disconnect", f"received {_show(frames)} after DISCONNECT from {self.parted}")
        if is_goodbye(frames):
            self.parted = "the broker"

    def settled(self) -> None:
        """The turn has ended: everything that needs an immediate answer has one."""

    # workers

    def give(self, address: bytes) -> None:
        """ "A worker gets no more than it asked for." """
        if address in self.jobs:
            self.breach("token", f"got two requests with the token {address!r}")
        if address in self.watcher.tokens:
            self.breach("token", f"got a request with the token {address!r} of another attempt")
        self.watcher.tokens.add(address)
        self.asked -= 1
        if self.asked < 0:
            self.breach("unasked-job", f"got {address!r} without credit; it holds {list(self.jobs)}")
        self.jobs[address] = self.watcher.node.clock

    def check_time(self, address: bytes, limit: float) -> None:
        """Workers with the extension learn how much time their request has left: ``limit`` seconds; 0 if the message has no time."""
        for worker in self.watcher.node.broker.workers:
            request = worker.held.get(address)
            if request is not None and request.state == HELD:
                left = request.time_left(request.dispatched)
                if abs(left - limit) > 0.002:
                    self.breach(
                        "time-left", f"received a limit of {limit:.3f} s for {address!r}, which has {left:.3f} s left"
                    )

    def check_held(self, address: bytes, what: str) -> None:
        if address not in self.jobs:
            self.breach("unasked", f"{what} of {address!r}, which it does not hold")

    def answered(self, address: bytes) -> None:
        if self.jobs.pop(address, None) is None:
            return
        if self.window >= 0:
            self.asked = max(self.asked, self.window - len(self.jobs))
        elif not self.jobs:
            self.asked = max(self.asked, 1)

    def named(self, window: bytes) -> None:
        """The worker named its window (CREDIT)."""
        self.window = min(int(window), self.watcher.node.broker.tuning.mdx_max_credit)
        self.asked = max(0, self.window - len(self.jobs))

    def beaten(self) -> None:
        """A heartbeat. One that crossed the request on its way does not show that the worker sends heartbeats while busy."""
        if self.jobs and self.watcher.node.clock - min(self.jobs.values()) >= self.watcher.silence(self) * BEAT_CROSSES:
            self.beat_busy = True


def _show(frames: Message) -> str:
    return repr([frame[:24] for frame in frames[:6]])
