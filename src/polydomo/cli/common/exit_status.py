"""Exit statuses of commands, and one-line error messages instead of tracebacks."""

import asyncio
import errno
import io
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from polydomo.cli import loading
from polydomo.cli.common.security import add_to_command
from polydomo.cli.common.values import pass_plain
from polydomo.errors import (
    CallTimeout,
    ConnectionLost,
    NoSuchJob,
    NoSuchService,
    NotConnected,
    PolydomoError,
    SettingError,
)
from polydomo.visible import visible

OK = 0
FAILED = 1  # the call failed, or another error occurred
USAGE = 2  # a flag, a setting or an address is invalid, or the broker cannot start
TIMEOUT = 3
NO_SERVICE = 4
LOST = 5  # no broker answers, or the connection broke
INTERRUPTED = 130  # Ctrl-C, by the convention of shells

AGAIN = 0.5  # seconds between two attempts to reach a broker that is gone

VALUE_OPTIONAL = {"--beacon": "on"}  # options whose value is optional, and the value if it is left out

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the output device is full

# Error texts of operating systems and asyncio if no program listens. They are replaced by "no broker answers".
NOT_LISTENING = ("refused", "No such file", "Connect call failed")


def ignore_late_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Ignores SIGTERM and SIGINT from now on, so that a signal during exit does not change the exit status. Called after an orderly stop.

    Closing the event loop would restore the default action, which kills the process. SIG_IGN, not a Python handler: the interpreter removes
    Python handlers when it exits."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # no signal may arrive between the two calls
    for number in numbers:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def status_of(error: PolydomoError) -> int:
    if isinstance(error, SettingError):
        return USAGE
    if isinstance(error, ConnectionLost):
        return LOST
    if isinstance(error, NoSuchService | NoSuchJob):
        return NO_SERVICE
    if isinstance(error, CallTimeout):
        return TIMEOUT
    return FAILED


def print_error(text: str) -> None:
    """Prints one line on standard error. Control characters in the text are escaped."""
    line = " ".join(text.split())
    typer.echo(f"polydomo: {visible(line)}", err=True)


@contextmanager
def needs_broker(url: str) -> Iterator[None]:
    """Adds advice to the error that is raised inside if the broker cannot be reached."""
    try:
        yield
    except NotConnected as error:
        raise NotConnected(not_there(url, str(error), error.accepted)) from None


def following(url: str) -> None:
    """On a terminal, prints that the command is waiting for events."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        print_error(f"following {url}; press Ctrl-C to stop")


async def through_restarts(follow: Callable[[], Awaitable[None]]) -> None:
    """Calls ``follow`` until it returns. The first connection must succeed; a later loss is reported, and the command reconnects."""
    connected = False
    while True:
        try:
            await follow()
            return
        except NotConnected:
            if not connected:
                raise
        except ConnectionLost as error:
            connected = True
            print_error(f"{error}; waiting for the broker")
        await asyncio.sleep(AGAIN)


def lost(url: str, error: PolydomoError) -> str:
    """Why a broker stopped answering, without the operating system's wording."""
    if isinstance(error, NotConnected):
        return no_answer(url, str(error))
    return str(error)


def no_answer(url: str, why: str = "") -> str:
    """
    >>> no_answer("tcp://127.0.0.1:5246", "tcp://127.0.0.1:5246: [Errno 111] Connection refused")
    'no broker answers at tcp://127.0.0.1:5246'
    >>> no_answer("tcp://far:1", "tcp://far:1: no route to host")
    'no broker answers at tcp://far:1 (no route to host)'
    """
    reason = why.removeprefix(f"{url}: ")
    if reason and not any(plain in reason for plain in NOT_LISTENING):
        return f"no broker answers at {url} ({reason})"
    return f"no broker answers at {url}"


def not_there(url: str, why: str = "", accepted: bool = False) -> str:
    """What failed and what to do. ``accepted``: a program accepted the connection, so a broker cannot be started at that address."""
    from polydomo.client.aio import DEFAULT_URL
    from polydomo.wire.address import is_loopback, parse_url

    reason = why.removeprefix(f"{url}: ")
    if url.startswith("discover://"):
        return f"{reason or 'no broker was discovered'}; start one with `polydomo up --beacon`"
    text = no_answer(url, why)
    if accepted:
        return f"{text}; another program may use this address: stop it, or start the broker at another address"
    if url == DEFAULT_URL:
        return f"{text}; start one with `polydomo up`"
    if "," in url:
        return f"{text}; check the addresses, or start a broker at one of them with `polydomo up`"
    if is_loopback(parse_url(url)):
        return f"{text}; start one with `polydomo up --listen {url}`"
    return f"{text}; check the address, or start a broker there with `polydomo up`"


def typed() -> str:
    """The command as the user types it: its name, or its path if it is not on PATH (``make up`` runs it from .venv)."""
    beside = Path(sys.executable).with_name("polydomo")
    if shutil.which("polydomo") or not beside.exists():
        return "polydomo"
    here = Path.cwd()
    return str(beside.relative_to(here)) if beside.is_relative_to(here) and here != Path("/") else str(beside)


def misuse(error: Any, ctx: Any = None) -> str:
    """The message for an invalid command line; empty for any other error.

    The exception's class depends on the version of typer, which either vendors click or imports it.
    """
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if "UsageError" not in kinds or "NoArgsIsHelpError" in kinds:
        return ""
    text: str = error.format_message()
    path = error.ctx.command_path if error.ctx is not None else "polydomo"
    if error.ctx is None and ctx is not None and ctx.invoked_subcommand:  # click's parser does not name the subcommand
        path += f" {ctx.invoked_subcommand}"
    return f"{text.rstrip('.')}{' See' if text.endswith('?') else '; see'} `{path} --help`"


class Commands(TyperGroup):
    """Turns the errors of every command into one line and an exit status. Ctrl-C prints nothing."""

    def get_params(self, ctx: Any) -> Any:
        return pass_plain(without_values(super().get_params(ctx)))

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands. Imports all of them, because callers also show their help."""
        self.commands.update({name: loading.find(name) for name in loading.names()})
        return loading.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = loading.find(cmd_name)
        if command is None:
            self.list_commands(ctx)  # typer suggests a similar name from ``self.commands``
        else:
            for shown in (command, *getattr(command, "commands", {}).values()):
                add_to_command(shown)
                pass_plain(without_values(shown.get_params(ctx)))
        return command

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        open_streams()
        write_everything()
        write_anything()
        try:
            return super().make_context(info_name, with_optional_values(args), parent, **extra)
        except Exception as error:
            if not misuse(error):
                raise
            print_error(misuse(error))
            raise typer.Exit(USAGE) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PolydomoError as error:
            print_error(str(error) or type(error).__name__)
            raise typer.Exit(status_of(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            give_up_output()  # `polydomo workers | head`: the reader has exited
            raise typer.Exit(OK) from None
        except OSError as error:
            if error.errno not in FULL:
                if not error.filename:
                    raise
                print_error(f"cannot use {error.filename}: {error.strerror}")
                raise typer.Exit(FAILED) from None
            give_up_output()
            print_error(f"cannot write the output: {error.strerror}")
            raise typer.Exit(FAILED) from None
        except Exception as error:
            if not misuse(error):
                raise
            print_error(misuse(error, ctx))
            raise typer.Exit(USAGE) from None


def with_optional_values(args: list[str]) -> list[str]:
    """
    >>> with_optional_values(["up", "--beacon", "--log-json"]), with_optional_values(["up", "--beacon", "127.0.0.1:1"])
    (['up', '--beacon=on', '--log-json'], ['up', '--beacon', '127.0.0.1:1'])
    """
    found = list(args)
    for i, word in enumerate(args):
        if word in VALUE_OPTIONAL and (i + 1 == len(args) or args[i + 1].startswith("-")):
            found[i] = f"{word}={VALUE_OPTIONAL[word]}"
    return found


def give_up_output() -> None:
    """Discards the rest of the output, because Python flushes standard output again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_streams() -> None:
    """Opens /dev/null for standard streams that are closed. Otherwise the first sockets would get descriptors 0 to 2, and libuv
    aborts when it closes one of those."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def write_everything() -> None:
    """Buffers the output also with PYTHONUNBUFFERED. Without a buffer, Python passes each write to the system once and ignores how much was
    written: a command that is stopped and continued, or gets another signal, while it writes to a pipe would lose the rest."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        raw = getattr(stream, "buffer", None)
        if isinstance(stream, io.TextIOWrapper) and isinstance(raw, io.FileIO):
            buffered = io.BufferedWriter(os.fdopen(raw.fileno(), "wb", buffering=0, closefd=False))
            setattr(
                sys,
                name,
                io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=True, write_through=True),
            )


def write_anything() -> None:
    """Replaces characters that the output encoding cannot represent, so that a service name cannot make a command fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace" if stream.isatty() else "backslashreplace")


def without_values(params: Any) -> Any:
    """Hides the value names of flags and the Python types of arguments in the help."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
        if param.param_type_name == "argument" and hasattr(param, "display_type_rich"):
            param.display_type_rich = lambda **_: None
    return params
