"""Structured logs on the standard library's logging: text or JSON lines.

A line consists of a constant text and fields: ``say(log, logging.INFO, "listening", address=url)``. Fields are names, addresses, sizes
and reasons, never a payload. Each is truncated to ``LOG_VALUE`` characters and escaped, so that a peer cannot forge a log line.

Lines with a ``peer`` field are rate-limited by host and text: beyond ``LOG_LINES`` in a second they are only counted, and
summarised as "and M more like it", so that a peer that sends garbage cannot flood the log. Debug lines are not limited.
"""

import asyncio
import errno
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

from polydomo.limits import LOG_KEYS, LOG_LINES, LOG_VALUE
from polydomo.server.resources import REMEDIES, remedy
from polydomo.visible import visible

ROOT = "polydomo"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "fields"}
_FIXED = ("time", "level", "logger", "message", "exception")


class ErrorCount:
    """The number of internal errors of this process, for its metrics. Any thread may add one."""

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self.total += 1


INTERNAL_ERRORS = ErrorCount()


def get(name: str) -> logging.Logger:
    """The logger of a component: ``get("server")``."""
    return logging.getLogger(f"{ROOT}.{name}")


def say(log: logging.Logger, level: int, text: str, /, **fields: object) -> None:
    """Logs a line. ``text`` is constant; variable parts are fields."""
    if log.isEnabledFor(level):
        log.log(level, "%s", text, extra={"fields": fields}, stacklevel=2)


def trouble(log: logging.Logger, text: str, /, **fields: object) -> None:
    """Logs an internal error, the current exception with its traceback, and counts it."""
    INTERNAL_ERRORS.add()
    log.error("%s", text, extra={"fields": fields}, exc_info=True, stacklevel=2)


def uncaught(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs uncaught errors; for ``loop.set_exception_handler``. asyncio also reports here that it could not accept a connection."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in REMEDIES:
        known = error.errno in (errno.EMFILE, errno.ENFILE)  # the server reports these itself, once
        say(get("server"), logging.DEBUG if known else logging.WARNING, "connection not accepted", why=remedy(error))
        return
    fields = {"during": context.get("message")}
    INTERNAL_ERRORS.add()
    get("server").error("%s", "internal error", extra={"fields": fields}, exc_info=context.get("exception"))


def setup(json: bool = False, level: str = "info", stream: TextIO | None = None, process: int | None = None) -> None:
    """Sends polydomo's logs to ``stream`` (standard error); a second call replaces the first. ``process`` is a field of every line."""
    quiet()
    handler = _LimitedHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    root = logging.getLogger(ROOT)
    if process is not None:
        handler.addFilter(_Process(process))
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    root.propagate = False


def share(level: str = "info") -> None:
    """After ``setup``: the log records of all other modules of the program are written in the same way."""
    root = logging.getLogger()
    for handler in _handlers():
        root.addHandler(handler)
    root.setLevel(LEVELS[level])


def sweep(now: float | None = None) -> None:
    """Logs the summaries of past seconds. Called regularly, so that the end of a flood is reported too."""
    for handler in _handlers():
        handler.sweep(time.time() if now is None else now)


def quiet() -> None:
    """Undoes ``setup``."""
    root = logging.getLogger(ROOT)
    for handler in list(_handlers()):
        root.removeHandler(handler)
        handler.close()
    root.propagate = True
    root.setLevel(logging.NOTSET)


def _handlers() -> "Iterator[_LimitedHandler]":
    return (handler for handler in logging.getLogger(ROOT).handlers if isinstance(handler, _LimitedHandler))


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a record: those of ``say`` and those of a plain ``extra``."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    fields.update(getattr(record, "fields", {}))
    return fields


def host_of(peer: object) -> str:
    """A peer's address without the port, so that a peer that reconnects counts as the same."""
    host, colon, port = str(peer).rpartition(":")
    return host if colon and port.isdigit() else str(peer)


# --- formatting --------------------------------------------------------------------------------------------------------


def plain(value: object) -> str | int | float | bool | None:
    """A value in JSON form. Bytes are shown as text if they are text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        size = len(value)
        text = bytes(value[:LOG_VALUE]).decode("utf-8", "backslashreplace")[:LOG_VALUE]
    else:
        whole = str(value)
        size = len(whole)
        text = whole[:LOG_VALUE]
    return text if size <= LOG_VALUE else f"{text}...({size - LOG_VALUE} more)"


def _one_line(text: str) -> str:
    """Escapes line ends and terminal control characters."""
    return visible(text)


def _quoted(value: object) -> str:
    shown = plain(value)
    if not isinstance(shown, str):
        return "-" if shown is None else str(shown).lower() if isinstance(shown, bool) else str(shown)
    if shown and shown.isprintable() and not any(c in shown for c in ' "='):
        return shown
    return '"' + _one_line(shown.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.000Z INFO    listening address=tcp://127.0.0.1:5246``"""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {_one_line(record.getMessage())}"
        for name, value in fields_of(record).items():
            line += f" {name}={_quoted(value)}"
        if record.exc_info:
            for row in self.formatException(record.exc_info).splitlines():
                line += "\n    " + _one_line(row)
        return line


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in fields_of(record).items():
            line[f"{name}_" if name in _FIXED else name] = plain(value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


# --- rate limit -------------------------------------------------------------------------------------------------------


class _Process(logging.Filter):
    """Adds the process of a broker that has several."""

    def __init__(self, process: int) -> None:
        super().__init__()
        self._process = process

    def filter(self, record: logging.LogRecord) -> bool:
        record.fields = {"process": self._process, **getattr(record, "fields", {})}
        return True


class _Count:
    """Lines with the same text about one host in the current second."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.written = 0
        self.kept_back = 0
        self.last: logging.LogRecord | None = None  # the latest suppressed record


class _LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes at most ``LOG_LINES`` lines per second with the same text about one host. ``emit`` runs under the handler's lock."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.counts: dict[tuple[str, str], _Count] = {}

    def emit(self, record: logging.LogRecord) -> None:
        peer = fields_of(record).get("peer")
        if peer is None or record.levelno <= logging.DEBUG:
            super().emit(record)
            return
        key = (host_of(peer), record.getMessage())
        if key not in self.counts and len(self.counts) >= LOG_KEYS:
            self._tell(record.created)
            if len(self.counts) >= LOG_KEYS:
                key = ("", "")
        count = self.counts.get(key)
        # if the clock was set back, start a new second
        if count is None or not 0 <= record.created - count.start < 1:
            if count is not None:
                self._summary(count)
            count = self.counts[key] = _Count(record.created)
        if count.written < LOG_LINES:
            count.written += 1
            super().emit(record)
        else:
            count.kept_back += 1
            count.last = record

    def sweep(self, now: float) -> None:
        self.acquire()
        try:
            self._tell(now)
        finally:
            self.release()

    def close(self) -> None:
        self.sweep(float("inf"))
        super().close()

    def _tell(self, now: float) -> None:
        for key, count in list(self.counts.items()):
            if not 0 <= now - count.start < 1:
                del self.counts[key]
                self._summary(count)

    def _summary(self, count: _Count) -> None:
        if count.last is None:
            return
        line = logging.makeLogRecord(vars(count.last))
        if count.kept_back > 1:
            line.msg, line.args = "%s, and %d more like it", (count.last.getMessage(), count.kept_back - 1)
        super().emit(line)
