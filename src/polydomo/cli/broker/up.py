"""``polydomo up``: the broker."""

import asyncio
import gc
import logging
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.cli.broker.broker_journal import BrokerJournal
    from polydomo.server.server import BrokerServer
    from polydomo.server.settings.settings import Settings
    from polydomo.stores.memo import MemoStore
    from polydomo.stores.no_memo import NoMemoStore

Loop = Callable[[], asyncio.AbstractEventLoop]


def add_to(app: typer.Typer) -> None:
    app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(up)


def up(
    ctx: typer.Context,
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Address to listen on; repeatable.  [default: tcp://127.0.0.1:5246]"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Data directory of the broker.  [default: ./polydomo-data]")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="TOML file with settings.")] = None,
    access: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Access file: which peers may connect, and their rights (`polydomo access init` writes one).",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Listen on addresses that other machines can reach without access control."),
    ] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Write logs as JSON lines.")] = False,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.  [default: info]")
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="What the journal records: off, requests or messages.  [default: requests]"),
    ] = None,
    bridge: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Address of another broker to bridge to; repeatable."),
    ] = None,
    beacon: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:PORT]", help="Broadcast the broker's address over UDP every second, for `polydomo discover`."
        ),
    ] = None,
    processes: Annotated[
        str | None,
        typer.Option(metavar="N|auto", help="Broker processes, each on its own core.  [default: 1]"),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="On SIGTERM, time for requests in flight to finish.  [default: 10s]"),
    ] = None,
) -> None:
    """Start a broker.

    It serves every protocol on one port until SIGTERM or Ctrl-C. Then it refuses new connections, lets requests in flight finish
    within the grace time, disconnects its workers, and exits with status 0. A second signal stops it at once.

    Every setting listed by `polydomo config` is also a flag, such as `--limits-max-message 16MiB`.

    **Examples**

    - `polydomo up`
    - `polydomo up --listen tcp://127.0.0.1:6000 --listen ipc:///run/polydomo.sock`
    - `polydomo up --config /etc/polydomo.toml --log-json`
    - `polydomo up --beacon`: broadcasts the address over UDP; `--beacon HOST:PORT` sends it to that address
    - `polydomo up --bridge tcp://other.example:5246`
    - `polydomo up --listen tcp://0.0.0.0:5246 --access access.toml`
    - `polydomo up --processes auto`: one process for each core
    """
    from polydomo.server import resources

    raise_file_limit()
    resources.need_files()  # check before loading or creating anything, so that a failed start leaves nothing half done
    from polydomo.cli.broker import broker_journal
    from polydomo.cli.common import flags
    from polydomo.server import logs
    from polydomo.server.data_directory import prepare_data
    from polydomo.server.server import BrokerServer

    settings = flags.load(
        config,
        {
            "listen": listen or None,
            "bridge.to": bridge or None,
            "data": data,
            "access": access,
            "insecure": insecure or None,
            "log_json": log_json or None,
            "log_level": log_level,
            "grace": grace,
            "processes": processes,
            "dbp.beacon": beacon,
            "journal.level": journal,
        },
        ctx.args,
    )
    logs.setup(settings.log_json, settings.log_level)
    log = logs.get("server")
    for notice in settings.notices:
        logs.say(log, logging.WARNING, notice.message, key=notice.key, source=notice.source, why=notice.why)
    os.umask(0o077)  # files that the broker creates may contain request bodies: only its own user may read them
    prepare_data(settings.data)
    count = process_count(settings)
    if count > 1:
        from polydomo.cli.broker import supervisor

        supervisor.run(settings, count)
        return
    stage = Stage()
    try:
        with broker_journal.open_journal(settings) as kept:
            if kept.journal is not None:
                spare_pandas()
            memo = open_memo(settings)
            try:
                server = BrokerServer(settings, kept.recorder, memo)
                server.keep_jobs()
                run_to_end(serve(server, kept, stage))
            finally:
                memo.close()
    except (OSError, MemoryError) as error:
        raise SettingError(f"the broker cannot {stage.name}: {resources.remedy(error)}") from None


def process_count(settings: "Settings") -> int:
    """``auto`` is the number of cores that this process may use."""
    from polydomo.limits import MAX_PROCESSES
    from polydomo.server.resources import available_cores

    return settings.processes or min(available_cores(), MAX_PROCESSES)


def open_memo(settings: "Settings") -> "MemoStore | NoMemoStore":
    """The store for MemoDB and memoised services. Raises SettingError if services are memoised; otherwise a broker whose store cannot be
    opened, for example because the disk is full, runs without it."""
    from polydomo.server import logs
    from polydomo.server.data_directory import shares_of
    from polydomo.stores.memo import FILE, MemoStore
    from polydomo.stores.no_memo import NoMemoStore

    try:
        store = MemoStore(Path(settings.data) / FILE, time.time, settings.memo.max_bytes, settings.memo.max_age)
        store.disk_share = shares_of(settings.data, settings.limits.max_disk).memo
        return store
    except SettingError as error:
        if settings.chosen("memo"):
            raise
        logs.say(logs.get("memo"), logging.WARNING, "no memo store is kept", why=str(error))
        return NoMemoStore(str(error))


def run_to_end(broker: Coroutine[None, None, None]) -> None:
    """Runs the coroutine in a new event loop. If the loop cannot get the system resources it needs, only that error is reported."""
    try:
        runner = asyncio.Runner(loop_factory=fast_loop())
        try:
            runner.run(broker)
        except (OSError, MemoryError):
            warnings.simplefilter("ignore")  # suppress warnings about coroutines that never ran
            logging.getLogger("asyncio").disabled = True
            with suppress(OSError, RuntimeError):
                runner.close()
            raise
        except BaseException:
            runner.close()
            raise
        else:
            runner.close()
    finally:
        broker.close()


def fast_loop() -> Loop | None:
    """uvloop's event loop if it is installed; None selects asyncio's default."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class NoPandas(MetaPathFinder):
    """Makes ``import pandas`` fail, as if it were not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not for a broker", name=fullname)


def spare_pandas() -> None:
    """Creates pyarrow's first array while pandas cannot be imported. pyarrow looks for pandas at that moment only, and importing it
    would cost a quarter of a second and 40 MiB that a broker does not need."""
    if "pandas" not in sys.modules:
        finder = NoPandas()
        sys.meta_path.insert(0, finder)
        try:
            with suppress(Exception):  # the journal's writer reports the problem with pyarrow and tries again
                import_module("pyarrow").array([0])
        finally:
            sys.meta_path.remove(finder)


class Stage:
    """The current startup or shutdown stage, for the error message if it fails."""

    name = "start"


async def serve(server: "BrokerServer", kept: "BrokerJournal", stage: Stage) -> None:
    """Runs the broker until a signal arrives. A second signal stops it at once."""
    from polydomo import __version__, native
    from polydomo.cli.common.exit_status import ignore_late_signals
    from polydomo.server import logs
    from polydomo.server.history_file import HistoryFile

    log = logs.get("server")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        name = signal.Signals(number).name
        if stop.is_set():
            logs.say(log, logging.WARNING, "second signal, stopping at once", signal=name)
            logging.shutdown()
            os._exit(128 + number)
        logs.say(log, logging.INFO, "stopping", signal=name, grace=server.settings.grace)
        stop.set()

    loop.set_exception_handler(logs.uncaught)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    if server.access is not None:
        loop.add_signal_handler(signal.SIGHUP, server.reload)
    kept.begin(server)
    history = HistoryFile(server)
    history.load()
    await server.start()
    history.begin()
    kept.tell()
    logs.say(
        log, logging.INFO, "ready", version=__version__, core=native.core(), pid=os.getpid(), loop=type(loop).__module__
    )
    if sys.stderr.isatty() and not server.settings.log_json:
        from polydomo.cli.broker.greeting import greet

        greet(server.urls)
    # Objects created so far live as long as the process. Walking them would make each full garbage collection a pause of 15 ms;
    # freezing them avoids that. The thresholds are unchanged: serving creates no cycles (one young collection in 150,000 requests).
    gc.collect()
    gc.freeze()
    stage.name = "run"
    await stop.wait()
    stage.name = "stop in order"
    try:
        await server.stop(server.settings.grace)
        await history.end()
    finally:
        await kept.end()
    logs.sweep(math.inf)  # nothing is logged after the final line
    ignore_late_signals(loop)
    logs.say(log, logging.INFO, "stopped")


def raise_file_limit(enough: int | None = None) -> None:
    """Raises the soft limit of open files to ``enough``, or to the hard limit. Every connection is an open file, and the usual limit
    of 1,024 is too low."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard
    if enough is not None and soft != resource.RLIM_INFINITY:
        wanted = max(soft, enough if hard == resource.RLIM_INFINITY else min(enough, hard))
    if soft not in (wanted, resource.RLIM_INFINITY):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass  # some systems cap the soft limit below the hard one; then it is unchanged
