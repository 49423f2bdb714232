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
from polydomo.cli.common.options import Frame0, Protocol, To, TypeSize

if TYPE_CHECKING:
    from polydomo.cli.calls.program import Program
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
        typer.Argument(metavar="-- COMMAND", help="The program that serves requests, and its arguments."),
    ] = None,
    to: To = None,
    protocol: Protocol = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-n", metavar="N", min=1, help="Number of calls to serve concurrently.")
    ] = 1,
    prefetch: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Calls to hold beyond those that run, for short calls; not over MDP and memo01."
        ),
    ] = 0,
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
            help="Publish each line of the program's standard error as a log record, for `polydomo logs`.",
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
    """Offer a service with a program: the request body is its standard input, its output is the reply.

    If the program exits with a nonzero status, the call fails with the last line of its standard error. The frames of a body are
    concatenated. The worker runs until SIGTERM or Ctrl-C, and reconnects whenever the broker comes back. A second signal stops it and
    its programs at once.

    **Examples**

    - `polydomo work echo --echo`
    - `polydomo work upper -- tr a-z A-Z`
    - `polydomo work resize --concurrency 4 -- convert - -resize 50% -`
    - `polydomo work build --publish-stderr -- make`
    """
    from polydomo.cli.broker.up import fast_loop, raise_file_limit
    from polydomo.errors import SettingError
    from polydomo.server import logs
    from polydomo.worker.aio import AsyncWorker

    if echo == bool(command):
        raise SettingError("work: give a program after --, or --echo")
    if command and shutil.which(command[0]) is None:
        # A worker whose every call fails immediately is always free, so it would attract most requests of the service.
        raise SettingError(f"work: program not found: {command[0]!r}")
    for flag, given in (("--lines", lines), ("--publish-stderr", publish_errors)):
        if echo and given:
            raise SettingError(f"{flag}: applies to a program, not to --echo")
    level = options.read_log_level(log_level)
    url = options.address(to)
    name = options.worker_protocol_name(protocol)
    more = {
        **options.of_protocol(name, type_size, frame0),
        "name": worker_name,
        "prefetch": prefetch,
        "connections": connections,
        "concurrency": concurrency,
        "grace": grace,
    }
    logs.setup(log_json, level)
    raise_file_limit(FILES + FILES_PER_CALL * concurrency)
    logging.getLogger("polydomo.worker").addFilter(RepeatedLineFilter())
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(
            serve(
                os.fsencode(service),
                command or [],
                lines,
                url if publish_errors else "",
                lambda: AsyncWorker(url, name, **more),
            )
        )


async def serve(
    service: bytes, words: list[str], lines: bool, publish_to: str, make_worker: "Callable[[], AsyncWorker]"
) -> None:
    """Serves with the program ``words``, or as an echo without one. Its standard error is published at ``publish_to``, unless empty."""
    from polydomo.cli.calls.program import Program

    worker = make_worker()
    command = Program(words, publisher_of_lines(publish_to, words[0]) if publish_to else None) if words else None
    if command is None:
        worker.add(service, echo_back)
    elif lines:
        worker.add(service, command.lines)
    else:
        worker.add(service, command.whole)
    stop_on_signals(worker, command)
    hint = asyncio.ensure_future(warn_without_broker(worker))
    try:
        await worker.run()
    finally:
        hint.cancel()
        if command is not None:
            command.guard.close()


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
        from polydomo.worker.service_connection import CALL_FAILED

        if record.msg == CALL_FAILED:
            return True
        text = record.getMessage()
        if text == self.last and time.monotonic() < self.until:
            return False
        self.last = text
        self.until = time.monotonic() + 1.0
        return True
