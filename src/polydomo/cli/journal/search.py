"""``polydomo trace``, and the search for finished requests in the journal (``polydomo requests --since``).

A running broker is asked where its journal is, and to flush its rows in memory to disk, so that the newest rows are found too.
"""

import asyncio
import math
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.reading import read, reader
from polydomo.cli.common.render import PrintedColumn, clean, clock, show, show_json
from polydomo.errors import CallFailed, CallTimeout, NotConnected, PolydomoError, SettingError
from polydomo.journal.quantities import size
from polydomo.model.json_form import iso, microseconds

if TYPE_CHECKING:
    from polydomo.journal.reading.reader import Reader
    from polydomo.journal.reading.story import Story

Row = dict[str, Any]

FLUSH_TIME = 5.0  # seconds to wait for the broker to flush its journal to disk
DEFAULT_DATA = Path("polydomo-data")

Directory = Annotated[
    Path | None,
    typer.Option("--journal", metavar="DIR", help="Directory of the journal.  [default: ask the broker]"),
]


def add_to(app: typer.Typer) -> None:
    app.command()(trace)


def trace(
    request: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST",
            help="Id of the request, of a durable job or of a flow, number of a request in the broker's last run, or the client's own id: "
            "MDX's request id, eMQP's MSGID, DCP's metadata, HTTP's traceparent or its trace id.",
        ),
    ],
    journal: Directory = None,
    to: To = None,
    json: Json = False,
) -> None:
    """Show every step of one request, durable job or flow: its workers, how long it waited, and why.

    **Examples**

    - `polydomo trace 01M7F9Y9XBAXCJK5RP00000002`
    - `polydomo trace 17`
    - `polydomo trace "$(polydomo submit render scene.blend)"`
    - `polydomo trace "$(polydomo flow start nightly.toml)"`
    - `polydomo trace 4bf92f3577b34da6a3ce929d0e0e4736`
    - `polydomo trace 17 --journal /var/lib/polydomo/journal`
    """
    found = find(journal, to)
    story = _story(found, request)
    print_problems(found.reader)
    if story is None:
        earlier = (
            "; a number refers to the broker's last run, use the id for earlier requests" if request.isdecimal() else ""
        )
        raise PolydomoError(
            f"the journal in {found.directory} has no rows of a request, job or flow {request}, nor of a request to which its client gave "
            f"that id{earlier}"
        )
    if json:
        show_json(
            {
                "request": story.request,
                "summary": story.head,
                "steps": [
                    {
                        "time": iso(step.time),
                        "after_us": microseconds(step.after),
                        "event": step.what,
                        "text": step.text,
                    }
                    for step in story.steps
                ],
                "notes": story.notes,
            }
        )
        return
    for line in lines(story):
        typer.echo(clean(line))


def _story(found: "OpenedJournal", request: str) -> "Story | None":
    """By the number, the broker's id, the id of a job or a flow, or the client's own id: the first of these that the journal knows."""
    from polydomo.journal import ids
    from polydomo.journal.reading.client_ids import requests_named
    from polydomo.journal.reading.flow_story import flow_story
    from polydomo.journal.reading.job_story import job_story
    from polydomo.journal.reading.reader import moment
    from polydomo.journal.reading.story import story_of

    story = None
    if request.isdecimal() and len(request) < ids.LENGTH:
        run = found.run or found.reader.last_run()
        if run is None:
            raise PolydomoError(f"the journal in {found.directory} is empty")
        story = story_of(found.reader, run, int(request))
    elif ids.is_id(request):
        known = ids.parse(request)
        since = moment(known.accepted_ms / 1000 - 1)
        story = story_of(found.reader, known.run, known.number, since)
        # The ids of jobs look the same. A client makes them, and its clock may be ahead of the broker's.
        story = story or job_story(found.reader, request.upper(), since - timedelta(days=1))
        story = story or flow_story(found.reader, request.upper(), since - timedelta(days=1))
    if story is None:
        named = requests_named(found.reader, request)
        if len(named) > 1:
            note = f"{len(named)} requests have the client id {request}; this is the last one, requests --client-id lists them"
            typer.echo(f"polydomo: {note}", err=True)
        if named:
            _, run, number = named[-1]
            story = story_of(found.reader, run, number)
    return story


def lines(story: "Story") -> list[str]:
    """The steps for a terminal."""
    made = [f"{story.request} {story.head}", ""]
    for step in story.steps:
        local = step.time.astimezone()
        made.append(f"  {local:%H:%M:%S}.{local.microsecond // 1000:03d}  {f'+{step.after:.3f}':>9} s  {step.text}")
    return [*made, *([""] if story.notes else []), *story.notes]


# --- searching ---------------------------------------------------------------------------------------------------------


@dataclass
class RequestSearch:
    """What `polydomo requests` searches for; None matches any."""

    since: float | None = None  # seconds ago
    service: str | None = None
    outcome: str | None = None
    slower: float | None = None  # seconds
    most: int = 100
    client_id: str | None = None

    def any(self) -> bool:
        return any(value is not None for value in (self.since, self.service, self.outcome, self.slower, self.client_id))


def search(reader: "Reader", wanted: RequestSearch) -> list[Row]:
    """The newest matching requests, in order of time."""
    from polydomo.journal.reading import finished
    from polydomo.journal.reading.reader import moment

    since = moment(time.time() - wanted.since) if wanted.since is not None else None
    filter_ = finished.RequestFilter(
        since=since,
        service=wanted.service,
        outcome=wanted.outcome,
        slower=wanted.slower,
        client_id=wanted.client_id,
        most=wanted.most,
    )
    return finished.search(reader, filter_, patience=math.inf).rows[::-1]


def show_found(journal: Path | None, to: str | None, wanted: RequestSearch, json: bool) -> None:
    known = ("ok", "failed", *(outcome for outcome in _outcomes() if outcome not in ("ok", "failed")))
    if wanted.outcome is not None and wanted.outcome not in known:
        raise SettingError(f"--outcome: must be one of {', '.join(known)}, not {wanted.outcome!r}")
    found = find(journal, to)
    rows = search(found.reader, wanted)
    print_problems(found.reader)
    if json:
        from polydomo.journal.reading.finished import finished_row

        show_json([finished_row(row) for row in rows])
        return
    show(FOUND, [found_cells(row) for row in rows])
    if len(rows) == wanted.most:
        typer.echo(f"polydomo: only the last {wanted.most} requests are listed; --most shows more", err=True)


FOUND = [
    PrintedColumn("request"),
    PrintedColumn("ended"),
    PrintedColumn("service"),
    PrintedColumn("outcome"),
    PrintedColumn("took", right=True),
    PrintedColumn("waited", right=True, spare=1),
    PrintedColumn("workers", right=True, spare=3),
    PrintedColumn("framed size", right=True, spare=4),
    PrintedColumn("framed reply", right=True, spare=5),
    PrintedColumn("client", spare=2),
    PrintedColumn("reason", folds=True),
]


def found_cells(row: Row) -> list[str]:
    from polydomo.journal.quantities import took

    return [
        row["request"],
        clock(iso(row["time"])),
        row["service"] if row["service"] == row["last_service"] else f"{row['service']}>{row['last_service']}",
        row["outcome"],
        took(row["total_us"]),
        took(row["wait_us"]),
        str(row["dispatches"]),
        size(row["request_bytes"]),
        size(row["reply_bytes"]),
        f"c{row['client']} {row['client_protocol']}",
        row["reason"],
    ]


def seconds(flag: str, text: str | None) -> float | None:
    """Reads a time such as ``10m`` or ``500ms``. Raises SettingError."""
    from polydomo.server.settings.types import Seconds

    if text is None:
        return None
    try:
        return Seconds(least=0.0).read(text)
    except ValueError as error:
        raise SettingError(f"{flag}: {error}, not {text!r}") from None


def _outcomes() -> tuple[str, ...]:
    from polydomo.model.outcomes import OUTCOMES

    return OUTCOMES


# --- where the journal is ------------------------------------------------------------------------------------------------


@dataclass
class OpenedJournal:
    reader: "Reader"
    directory: Path
    run: int = 0  # the current run, if a broker was asked


def find(journal: Path | None, to: str | None, name: str = "--journal") -> OpenedJournal:
    """The journal to read: ``--journal``, the broker's, or, if no broker answers, the one in ./polydomo-data. Errors call it ``name``."""
    try:
        from polydomo.journal.reading.reader import Reader
    except ImportError:
        raise SettingError("reading a journal needs pyarrow (pip install 'polydomo[journal]')") from None
    if journal is not None:
        return OpenedJournal(Reader([_journal_in(journal, name)]), journal)
    url = options.address(to)
    try:
        status, complete = asyncio.run(_flushed(url))
    except NotConnected as error:
        if to is None and (DEFAULT_DATA / "journal").is_dir():
            return OpenedJournal(Reader([DEFAULT_DATA / "journal"]), DEFAULT_DATA / "journal")
        from polydomo.cli.common.exit_status import not_there

        raise NotConnected(
            f"{not_there(url, str(error), error.accepted)}, or name the journal with --journal DIR"
        ) from None
    if "directory" not in status:
        raise PolydomoError(f"the broker at {url} keeps no journal; start it with --journal requests or messages")
    directory = Path(status["directory"])
    if not directory.is_dir():
        raise PolydomoError(
            f"the journal of {url} is in {directory} on another machine; run this command there with --journal {directory}"
        )
    if status["trouble"]:
        typer.echo(
            f"polydomo: the broker cannot write its journal: {status['trouble']}; the newest rows are missing here",
            err=True,
        )
    elif not complete:
        typer.echo(
            f"polydomo: the broker has not written its journal within {FLUSH_TIME:g} s; the newest rows may be missing here",
            err=True,
        )
    from polydomo.journal.ids import decode

    return OpenedJournal(Reader([directory]), directory, decode(status["run"]))


def _journal_in(directory: Path, name: str) -> Path:
    """The directory itself, or the journal directory inside it if it is a broker's data directory."""
    for candidate in (directory, directory / "journal"):
        if any(candidate.glob("kind=*")):
            return candidate
    if not directory.is_dir():
        raise SettingError(f"{name}: no such directory: {directory}")
    typer.echo(f"polydomo: the journal in {directory} is still empty", err=True)
    return directory


async def _flushed(url: str) -> tuple[Row, bool]:
    """The status of the broker's journal, after everything recorded so far has been written to disk; False if that was not done in time."""

    async with reader(url, FLUSH_TIME) as client:
        end = time.monotonic() + FLUSH_TIME
        wanted = 0
        while True:
            try:
                status: Any = (await read(client, "polydomo.journal", b"flush")).json()
            except (CallTimeout, ValueError):
                status = None
            if not isinstance(status, dict):
                raise CallFailed(
                    "not-implemented", f"{url} does not support polydomo.journal; is it a polydomo broker?"
                )
            wanted = wanted or status.get("rows", 0)
            complete = status.get("safe", 0) >= wanted
            if complete or status.get("trouble") or time.monotonic() >= end:
                return status, complete
            await asyncio.sleep(0.05)


def print_problems(reader: "Reader") -> None:
    from polydomo.cli.common.exit_status import print_error

    for problem in reader.problems:
        print_error(problem)
