"""What the parts of a running server share: the settings, the broker, the turn of the event loop, and the table of connections.

Connections, endpoints, outgoing connections and other processes get a ``Host``. ``BrokerServer`` puts the parts together, and runs them.
"""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from polydomo import limits
from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.observe.recorder import Recorder
from polydomo.model.tuning import Tuning
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.server import logs
from polydomo.server.access.access import AccessControl
from polydomo.server.connections.base import BaseConnection
from polydomo.server.connections.disconnect_watch import DisconnectWatch
from polydomo.server.connections.handshakes import HandshakePacer
from polydomo.server.connections.idle import IdleConnections
from polydomo.server.connections.overdue import OverdueConnections
from polydomo.server.http.health import Health
from polydomo.server.job_store import JobStore
from polydomo.server.logs import say
from polydomo.server.processes.plan import ProcessPlan
from polydomo.server.settings.settings import Settings
from polydomo.web.session import Site
from polydomo.wire.link import Bounds, Hub, Turns
from polydomo.wire.zmtp.extensions import Extensions

LOG = logs.get("server")

Row = dict[str, Any]
Find = Callable[[str], Awaitable[Row | None]]  # by id; raises SettingError if the id is invalid
# By the parameters of a query; raises SettingError if one is invalid.
Search = Callable[[dict[str, str]], Awaitable[Row]]


class SystemEntropy(Entropy):
    def take(self, size: int) -> bytes:
        return secrets.token_bytes(size)


class Host:
    site: Site  # the HTTP endpoints
    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        settings: Settings,
        recorder: Recorder,
        memo_store: MemoValues | None,
        plan: ProcessPlan | None,
        tuning: Tuning | None,
    ) -> None:
        self.settings = settings
        self.tuning = tuning = tuning if tuning is not None else settings.tuning()
        self.plan = plan if plan is not None else ProcessPlan()  # which process of the broker this is
        self.memo_store = memo_store if memo_store is not None else MemoValues()  # in memory, unless a file is given
        bounds = settings.limits
        self.hub = Hub(Turns())
        self.hub.clock = time.perf_counter  # work is charged by the time it takes, and by its price at least
        extensions = Extensions(
            credit=tuning.mdx_max_credit,
            cancel=True,
            deadline=True,
            give_back=True,
            key=True,
            options=True,
            cancel_jobs=True,
            deadline_jobs=True,
            window=True,
            fail=True,
            origin=True,
            catalog=True,
            progress=True,
            max_message=bounds.max_message,
        )
        self.bounds = Bounds(
            bounds.max_message, tuning.max_frames, bounds.max_message, tuning.max_handshake, extensions.encode()
        )
        self.choke = limits.CHOKE_UNSENT
        self.max_unsent = bounds.max_unsent
        self.health = Health()
        self.broker = Broker(
            time.monotonic(),
            SystemEntropy(),
            settings.policy(),
            tuning,
            recorder,
            wall=time.time() - time.monotonic(),
        )
        self.broker.memory.attach(self.hub)
        self.broker.siblings.become(self.plan.index, self.plan.count, os.getpid())
        # What an earlier run of this broker has started is not known: starts that are limited by a rate wait until its window is over.
        self.broker.limiter.start_at(self.broker.now)
        self.access: AccessControl | None = None
        self.pacer = HandshakePacer()
        if settings.access:
            self.access = AccessControl(
                settings.access, [listener.address for listener in settings.listeners()], now=time.monotonic()
            )
            self.hub.pacer = self.pacer
            self.broker.access.replace(self.access.file.rules)
        self.job_store: JobStore | None = None
        self.connections: dict[BaseConnection, None] = {}
        self.max_connections = bounds.max_connections
        self.overdue = OverdueConnections(tuning.handshake_time)
        self.backed_up: dict[BaseConnection, None] = {}  # connections whose peers read more slowly than we write
        self.find_story: Find | None = None  # looks up a request in the journal, if there is one
        self.search_journal: Search | None = None  # searches finished requests in it
        self.ipc_peers = 0
        self.bytes_sent = 0
        self.awake = False  # something happened in this turn
        self._scheduled = False  # the flush at the end of the turn is scheduled
        self.idle_connections = IdleConnections()
        self.empty = asyncio.Event()  # no connection is left
        self.disconnects: DisconnectWatch | None = None  # of connections that are not being read
        self.hand_over: Callable[[Any, bytes, int], None] | None = None  # to process 0 of this broker

    def flush(self) -> None:
        """The end of a turn."""
        raise NotImplementedError

    def wake(self) -> None:
        """Called at the first event of a turn: reads the clock and schedules the flush at the end of the turn."""
        if not self.awake:
            self.awake = True
            self.hub.now = self.broker.now = time.monotonic()
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.flush)

    def denied(self, what: str) -> None:
        """Counts a peer that access control rejected."""
        denied = self.broker.counters.denied
        denied[what] = denied.get(what, 0) + 1

    def count(self) -> None:
        """Passes the byte counts of the sockets to the monitor."""
        self.broker.counters.bytes_received = self.hub.received
        self.broker.counters.bytes_sent = self.bytes_sent

    def admit(self, connection: BaseConnection) -> bool:
        if self.health.leaving and connection.outgoing:
            return False
        if len(self.connections) >= self.max_connections and not self._make_room():
            short = self.max_connections < self.settings.limits.max_connections
            why = "the limit of open files is reached (ulimit -n)" if short else "limits.max_connections reached"
            say(LOG, logging.WARNING, "connection refused", peer=connection.peer, why=why)
            self.broker.counters.connections_refused += 1
            return False
        self.broker.counters.connections_accepted += 1
        connection.since = time.monotonic()
        self.connections[connection] = None
        self.overdue.began_handshake(connection, connection.since)
        return True

    def _make_room(self) -> bool:
        """Closes an idle connection, if there is one."""
        idle = self.idle_connections.victim(self.connections, time.monotonic())
        if idle is None:
            return False
        say(LOG, logging.WARNING, "idle connection closed", peer=idle.peer, why="limits.max_connections reached")
        self.connections.pop(idle)  # its slot is free now
        idle.transport.abort()
        return True

    def forget(self, connection: BaseConnection) -> None:
        self.connections.pop(connection, None)
        self.idle_connections.forget(connection)
        self.overdue.forget(connection)
        self.backed_up.pop(connection, None)
        if connection.watched >= 0 and self.disconnects is not None:
            self.disconnects.unwatch(connection)
        if not self.connections:
            self.empty.set()
