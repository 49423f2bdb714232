"""``polydomo work``: runs a worker from the shell."""

import asyncio
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import Frame0, To, TypeSize

if TYPE_CHECKING:
    from polydomo.cli.calls.program import Program
    from polydomo.cli.calls.served import Served
    from polydomo.worker.aio import AsyncWorker
    from polydomo.worker.call import Call

STOPPING = "stopping: %d running calls have up to %g s to finish; a second signal ends them at once"
FILES = 64  # used by Python and the event loop, plus a margin
FILES_PER_CALL = 8  # one connection, and both ends of three pipes while a program starts
START_LOOK = 0.01  # seconds; starting a program takes a few milliseconds


def add_to(app: typer.Typer) -> None:
    app.command()(work)


def work(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service to offer.")],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:FUNCTION | -- COMMAND",
            help="A Python function, and further pairs of SERVICE and MODULE:FUNCTION; or a program and its arguments.",
        ),
    ] = None,
    to: To = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            "-p",
            metavar="NAME",
            show_default="mdx",
            help="mdx, mdp1, mdp2, dcp, memo, emqp, or dbp (a service of the catalog).",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-n", metavar="N", min=1, help="Number of calls to serve concurrently.")
    ] = 1,
    prefetch: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Calls to hold beyond those that run, for short calls; not over MDP and memo01."
        ),
    ] = 0,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            show_default="in threads",
            help="Run the functions in N child processes, one call each at a time.",
        ),
    ] = 0,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Each function gets a list of up to N calls and returns a list of results."
        ),
    ] = None,
    wait: Annotated[
        float | None,
        options.time_option("With --batch: time that a batch waits for further calls.  [default: 5ms]", least=0.0),
    ] = None,
    max_calls: Annotated[
        int, typer.Option("--max-calls", metavar="N", min=0, help="Replace a process after N calls.")
    ] = 0,
    max_memory: Annotated[
        int,
        options.size_option("Replace a process that uses more memory after a call, such as 500MiB.", "--max-memory"),
    ] = 0,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="CALLABLE",
            help="With -p emqp: run EventMQ's jobs that name this callable, such as tasks.send_mail, tasks:Mailer.send or tasks.*; may be"
            " given several times.",
        ),
    ] = None,
    connections: Annotated[
        int, typer.Option(metavar="N", min=1, help="Connections to open, if more than the protocol needs.")
    ] = 1,
    echo: Annotated[
        bool, typer.Option("--echo", help="Reply with the request's body instead of running a program.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Send each line of the program's output as a partial reply.")
    ] = False,
    grace: Annotated[
        float, options.time_option("On SIGTERM, time for running calls to finish, such as 30s.", least=0.0)
    ] = 10.0,
    publish_errors: Annotated[
        bool,
        typer.Option(
            "--publish-stderr",
            help="Publish each line of the program's standard error as a log record, for `polydomo logs`. With --processes: what functions"
            " print and log.",
        ),
    ] = False,
    type_size: TypeSize = None,
    frame0: Frame0 = None,
    worker_name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the worker, shown by `polydomo workers`.")
    ] = "",
    log_json: Annotated[bool, typer.Option("--log-json", help="Write logs as JSON lines.")] = False,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
) -> None:
    """Offer a service with a Python function or a program.

    A program gets the request body as its standard input, and its output is the reply; if it exits with a nonzero status, the call fails
    with the last line of its standard error. The frames of a body are concatenated. A function is one that a `Worker` in Python takes;
    its module is imported from the current directory, too. With --processes, a function whose call is cancelled, or whose time is over,
    ends with its process. With -p emqp and --allow, the worker is a job manager: SERVICE is a queue, and further words are more queues.

    The worker runs until SIGTERM or Ctrl-C, and reconnects whenever the broker comes back. A second signal stops it, its programs and its
    processes at once.

    **Examples**

    - `polydomo work echo --echo`
    - `polydomo work upper -- tr a-z A-Z`
    - `polydomo work resize --concurrency 4 -- convert - -resize 50% -`
    - `polydomo work build --publish-stderr -- make`
    - `polydomo work score model:score --processes 4 --max-calls 1000 --max-memory 500MiB`
    - `polydomo work embed model:embed --batch 32 --wait 5ms`
    - `polydomo work resize images:resize thumbnail images:thumbnail --processes 4`
    - `polydomo work default mail -p emqp --allow tasks.send_mail --allow 'reports.*' --processes 4`
    """
    from polydomo.cli.broker.up import fast_loop, raise_file_limit
    from polydomo.cli.calls import served
    from polydomo.errors import SettingError
    from polydomo.server import logs
    from polydomo.worker.aio import AsyncWorker

    url = options.address(to)
    name = options.worker_protocol_name(protocol)
    offered = served.read([service, *(command or [])], echo, allow or [], name)
    if command and offered.program and shutil.which(command[0]) is None:
        # A worker whose every call fails immediately is always free, so it would attract most requests of the service.
        raise SettingError(f"work: program not found: {command[0]!r}")
    for flag, given in (("--lines", lines), ("--publish-stderr", publish_errors and not processes)):
        if given and not offered.program:
            raise SettingError(f"{flag}: applies to a program" + (", or to --processes" if publish_errors else ""))
    if processes and not offered.functions:
        raise SettingError("--processes: runs Python functions; use --concurrency for a program")
    if batch is not None and not offered.functions:
        raise SettingError("--batch: passes lists of calls to Python functions, and this worker has none")
    if wait is not None and batch is None:
        raise SettingError("--wait: belongs to --batch")
    level = options.read_log_level(log_level)
    more = {
        **options.of_protocol(name, type_size, frame0),
        "name": worker_name,
        "prefetch": prefetch,
        "connections": connections,
        "concurrency": concurrency,
        "processes": processes,
        "max_calls": max_calls,
        "max_memory": max_memory,
        "grace": grace,
    }
    logs.setup(log_json, level)
    if offered.functions:
        logs.share(level)
    raise_file_limit(FILES + FILES_PER_CALL * max(concurrency, processes))
    logging.getLogger("polydomo.worker").addFilter(RepeatedLineFilter())
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        publish_to = url if publish_errors else ""
        runner.run(serve(offered, lines, (batch, wait), publish_to, lambda: AsyncWorker(url, name, **more)))


async def serve(
    offered: "Served",
    lines: bool,
    batches: tuple[int | None, float | None],
    publish_to: str,
    make_worker: "Callable[[], AsyncWorker]",
) -> None:
    """Serves until a signal. Functions get batches (how many calls, and how long to wait for them), unless None. What programs write to
    standard error, and functions print and log, is published at ``publish_to``, unless empty."""
    from polydomo.cli.calls.program import Program

    worker = make_worker()
    words = offered.program
    command = Program(words, publisher_of_lines(publish_to, words[0]) if publish_to else None) if words else None
    if command is not None:
        worker.add(offered.names[0], command.lines if lines else command.whole)
    elif offered.functions:
        for service, function in offered.functions.items():
            worker.add(service, function, batch=batches[0], wait=batches[1])
        worker.on_output = shower_of_lines(publish_to)
    else:
        for service in offered.names:
            worker.add(service, echo_back)
    stop_on_signals(worker, command)
    hint = asyncio.ensure_future(warn_without_broker(worker))
    try:
        await worker.run()
    finally:
        hint.cancel()
        if command is not None:
            command.guard.close()


def shower_of_lines(publish_to: str) -> "Callable[[int, bytes], None]":
    """Writes what functions print to our own streams, and publishes it, with what they log, at ``publish_to``, unless empty."""
    from polydomo.worker.processes.output import show

    if not publish_to:
        return show
    from polydomo.logs import Handler
    from polydomo.worker.call import running

    handler = Handler(publish_to)
    handler.addFilter(lambda record: running() is not None)
    logging.getLogger().addHandler(handler)
    publish = publisher_of_lines(publish_to, "output")

    def show_and_publish(stream: int, line: bytes) -> None:
        show(stream, line)
        publish(line.decode("utf-8", "backslashreplace").rstrip())

    return show_and_publish


def publisher_of_lines(url: str, program: str) -> "Callable[[str], None]":
    """Publishes lines as log records of the current service and request."""
    from polydomo.logs import Handler

    log = logging.getLogger(os.path.basename(program))
    log.propagate = False  # they are already on standard error
    log.setLevel(logging.INFO)
    log.addHandler(Handler(url))
    return lambda line: log.info("%s", line)


async def echo_back(call: "Call") -> list[bytes]:
    return call


def stop_on_signals(worker: "AsyncWorker", command: "Program | None") -> None:
    """The first signal lets running calls finish; the second stops the worker at once."""
    seen: list[int] = []

    log = logging.getLogger("polydomo.worker")
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            if command is not None and (busy := len(command.running) + command.starting):
                log.info(STOPPING, busy, worker.grace)
            worker.stop()
        elif len(seen) == 2:
            leave(number)

    def leave(number: int) -> None:
        if command is not None:
            command.kill()
            if command.starting:  # a program that is being started must not outlive this process
                loop.call_later(START_LOOK, leave, number)
                return
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


async def warn_without_broker(worker: "AsyncWorker") -> None:
    """Reports that no broker answers and that the worker waits for one."""
    from polydomo.cli.common.exit_status import not_there, print_error
    from polydomo.limits import CONNECT_TIME

    ready = asyncio.ensure_future(worker.ready())
    refused_time = options.refused_time(worker.url)
    try:
        await asyncio.wait([ready], timeout=refused_time)
        if not worker.refused:
            await asyncio.wait([ready], timeout=CONNECT_TIME - refused_time)
        if not ready.done():
            print_error(f"{not_there(worker.url, accepted=worker.accepted)}; waiting for the broker")
    finally:
        ready.cancel()


class RepeatedLineFilter(logging.Filter):
    """Drops duplicate log lines from several connections, keeping the first. Failures are never dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self.until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        from polydomo.worker.service_connection import FAILURES

        if record.msg in FAILURES:
            return True
        text = record.getMessage()
        if text == self.last and time.monotonic() < self.until:
            return False
        self.last = text
        self.until = time.monotonic() + 1.0
        return True
