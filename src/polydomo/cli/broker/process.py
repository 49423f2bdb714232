"""One process of a broker that has several. ``supervisor.py`` runs it as ``python -m polydomo.cli.broker.process FD NAME``.

It reads its settings and its ``ProcessPlan`` from the socket FD, runs a broker, and reports over the same socket. It stops if the
supervisor dies.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import pickle
import signal
import socket
import sys
from typing import TYPE_CHECKING

from polydomo import limits
from polydomo.cli.common.exit_status import USAGE
from polydomo.errors import SettingError
from polydomo.server import logs, resources
from polydomo.server.history_file import HistoryFile
from polydomo.server.processes.plan import ProcessPlan
from polydomo.server.processes.processes import Others
from polydomo.server.settings.settings import Settings

if TYPE_CHECKING:
    from polydomo.cli.broker.broker_journal import BrokerJournal
    from polydomo.server.server import BrokerServer

LOG = logs.get("server")


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    settings, plan = receive(control)
    logs.setup(settings.log_json, settings.log_level, process=plan.index)
    try:
        run(settings, plan, control)
    except SettingError as error:
        print(f"polydomo: {error}", file=sys.stderr, flush=True)
        raise SystemExit(USAGE) from None


def receive(control: socket.socket) -> tuple[Settings, ProcessPlan]:
    """From the supervisor, which is the same program and the same user: so it may be a pickle."""
    with control.makefile("rb", buffering=0) as file:
        size = int.from_bytes(_exactly(file, 4), "big")
        settings, plan = pickle.loads(_exactly(file, size))
    return settings, plan


def _exactly(file: object, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = file.read(size - len(found))  # type: ignore[attr-defined]
        if not piece:
            raise SystemExit(1)  # the supervisor has exited
        found += piece
    return found


def run(settings: Settings, plan: ProcessPlan, control: socket.socket) -> None:
    from polydomo.cli.broker import broker_journal
    from polydomo.cli.broker.up import open_memo, raise_file_limit, run_to_end, spare_pandas
    from polydomo.protocols.memo.store_api import MemoValues
    from polydomo.server.processes.processes import pass_jobs_on
    from polydomo.server.server import BrokerServer

    raise_file_limit()
    os.umask(0o077)
    with broker_journal.open_journal(settings, plan) as kept:
        if kept.journal is not None:
            spare_pandas()
        memo = open_memo(settings) if plan.index == 0 else None
        try:
            server = BrokerServer(settings, kept.recorder, memo if memo is not None else MemoValues(), plan)
            if plan.index == 0:
                server.keep_jobs()
            else:
                pass_jobs_on(server)
            run_to_end(serve(server, kept, control))
        except (OSError, MemoryError) as error:
            raise SettingError(f"the broker cannot start: {resources.remedy(error)}") from None
        finally:
            if memo is not None:
                memo.close()


async def serve(server: "BrokerServer", kept: "BrokerJournal", control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.uncaught)
    stop: asyncio.Future[float] = loop.create_future()
    reader, writer = await asyncio.open_connection(sock=control)

    def report(**message: object) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            writer.write(json.dumps(message).encode() + b"\n")

    others = Others(lambda idle: report(idle=idle))

    def ask_to_stop(grace: float) -> None:
        if not stop.done():
            stop.set_result(grace)

    async def obey() -> None:
        """Reads messages of the supervisor; the process stops when the supervisor exits."""
        while line := await reader.readline():
            message = json.loads(line)
            if "stop" in message:
                ask_to_stop(message["stop"])
            if "finish" in message:
                others.all_finished.set()
        logs.say(LOG, logging.WARNING, "the supervisor has exited, stopping")
        stop_alone()

    def stop_alone() -> None:
        others.all_finished.set()
        ask_to_stop(server.settings.grace)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_alone)
    if server.access is not None:
        loop.add_signal_handler(signal.SIGHUP, server.reload)
    kept.begin(server)
    history = HistoryFile(server)
    history.load()
    await server.start()
    history.begin()
    kept.tell()
    obeying = loop.create_task(obey())
    assert server.processes is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limits.PROCESS_START / 2):
            while not server.processes.joined() and not stop.done():
                await asyncio.sleep(limits.PROCESS_LOOK)
    report(ready=os.getpid())
    gc.collect()
    gc.freeze()  # see ``up.serve``
    grace = await stop
    try:
        alone = others.all_finished.is_set()
        await server.stop(grace, None if alone else others)
        await history.end()
    finally:
        await kept.end()
        obeying.cancel()
        writer.close()


if __name__ == "__main__":
    main()
