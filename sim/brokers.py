"""A broker process: the real ``Broker`` and its links, over simulated connections.

It does what ``server/connections`` and ``server.server`` do with sockets: detects the wire protocol, handles the input of a turn of the
loop, flushes once per turn, keeps one timer, applies the flags of the links, and closes connections without a handshake.
"""

import traceback
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from polydomo.broker.broker import Broker
from polydomo.broker.catalog.udp_heartbeats import FORGED, UdpHeartbeats
from polydomo.broker.entropy import Entropy
from polydomo.broker.jobs.ops import Op
from polydomo.broker.policy import Policy
from polydomo.broker.timers import TIME_TOLERANCE
from polydomo.journal.recording.chunk import Run
from polydomo.limits import HANDSHAKE_TIME
from polydomo.model.name_patterns import PatternMap, chosen
from polydomo.model.service_limits import LimitPatterns
from polydomo.model.tuning import Tuning
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.server.http.site import mount_pages
from polydomo.web.api import HttpApi
from polydomo.web.session import Site
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.link import Bounds, Hub, Turns
from polydomo.wire.zmtp.extensions import Extensions
from sim.clock import Event
from sim.figures import check_figures
from sim.kept import keep_jobs, new_disk
from sim.network import Endpoint, Listener, Owner
from sim.options import Options
from sim.record import SimRecorder
from sim.security import Guard
from sim.server_connection import MAX_MESSAGE, ServerConnection
from sim.suspended import excuse_suspension
from sim.watch import Watcher

if TYPE_CHECKING:
    from sim.world import World

MAX_CREDIT = 16
EXTENSIONS = Extensions(
    MAX_CREDIT,
    cancel=True,
    deadline=True,
    options=True,
    give_back=True,
    cancel_jobs=True,
    deadline_jobs=True,
    window=True,
    fail=True,
    catalog=True,
    progress=True,
    max_message=MAX_MESSAGE,
).encode()
TICK = 1.0  # seconds, as in the server: figures and the history
SYNC = 1.5  # seconds between two writes of the journal
TRESPASSED = 4  # names that peers with few rights ask for or offer
GRACE = 2.0  # seconds that a broker waits for open requests at shutdown


class Dice(Entropy):
    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def take(self, size: int) -> bytes:
        return self.rng.randbytes(size)


def policy_of(options: Options) -> Policy:
    return Policy(
        attempts=options.attempts,
        queue_expiry=options.queue_expiry,
        unattended_expiry=1.5 * options.queue_expiry,
        requeue_after_partial=options.requeue_after_partial,
        max_outstanding=options.max_outstanding,
        max_queue=options.max_queue,
        max_held_bytes=options.max_held_bytes,
        max_services=options.max_services + (TRESPASSED if options.trespass else 0),
        max_memory=options.max_memory,
        max_message=MAX_MESSAGE,
        limits=LimitPatterns(
            PatternMap({"*": options.running} if options.running else {}),
            PatternMap({"*": (options.rate, options.window)} if options.rate else {}),
            PatternMap({"*": "group"}),
        ),
    )


def tuning_of(options: Options) -> Tuning:
    beat = options.beat
    return Tuning(
        mdp_beat=beat,
        mdx_beat=beat,
        dcp_beat=beat,
        dbp_beat=beat,
        emqp_beat=beat,
        bridge_beat=beat,
        bridge_window=min(options.bridge_window, options.max_outstanding),  # as the settings of the server limit it
        bridge_bytes=options.bridge_bytes,
        bridge_topics=[b"topic."],
        memo_idle=4 * beat,
        busy_timeout=options.busy_timeout,
        mdx_max_credit=MAX_CREDIT,
    )


class BrokerNode(Listener):
    """A broker process. It keeps its name, clock and disk when it restarts."""

    broker: Broker
    hub: Hub
    recorder: SimRecorder
    watcher: Watcher

    def __init__(
        self, world: "World", name: str, rng: Random, make_bridge: "Callable[[BrokerNode, BrokerNode], object]"
    ) -> None:
        super().__init__(world.scheduler, name)
        self.make_bridge = make_bridge
        self.world = world
        self.options = world.options
        self.rng = rng
        self.skew = rng.uniform(0.0, 10_000.0)
        if world.options.siblings:
            self.skew = 5_000.0  # the processes of one machine have one clock
        self.wall = 1_700_000_000.0
        self.runs = 0
        self.bridged: list[BrokerNode] = []  # brokers that this one connects to
        self.bridges: list[object] = []
        self.bounds = Bounds(MAX_MESSAGE, 1024, MAX_MESSAGE, extensions=EXTENSIONS)
        self.connections: dict[ServerConnection, None] = {}
        self.inbox: list[tuple[ServerConnection, bytes | None]] = []
        self.outbox: dict[ServerConnection, bytearray] = {}
        self.stopping = False
        self.disk_full = False
        self.disk = new_disk()  # of durable jobs
        self._owed: list[tuple[int, int, int]] = []  # lost rows that no stored row reports: run, first, last
        self._awake = False
        self._timer: Event | None = None
        self._start()

    @property
    def run_name(self) -> str:
        return f"{self.name}.{self.runs}"

    @property
    def clock(self) -> float:
        return self.scheduler.now + self.skew

    # --- start and end

    def _start(self) -> None:
        self.up = True
        self.stopping = False
        self.runs += 1
        options = self.options
        self.hub = Hub(Turns(options.turn_work, options.turn_share, options.least_share))
        self.inbox = []
        self.outbox = {}
        self._awake = False
        self._timer = None
        run = Run(self.name, 1000 * int(self.name[1:]) + self.runs, self.wall, self.options.attempts)
        self.recorder = SimRecorder(self, self.world.record, run, self.rng.choice((20, 200, 1000)))
        self.hub.now = self.clock
        self.broker = Broker(
            self.clock,
            Dice(self.rng),
            policy_of(self.options),
            tuning_of(self.options),
            self.recorder,
            self.wall,
            f"tcp://{self.name}:5246",
        )
        if options.siblings:
            self.broker.siblings.become(int(self.name[1:]), options.brokers)
        self.broker.limiter.start_at(self.clock)  # as the server does
        self.site = Site(self.broker)
        HttpApi(self.broker, MemoValues()).mount(self.site, self.broker.schemas.encoding_of, lambda session: {})
        mount_pages(self.site, self.broker)
        keys = self.world.keys
        self.guard: Guard | None = Guard(self, keys) if keys is not None else None
        if self.guard is not None:
            self.site.identify = self.guard.identify
        self.datagrams = UdpHeartbeats(self.broker, self.broker.catalog, self.broker.changes)
        self.broker.memory.attach(self.hub)
        self.watcher = Watcher(self)
        self.recorder.attach(self.broker)
        self.recorder.begin("started")
        for run_before, first, last in self._owed:
            self.recorder.missing(run_before, first, last, "lost by a run before this one")
        self.later(SYNC, self._sync)
        self.later(TICK, self._tick)
        self.first_step = self.broker.history.step
        if self.options.durable and self.broker.process.index:
            self.broker.relay_jobs(chosen([self.world.services[0].decode()]))  # process 0 has the store
        elif self.options.durable:
            keep_jobs(self)
        self.bridging = True
        self.bridges = [self.make_bridge(self, other) for other in self.bridged]
        self.world.record.add(self.now, self.run_name, "started")

    def bridge_to(self, other: "BrokerNode") -> None:
        """Bridges this broker to another one, in this run and in all later runs."""
        self.bridged.append(other)
        self.bridges.append(self.make_bridge(self, other))

    def close_bridges(self) -> None:
        self.bridging = False
        for session in list(self.broker.sessions):
            if session.protocol == "bridge":
                session.link.close(CloseCause.OTHER, "the world ends")
        self.wake()

    def answered(self, ops: list[Op]) -> None:
        """The job store has finished these operations."""
        self.broker.now = self.hub.now = self.clock
        for op in ops:
            self._guard("the job store", op.finish)
        self.wake()

    def _sync(self) -> None:
        self.recorder.disk_full = self.disk_full
        self.recorder.sync()
        self.later(SYNC, self._sync)

    def _tick(self) -> None:
        self.broker.now = self.hub.now = self.clock
        self._guard("the tick", self.broker.tick)
        self.wake()
        self.later(TICK, self._tick)

    def finish(self) -> None:
        """Writes the whole journal, at the end of a run that is shut down."""
        self.world.breaches += check_figures(self)
        recorder = self.recorder
        recorder.disk_full = False
        recorder.sync()
        recorder.sync()  # also the rows about dropped rows
        recorder.end("the broker is shutting down")
        recorder.sync()
        self._keep()

    def _keep(self) -> None:
        """Keeps the stored rows of this run, and which rows the next run must report as lost."""
        recorder = self.recorder
        self.world.record.journal += recorder.safe
        told = {
            (row["covers_run"], row["covers_first"], row["covers_last"])
            for row in recorder.safe
            if row.get("covers_run")
        }
        self._owed = [lost for lost in self._owed if lost not in told]
        self._owed += [(recorder.run.run, first, last) for first, last in recorder.lost()]

    def crash(self, restart_after: float) -> None:
        if not self.up:
            return
        self.world.record.add(self.now, self.run_name, "crashed")
        self._keep()
        self.die()
        for connection in self.connections:
            connection.endpoint.abort()
        self.connections = {}
        self.world.scheduler.at(self.now + restart_after, self.restart)

    def restart(self) -> None:
        if not self.up:
            self._start()

    def stop(self, restart_after: float) -> None:
        """Shuts the broker down, as after SIGTERM."""
        if not self.up or self.stopping:
            return
        self.stopping = True
        self.world.record.add(self.now, self.run_name, "stopping")
        self.broker.now = self.hub.now = self.clock
        self._guard("drain", self.broker.drain)
        self.wake()
        self.later(GRACE, lambda: self._leave(restart_after))

    def _leave(self, restart_after: float) -> None:
        self.broker.now = self.hub.now = self.clock
        self._guard("shutdown", self.broker.shutdown)
        self._turn()
        self.watcher.emptied()
        self.finish()
        self.die()
        for connection in self.connections:
            connection.endpoint.close()
        self.connections = {}
        self.world.record.add(self.now, self.run_name, "stopped")
        self.world.scheduler.at(self.now + restart_after, self.restart)

    def thaw(self) -> None:
        super().thaw()
        self.world.network.wake()

    def jump(self, seconds: float, wall: float) -> None:
        """The clock of the machine jumps forward; the wall clock jumps by ``wall``."""
        for node in self.world.nodes if self.options.siblings else [self]:
            node.skew += seconds
            node.wall += wall
            if node.up:
                node.broker.wall = node.wall
                node.wake()

    # --- connections

    def accept(self, endpoint: Endpoint) -> Owner:
        connection = ServerConnection(self, endpoint)
        if self.stopping:
            endpoint.abort()
            return connection
        self.connections[connection] = None
        self.later(HANDSHAKE_TIME, lambda: self._hurry(connection))
        return connection

    def _hurry(self, connection: ServerConnection) -> None:
        """The handshake timed out."""
        link = connection.link
        if connection in self.connections and (link is None or not link.open):
            connection.endpoint.abort()
            self.inbox.append((connection, None))
            self.wake()

    def forget(self, connection: ServerConnection) -> None:
        self.connections.pop(connection, None)
        self.outbox.pop(connection, None)
        self.watcher.dialogs.pop(connection.endpoint.name, None)

    def on_datagram(self, data: bytes, source: str) -> None:
        self.broker.now = self.hub.now = self.clock
        self._guard("datagram", lambda: self._take_datagram(data, source))
        self.wake()

    def _take_datagram(self, data: bytes, source: str) -> None:
        kind = self.datagrams.receive(data, source)
        if source == "forger" and kind != FORGED:
            self.watcher.breach("forged", f"a goodbye from elsewhere was taken for a {kind}")

    # --- turns of the loop

    def wake(self) -> None:
        if not self._awake and self.up:
            self._awake = True
            slow = self.options.slow_turn
            self.later(self.rng.random() * slow if slow and self.world.troubled else 0.0, self._turn)

    def _turn(self) -> None:
        if not self.up:
            return
        broker = self.broker
        hub = self.hub
        self._awake = False
        broker.now = hub.now = self.clock
        inbox, self.inbox = self.inbox, []
        work_left, received = hub.work_left, hub.received
        for connection, data in inbox:
            if connection in self.connections:
                self._guard(connection.endpoint.name, partial(connection.take, data))
                self.watcher.step()
        timers = self._advance()
        self.watcher.worked(work_left, received)
        hub.begin_turn()
        paused = list(broker.paused_clients)
        broker.end_turn()
        self.watcher.resumed(paused)
        resumed = bool(hub.resumed)
        while hub.resumed:
            link = hub.resumed.pop()
            if not link.closed and isinstance(link.owner, ServerConnection):
                self._guard(link.owner.endpoint.name, partial(link.owner.take, b""))
        while hub.dirty:
            dirty, hub.dirty = hub.dirty, []
            for link in dirty:
                if not link.closed and isinstance(link.owner, ServerConnection):
                    link.owner.flush()
        self.watcher.step()
        more = broker.has_more_work() or hub.turns_waiting() or (resumed and bool(broker.paused_clients))
        self.watcher.turned(timers, more)
        if more:
            self.wake()
        self._set_timer()

    def _advance(self) -> bool:
        """Runs due timers. Like the server, it does so after pending input has been read."""
        broker = self.broker
        when = broker.next_deadline()
        if when is None or when > broker.now:
            return False
        late = excuse_suspension(broker)
        if late:
            self.watcher.overslept(late)
        registered = list(broker.catalog.active_entries())
        self._guard("timers", broker.run_timers)
        self.watcher.services_lost(registered)
        return True

    def _guard(self, during: str, action: Callable[[], None]) -> None:
        """Runs an action. An exception is a breach: invalid input must end in a closed connection."""
        try:
            action()
        except Exception as error:
            self.world.breach("exception", f"{during}: {type(error).__name__}: {error}", detail=traceback.format_exc())

    def _set_timer(self) -> None:
        when = self.broker.next_deadline()
        if when is None:
            return
        at = when - self.skew
        if self._timer is not None and not self._timer.cancelled and self.now < self._timer.when <= at + TIME_TOLERANCE:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.later(max(0.0, at - self.now) + TIME_TOLERANCE, self.wake)
