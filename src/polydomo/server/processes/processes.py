"""One broker in several processes: how each of them is connected to the others.

The supervisor (``cli.broker.supervisor``) starts the processes and gives each a ``ProcessPlan``. All bind the same TCP ports with
SO_REUSEPORT, so that the kernel distributes new connections among them; ``ipc://`` sockets are inherited from the supervisor, and the
process that is free accepts. Each process listens on a socket file in a private directory, and connects to those with a lower index: a
bridge between each two of them (``broker/cluster/siblings.py``).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from polydomo import limits
from polydomo.errors import SettingError
from polydomo.model.listener_roles import SIBLING
from polydomo.model.records import Session
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.server.connections import listening
from polydomo.server.connections.connection import Connection
from polydomo.server.connections.outgoing import OutgoingConnection
from polydomo.server.host import Host
from polydomo.server.job_store import OFF
from polydomo.server.processes.handover import Handover, HandoverReceiver
from polydomo.wire.address import IPC, Address
from polydomo.wire.link import Link


def pass_jobs_on(server: Host) -> None:
    """In a process without the job store: durable requests go to process 0. Called before ``start``."""
    settings = server.settings
    if settings.store != OFF:
        server.broker.relay_jobs(settings.by_service("durable"))


class Others:
    """Coordinates the shutdown of all processes: each reports when its requests have finished, and ends when all have reported."""

    def __init__(self, report: Callable[[bool], None]) -> None:
        self._report = report
        self.all_finished = asyncio.Event()

    async def finished(self, idle: Callable[[], bool], end: float) -> None:
        """Waits until the supervisor says that all processes have finished their requests, or until ``end``."""
        last: bool | None = None
        while not self.all_finished.is_set() and time.monotonic() < end:
            now = idle()
            if now is not last:
                last = now
                self._report(now)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.all_finished.wait(), limits.PROCESS_LOOK)


class Processes:
    """The bridges of this process to the other processes of the broker."""

    def __init__(self, server: Host, render_metrics: Callable[[], bytes]) -> None:
        self._server = server
        self._plan = server.plan
        self._calls: list[OutgoingConnection] = []
        self._listening: asyncio.Server | None = None
        self._receiver: HandoverReceiver | None = None
        self.handover: Handover | None = None
        server.broker.siblings.render_metrics = render_metrics

    async def start(self) -> None:
        """Raises SettingError."""
        server, plan = self._server, self._plan
        path = plan.socket_of(plan.index)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of this process before it was restarted
        try:
            self._listening = await server.loop.create_unix_server(
                lambda: Connection(server, True, SIBLING, True), path=str(path)
            )
        except OSError as error:
            raise SettingError(f"processes: cannot listen on {path}: {listening.reason(error)}") from None
        if plan.index == 0:
            self._receiver = HandoverReceiver(server, plan.directory)
            self._receiver.start()
        else:
            self.handover = Handover(server, plan.directory)
            server.hand_over = self.handover.give
        self._calls = [self._join(index) for index in range(plan.index)]

    def _join(self, index: int) -> OutgoingConnection:
        server = self._server

        def session(link: Link) -> Session:
            return BridgeSession(server.broker, link, caller=True, sibling=True)

        address = Address(IPC, path=str(self._plan.socket_of(index)))
        return OutgoingConnection(server, address, b"DEALER", f"process {index}", session, quiet=True)

    def joined(self) -> bool:
        """Whether there is a bridge to each other process."""
        return len(self._server.broker.siblings.bridges) == self._plan.count - 1

    def stop(self) -> None:
        for call in self._calls:
            call.stop()
        if self._listening is not None:
            self._listening.close()
        if self._receiver is not None:
            self._receiver.stop()
        if self.handover is not None:
            self.handover.stop()
