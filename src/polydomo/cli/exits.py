"""How a command ends: exit statuses for scripts, and one clear line instead of a traceback."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from polydomo.errors import (
    CallTimeout,
    ConnectionLost,
    NoSuchService,
    NotConnected,
    PolydomoError,
    SettingError,
)

OK = 0
FAILED = 1  # the call failed, or something else did
USAGE = 2  # a flag, a setting or an address makes no sense, or the broker cannot start with it
TIMEOUT = 3
NO_SERVICE = 4
LOST = 5  # no broker answers, or the connection broke
INTERRUPTED = 130  # Ctrl-C, as shells say it


def status_of(error: PolydomoError) -> int:
    if isinstance(error, SettingError):
        return USAGE
    if isinstance(error, ConnectionLost):
        return LOST
    if isinstance(error, NoSuchService):
        return NO_SERVICE
    if isinstance(error, CallTimeout):
        return TIMEOUT
    return FAILED


def complain(text: str) -> None:
    """One line on standard error, whatever the text holds."""
    typer.echo(f"polydomo: {' '.join(text.split())}", err=True)


def not_there(url: str) -> NotConnected:
    """The error for a broker that does not answer: it says what to do."""
    return NotConnected(f"no broker answers at {url}; start one with `{start_command(url)}`")


def start_command(url: str) -> str:
    from polydomo.client.aio import DEFAULT_URL

    return "polydomo up" if url == DEFAULT_URL else f"polydomo up --listen {url}"


class Commands(TyperGroup):
    """Where every command's errors end up: known ones as one line and their status, Ctrl-C without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PolydomoError as error:
            complain(str(error) or type(error).__name__)
            raise typer.Exit(status_of(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # `polydomo workers | head`: the reader has seen enough. Python flushes standard output once more when it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(OK) from None
