"""Runs the broker on sockets: listeners, one flush per turn of the event loop, one timer, and orderly shutdown."""

import asyncio
import contextlib
import logging
import resource
import socket
import time

from polydomo import limits
from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.errors import SettingError
from polydomo.model.listener_roles import SHARED, Role
from polydomo.model.tuning import Tuning
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.server import logs
from polydomo.server.access import reload as access_reload
from polydomo.server.connections import beacon, listening
from polydomo.server.connections.connection import Connection
from polydomo.server.connections.disconnect_watch import DisconnectWatch
from polydomo.server.connections.outgoing import CatalogConnections, OutgoingConnection, bridge_to
from polydomo.server.connections.udp import Heartbeats
from polydomo.server.event_log import EventLog
from polydomo.server.host import Host
from polydomo.server.http.metrics import MetricsPage
from polydomo.server.http.site import build_site
from polydomo.server.job_store import JobStore, backend_of
from polydomo.server.logs import say, trouble
from polydomo.server.processes.plan import ProcessPlan
from polydomo.server.processes.processes import Others, Processes
from polydomo.server.resources import MORE_FILES, open_files, remedy, shortage
from polydomo.server.settings.settings import Listener, Settings
from polydomo.wire.address import IPC, TCP, Address, is_loopback
from polydomo.wire.link import Link

LOG = logs.get("server")


class BrokerServer(Host):
    """One broker on any number of listeners, in the running event loop.

    >>> async def serve() -> None:
    ...     server = BrokerServer(Settings(listen=["tcp://127.0.0.1:0"]))
    ...     await server.start()
    ...     print(server.urls)
    ...     await server.stop()
    """

    def __init__(
        self,
        settings: Settings,
        recorder: Recorder | None = None,
        memo_store: MemoValues | None = None,
        plan: ProcessPlan | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        super().__init__(settings, recorder if recorder is not None else EventLog(), memo_store, plan, tuning)
        self.catalog_connections = CatalogConnections(self)
        self.bridges: list[OutgoingConnection] = []  # to other brokers
        self.metrics = MetricsPage(self)
        self.site = build_site(self, self.metrics.get)  # the HTTP endpoints
        self.urls: list[str] = []
        self.places: dict[str, str] = {}  # addresses of the listeners with a role, by role
        self.beacon: beacon.Beacon | None = None
        self.heartbeats: Heartbeats | None = None
        self._waiting: list[Link] = []  # clients whose output is held back
        self._turns = 0  # number of turns it has been held back
        self._listening: list[listening.Listening] = []
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._sweeper: asyncio.TimerHandle | None = None
        self._seen_running = 0.0  # when ``_look_for_suspension`` was last called
        self._idle = asyncio.Event()  # no request is open
        self._short = False  # the last check found that no file can be opened
        self.processes: Processes | None = None  # the other processes of this broker

    def keep_jobs(self) -> None:
        """Opens the job store of the settings, if there is one. Called before ``start``. Raises SettingError."""
        backend = backend_of(self.settings)
        if backend is not None:
            self.job_store = JobStore(self.settings, self.broker, self.wake, backend)

    # --- start and stop -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens all listeners, or raises SettingError and opens none."""
        self.loop = asyncio.get_running_loop()
        self._memoise()
        self._count_files()
        try:
            self.disconnects = DisconnectWatch(self.loop)
            listeners = self.plan.listeners(self.settings)
            for listener in listeners:
                self._listening.append(await self.plan.bind(listener))
            for listener, bound in zip(listeners, self._listening, strict=True):
                if listener.role is SHARED:
                    self.urls.append(str(bound.address))
                else:
                    self.places[listener.role.name] = str(bound.address)
            self.broker.address = self.urls[0]
            if self.job_store is not None:
                await self.job_store.start()
            for listener, bound in zip(listeners, self._listening, strict=True):
                await self._listen(bound, listener)
            places = zip(listeners, self._listening, strict=True)
            if self.plan.index == 0:
                routers = [bound for listener, bound in places if listener.role.allows_protocol("dbp")]
                await self._open_datagrams(routers)
            if self.plan.index == 0:
                self.bridges = [bridge_to(self, url) for url in self.settings.bridge.to]
            if self.plan.count > 1:
                self.processes = Processes(self, self.metrics.get)
                await self.processes.start()
        except BaseException as error:
            if self.job_store is not None:
                await self.job_store.stop()
            self._close_listeners()
            if self.disconnects is not None:
                self.disconnects.close()
            if isinstance(error, (OSError, MemoryError)):
                raise SettingError(f"the broker cannot start: {remedy(error)}") from None
            raise
        self._seen_running = time.monotonic()
        self._sweep()

    def _memoise(self) -> None:
        settings = self.settings
        names, versions = settings.by_service("memo"), settings.by_service("version")
        if self.broker.memoiser is None:
            if settings.chosen("memo"):
                self.wake()
                self.broker.use_memo(Memoiser(self.broker, self.broker, self.memo_store, names, versions))
            elif self.job_store is not None:
                broker, store = self.broker, self.memo_store
                broker.reuse_replies(lambda: Memoiser(broker, broker, store, names, versions))

    def _count_files(self) -> None:
        """Every connection is an open file: fewer files mean fewer connections. Raises SettingError if there would be next to none."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            return
        least = limits.SPARE_FILES + min(limits.LEAST_CONNECTIONS, self.max_connections)
        if files < least:
            raise SettingError(f"this process may open only {files} files, but a broker needs {least}: {MORE_FILES}")
        # The program that started the broker may have left files open in it.
        spare = max(limits.SPARE_FILES, open_files())
        if files - spare < self.max_connections:
            self.max_connections = max(1, files - spare)
            asked = "limits.max_connections" in self.settings.sources or self.max_connections < limits.FEW_CONNECTIONS
            say(
                LOG,
                logging.WARNING if asked else logging.DEBUG,
                "the limit of open files allows fewer connections than limits.max_connections",
                max_connections=self.max_connections,
                open_files=files,
            )

    async def _listen(self, bound: listening.Listening, listener: Listener) -> None:
        role = listener.role
        ipc = bound.address.kind == IPC
        local = ipc or is_loopback(bound.address)

        def make() -> Connection:
            return self.make_connection(ipc, role, local, listener.address)

        try:
            for sock in bound.sockets:
                if ipc:
                    server = await self.loop.create_unix_server(make, sock=sock, backlog=limits.BACKLOG)
                else:
                    server = await self.loop.create_server(make, sock=sock, backlog=limits.BACKLOG)
                self._servers.append(server)
        except OSError as error:  # two programs may bind a port, but only one can listen on it
            raise SettingError(f"cannot listen on {bound.address}: {listening.reason(error)}") from None
        more = {} if role is SHARED else {"role": role.name}
        level = logging.INFO if self.plan.count == 1 else logging.DEBUG  # of several processes, the supervisor says it
        say(LOG, level, "listening", address=str(bound.address), **more)

    async def _open_datagrams(self, routers: list[listening.Listening]) -> None:
        """Opens the beacon, and heartbeats by UDP beside every listener that speaks DBP over TCP. Raises SettingError."""
        dbp = self.settings.dbp
        routers = [bound for bound in routers if bound.address.kind == TCP]
        reached = [sock for bound in routers for sock in bound.sockets if sock.family == socket.AF_INET]
        if dbp.beacon != "off" and not reached:
            raise SettingError("dbp.beacon: needs a tcp:// listener on IPv4; add one with --listen")
        near = all(is_loopback(bound.address) for bound in routers)
        if dbp.udp and routers:
            to = beacon.place(dbp.broadcast, limits.DBP_BROADCAST_LOCAL if near else limits.DBP_BROADCAST)
            self.heartbeats = Heartbeats(self, to)
            for bound in routers:
                for sock in bound.sockets:
                    await self.heartbeats.listen(sock)
        place = beacon.place(dbp.beacon, limits.BEACON_LOCAL if near else limits.BEACON)
        if place is None:
            return
        host, port = reached[0].getsockname()
        if near and not is_loopback(Address(TCP, place[0], place[1])):
            say(
                LOG,
                logging.WARNING,
                "the beacon reaches other machines, but they cannot reach the broker",
                address=str(routers[0].address),
            )
        try:
            self.beacon = beacon.Beacon(place, host, port, self.tuning.beacon_interval)
        except OSError as error:
            raise SettingError(f"dbp.beacon: cannot send to {place[0]}:{place[1]}: {listening.reason(error)}") from None
        self.beacon.start()

    def _close_datagrams(self) -> None:
        if self.beacon is not None:
            self.beacon.stop()
            self.beacon = None
        if self.heartbeats is not None:
            self.heartbeats.stop()
            self.heartbeats = None

    def make_connection(self, ipc: bool, role: Role, local: bool, listener: Address | None = None) -> Connection:
        return Connection(self, ipc, role, local, listener)

    async def stop(self, grace: float = 0.0, others: Others | None = None) -> None:
        """Rejects new peers, lets requests in flight finish within ``grace`` seconds, sends DISCONNECT to workers, and closes everything.

        Until the requests have finished, the listeners still serve HTTP, so that a health checker sees the shutdown.
        ``others`` are the other processes of the broker: this one serves them until all have finished.
        """
        self.health.leaving = True
        self._close_datagrams()
        self.catalog_connections.stop()
        self.wake()
        self.broker.drain()
        end = time.monotonic() + grace
        while self.broker.open_requests and time.monotonic() < end and others is None:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), end - time.monotonic())
        if others is not None:
            await others.finished(lambda: not self.broker.open_requests, end)
        if self.broker.open_requests:
            say(
                LOG,
                logging.WARNING,
                "grace time is over",
                open_requests=self.broker.open_requests,
            )
        await self.health.seen(end - time.monotonic())
        self._close_listeners()
        self.overdue.closing_time = max(limits.CLOSE_MOST, end - time.monotonic())
        self.wake()
        self.broker.shutdown()
        for call in self.bridges:
            call.stop()
        self.catalog_connections.close()
        if self.processes is not None:
            self.processes.stop()
        self.flush()
        if self.job_store is not None:
            await self.job_store.stop()
            self.flush()
        await self._close_connections()
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        self.pacer.stop()
        if self.disconnects is not None:
            self.disconnects.close()

    async def _close_connections(self) -> None:
        """Closes every connection after its last bytes have been sent. The sweep aborts those whose peers have stopped reading."""
        while self.connections:
            for connection in list(self.connections):
                if not self.overdue.is_closing(connection):
                    connection.close_transport()
                    self.overdue.began_closing(connection, time.monotonic())
            self.empty.clear()  # the event may be set from an earlier time
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.empty.wait(), limits.SWEEP_INTERVAL)

    def _close_listeners(self) -> None:
        for bound in self._listening:
            bound.remove_file()  # remove the socket file first: once the listener is closed, another broker may create its own there
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._close_datagrams()
        for bound in self._listening:
            bound.close()
        self._listening.clear()

    # --- one turn of the loop -----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The end of a turn: resumes stalled peers that may continue, writes all pending output, sets the timer."""
        self.awake = self._scheduled = False
        hub = self.hub
        join = b"".join
        sent = 0
        try:
            for backed_up in list(self.backed_up):
                backed_up.look_at_unsent()
            hub.begin_turn()
            self.broker.end_turn()
            if self.broker.catalog.dialled_version != self.catalog_connections.version:
                self.catalog_connections.follow_soon()
        except Exception:
            trouble(LOG, "internal error", during="a turn")
        resumed = bool(hub.resumed)
        while hub.resumed:
            link = hub.resumed.pop()
            if not link.closed:
                link.owner.go_on(link)
        if self._waiting or len(hub.dirty) >= limits.CROWD:
            self._let_wait()
        while hub.dirty:
            dirty = hub.dirty
            hub.dirty = []
            for link in dirty:
                connection: Connection = link.owner
                try:
                    if link.needs_full_flush:
                        connection.flush(link)
                    else:
                        out = link.take() if link.seals else link.out
                        data = join(out)
                        out.clear()
                        sent += len(data)
                        connection.transport.write(data)
                except Exception:
                    connection.fail()
        self.bytes_sent += sent
        if self.health.leaving and not self.broker.open_requests:
            self._idle.set()
        # Replies of workers that were resumed just now may have made room for paused clients, which the next turn resumes.
        if self.broker.has_more_work() or hub.turns_waiting() or (resumed and self.broker.paused_clients):
            self.wake()  # let other connections run in between
        when = self.broker.next_deadline()
        if (
            when is not None
            and (self._timer is None or when < self._timer_at)
            and not (self.health.leaving and not self.connections)
        ):
            self._set_timer(when)

    def _let_wait(self) -> None:
        """With many clients, collects the replies of several turns for clients that still have queued requests, and writes them at once. A
        write costs more than all other work for a reply, and clients that receive larger batches also send larger batches."""
        hub = self.hub
        waiting = self._waiting
        self._turns += 1
        if self._turns < limits.CROWD_TURNS and len(hub.dirty) >= limits.CROWD and not self.health.leaving:
            clients = [
                link
                for link in hub.dirty
                if not link.handler.worker_count and not link.needs_full_flush and link.handler.has_queued_requests()
            ]
            if len(waiting) + len(clients) >= limits.CROWD_CLIENTS:
                if clients:
                    later = set(clients)
                    hub.dirty = [link for link in hub.dirty if link not in later]
                    waiting += clients
                self._schedule()
                return
        hub.dirty += waiting
        waiting.clear()
        self._turns = 0

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_later(max(0.0, when - time.monotonic()), self._due)

    def _due(self) -> None:
        """A timer is due. Pending input is read first: the process may have been suspended or busy, and a peer is not silent while its
        messages wait to be read. A ``call_soon`` callback runs before the loop polls its sockets (uvloop) or before
        it reads what it found there (asyncio), so it takes two of them to run after the input."""
        self._timer = self.loop.call_soon(self._read_first)

    def _read_first(self) -> None:
        self._timer = self.loop.call_soon(self._advance)

    def _advance(self) -> None:
        self._timer = None
        self.wake()
        try:
            self._look_for_suspension()
            self.broker.run_timers()
        except Exception:
            trouble(LOG, "internal error", during="timers")

    def _look_for_suspension(self) -> None:
        """Called every ``SWEEP_INTERVAL`` seconds, and before timers run. If the last call is longer ago, the process was suspended, or the
        machine was. That time does not count for any deadline of a peer: what it sent is not read yet."""
        now = self.broker.now
        passed, self._seen_running = now - self._seen_running, now
        if passed > limits.SWEEP_INTERVAL + limits.OVERSLEPT:
            self.overdue.postpone(passed)
            self.broker.was_suspended(passed)

    def _sweep(self) -> None:
        """Called every ``SWEEP_INTERVAL`` seconds: closes overdue connections, evicts idle connections, and updates logs and metrics."""
        self.wake()
        now = self.broker.now
        self._look_for_suspension()
        self.overdue.sweep(now)
        if len(self.connections) >= self.max_connections * limits.IDLE_NEAR:
            self.idle_connections.sweep(self.connections, now)
        logs.sweep()
        self._check_files()
        if self.access is not None:
            self.access.tick(now)
            if self.access.changed():
                self.reload()
        try:
            self.site.sweep(now)
            self.count()
            if self.job_store is not None:
                self.job_store.tick()
            self.broker.tick()
        except Exception:
            trouble(LOG, "internal error", during="monitoring")
        self._sweeper = self.loop.call_later(limits.SWEEP_INTERVAL, self._sweep)

    def _check_files(self) -> None:
        """Without a free file descriptor, libuv closes new connections without reporting it. So check, and log it once."""
        error = shortage()
        if error is not None and not self._short:
            say(LOG, logging.WARNING, "connections are not accepted", why=remedy(error))
        elif error is None and self._short:
            say(LOG, logging.INFO, "connections are accepted again")
        self._short = error is not None

    # --- access control -----------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Reloads the access file and applies it to all connections. If it is invalid, logs one line and keeps the old rules."""
        access_reload.reload(self)

    # --- connections --------------------------------------------------------------------------------------------------------
