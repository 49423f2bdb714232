"""``polydomo logs``: prints the log records that the broker has collected, and new ones as they arrive."""

import asyncio
import json as json_module
from datetime import datetime
from typing import Annotated, Any

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import ANSWER_TIME, Timeout, To
from polydomo.cli.common.render import clean, local, on_terminal
from polydomo.cli.inspect.inspection import fetch

Row = dict[str, Any]

LEVELS = ("debug", "info", "warning", "error", "critical")
COLOURS = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "bright_red"}


def add_to(app: typer.Typer) -> None:
    app.command()(logs)


def logs(
    to: To = None,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Only records of this service.")] = None,
    level: Annotated[str | None, typer.Option(metavar="LEVEL", help="Only records of this level or higher.")] = None,
    request: Annotated[
        str | None, typer.Option(metavar="REQUEST", help="Only records of this request, by its id or its number.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new records as they arrive.")] = False,
    most: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, max=1000, help="Show at most N collected records.")
    ] = 100,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """Show the log records that services have published, with the request each belongs to.

    With `--follow` it reconnects when the broker restarts; press Ctrl-C to stop.

    **Examples**

    - `polydomo logs --follow`
    - `polydomo logs --service billing --level warning`
    - `polydomo logs --request 01M7F9Y9XBAXCJK5RP00000002 --json`
    """
    from polydomo.cli.common.exit_status import needs_broker, through_restarts
    from polydomo.errors import SettingError

    if level is not None and level.lower() not in LEVELS:
        raise SettingError(f"--level: {level!r} is not one of {', '.join(LEVELS)}")
    wanted = RecordFilter(service or "", (level or "debug").lower(), request_of(request), most)
    url = options.address(to)
    with needs_broker(url):
        if follow:
            asyncio.run(through_restarts(lambda: followed(url, wanted, json, timeout)))
        else:
            asyncio.run(show(url, wanted, json, timeout))


class RecordFilter:
    """Which records."""

    def __init__(self, service: str, level: str, request: str, most: int) -> None:
        self.service = service
        self.level = level
        self.request = request
        self.most = most

    def question(self) -> str:
        return json_module.dumps(
            {"service": self.service, "level": self.level, "request": self.request, "most": self.most}
        )

    def __contains__(self, row: object) -> bool:
        return (
            isinstance(row, dict)
            and (not self.service or row["service"] == self.service)
            and LEVELS.index(row["level"]) >= LEVELS.index(self.level)
            and (not self.request or self.request in (row["request"], number_in(row["attempt"])))
        )


def request_of(text: str | None) -> str:
    """A request by its id or its number. Raises SettingError."""
    from polydomo.errors import SettingError
    from polydomo.journal import ids

    word = (text or "").strip().upper()
    if not word or (word.isdecimal() and len(word) < ids.LENGTH and int(word)):
        return word
    try:
        ids.parse(word)
    except SettingError as error:
        raise SettingError(f"--request: {error}") from None
    return word


def number_in(attempt: str | None) -> str:
    """The request's number in the token of an attempt.

    >>> number_in("00000002a001")
    '42'
    """
    try:
        return str(int((attempt or "")[:9], 16))
    except ValueError:
        return ""


async def show(url: str, wanted: RecordFilter, json: bool, timeout: float) -> None:
    rows = await collected(url, wanted, timeout)
    for row in rows:
        print_record(row, json)
    if not rows and on_terminal():
        typer.echo(
            "polydomo: no matching log records yet; polydomo.logs.Handler publishes those of a Python program", err=True
        )


async def followed(url: str, wanted: RecordFilter, json: bool, timeout: float) -> None:
    """Prints records until the connection is lost. A restarted broker has no earlier records and numbers records from 1."""
    from polydomo.cli.common.exit_status import following
    from polydomo.client.subscriber import AsyncSubscriber

    # Subscribe before asking for collected records. Records that arrive in between are received twice and printed once.
    async with AsyncSubscriber(url, "log.") as subscriber:
        following(url)
        last = 0
        for row in await collected(url, wanted, timeout):
            print_record(row, json)
            last = row["record"]
        async for _, message in subscriber:
            row = message.json()
            if row["record"] > last and row in wanted:
                print_record(row, json)


async def collected(url: str, wanted: RecordFilter, timeout: float) -> list[Row]:
    if not wanted.most:
        return []
    rows: list[Row] = await fetch(url, "logs", timeout, wanted.question())
    return rows


def print_record(row: Row, json: bool) -> None:
    typer.echo(json_module.dumps(row) if json else line(row, on_terminal()))


def line(row: Row, colours: bool = False) -> str:
    """One record as text: time, level, service and request, message, fields.

    >>> record = {"service": "upper", "message": "done", "fields": {"n": 1}, "request": "01M7F9Y9XBAXCJK5RP00000002"}
    >>> line({**record, "time": "1970-01-01T00:00:00.000000Z", "level": "info"})[24:]
    ' info     upper 01M7F9Y9XBAXCJK5RP00000002  done  n=1'
    """
    moment = local(row["time"])
    today = moment.date() == datetime.now().date()
    level = f"{row['level']:<8}"
    if colours and row["level"] in COLOURS:
        level = typer.style(level, fg=COLOURS[row["level"]])
    who = clean(row["service"]) + (f" {row['request']}" if row["request"] else "")
    rest = "".join(
        f"  {clean(str(name))}={clean(_shown(value))}" for name, value in row["fields"].items() if name != "exception"
    )
    trace = str(row["fields"].get("exception", ""))
    shown = f"{moment.strftime('%H:%M:%S' if today else '%Y-%m-%d %H:%M:%S')}.{moment.microsecond // 1000:03d}  {level} {who}  "
    return shown + clean(row["message"]) + rest + "".join(f"\n    {clean(part)}" for part in trace.splitlines())


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json_module.dumps(value)
