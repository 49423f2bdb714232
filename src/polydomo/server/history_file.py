"""The file of the history in the data directory: written when the broker stops in order, read when it starts. Each process has its own."""

import logging
import os
from pathlib import Path

from polydomo.broker.observe.history import saved
from polydomo.limits import MAX_PROCESSES
from polydomo.server import logs
from polydomo.server.host import Host
from polydomo.server.logs import say

LOG = logs.get("server")
NAME = "history-"  # followed by the number of the process


def load(server: Host) -> None:
    """Called before the broker listens. What cannot be read is logged and left out."""
    plan = server.plan
    numbers = [plan.index]
    if plan.index == 0:
        numbers += range(plan.count, MAX_PROCESSES)  # of a run with more processes
    for number in numbers:
        path = _path(server, number)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            continue
        except OSError as error:
            say(LOG, logging.WARNING, "the history of the last run is lost", file=str(path), why=str(error))
            continue
        try:
            saved.load(server.broker.history, content)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            say(LOG, logging.WARNING, "the history of the last run is lost", file=str(path), why=str(error))


def save(server: Host) -> None:
    """Called after the broker has stopped."""
    path = _path(server, server.plan.index)
    fresh = path.with_name(path.name + ".new")
    try:
        content = saved.dump(server.broker.history)
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        if server.plan.index == 0:  # its own file has them now
            for number in range(server.plan.count, MAX_PROCESSES):
                _path(server, number).unlink(missing_ok=True)
    except OSError as error:
        say(LOG, logging.WARNING, "the history is not saved", file=str(path), why=str(error))


def _path(server: Host, number: int) -> Path:
    return Path(server.settings.data) / f"{NAME}{number}"
