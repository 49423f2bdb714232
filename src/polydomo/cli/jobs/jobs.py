"""``polydomo result``, ``cancel``, ``jobs`` and ``job``."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.calls.call import write_raw, write_text
from polydomo.cli.common import options
from polydomo.cli.common.exchange import Timeout, with_client
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.render import PrintedColumn, clock, progress_text, show, show_json
from polydomo.errors import SettingError
from polydomo.journal.quantities import size

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Row = dict[str, Any]

Id = Annotated[str, typer.Argument(metavar="ID", help="The id that `polydomo submit` printed.")]


def add_to(app: typer.Typer) -> None:
    app.command()(result)
    app.command()(cancel)
    app.command()(jobs)
    app.command()(job)


def result(
    id: Id,
    to: To = None,
    wait: Annotated[float, options.time_option("Wait this long for the result.", least=0.0)] = 0.0,
    raw: Annotated[bool, typer.Option("--raw", help="Write the bytes of the result unchanged.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print partial replies as they come, and then the rest of the result.")
    ] = False,
    after: Annotated[
        str,
        typer.Option("--after", metavar="ID", help="With --follow: continue after this partial reply, such as 1.17."),
    ] = "",
    timeout: Timeout = 30.0,
) -> None:
    """Print the result of a job.

    With `--follow`, it waits until the job has ended, or `--wait` for each further part. If the job is tried again, a line on standard
    error says so.

    Exits with status 1 if the job is dead or was cancelled, 3 if it has no result yet, 4 if there is no such job.

    **Examples**

    - `polydomo result 01KDVDNA000000000000000000`
    - `polydomo result "$(polydomo submit render scene.blend)" --wait 600 --raw >scene.png`
    """
    if follow:
        with_client(to, timeout, lambda client: _follow(client, id, after, wait, raw))
        return
    if after:
        raise SettingError("--after: only with --follow")
    found = with_client(to, timeout, lambda client: client.result(id, wait))
    (write_raw if raw else write_text)(found)


async def _follow(client: "AsyncClient", id: str, after: str, wait: float, raw: bool) -> None:
    attempt = 0
    async for part in client.stream_result(id, after, wait or None):
        if attempt and part.attempt != attempt:
            typer.echo(f"polydomo: attempt {part.attempt}: the job is run again", err=True)
        attempt = part.attempt
        (write_raw if raw else write_text)(part)
        sys.stdout.flush()


def cancel(id: Id, to: To = None, json: Json = False, timeout: Timeout = 30.0) -> None:
    """Cancel a job, or an open request.

    A worker that is already running it may finish, but the result is discarded.

    **Examples**

    - `polydomo cancel 01KDVDNA000000000000000000`
    """
    row: Row = with_client(to, timeout, lambda client: client.cancel(id))
    if json:
        show_json(row)
    elif row["state"] == "cancelled":
        typer.echo(f"cancelled {row.get('job') or row.get('request')}")
    else:
        from polydomo.errors import CallFailed

        raise CallFailed(str(row["state"]), f"{id} has ended already")


def jobs(
    to: To = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="delayed, queued, running, open (all of these), done, dead or cancelled."),
    ] = None,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this service.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Show at most N jobs.")] = 100,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """List durable jobs, the newest first.

    **Examples**

    - `polydomo jobs`
    - `polydomo jobs --state dead --service render`
    - `polydomo jobs --json | jq -r '.[] | select(.attempts > 1) | .job'`
    """
    found: list[Row] = with_client(to, timeout, lambda client: client.list_jobs(state or "", service or "", limit))
    if json:
        show_json(found)
    else:
        show(JOBS, [cells(row) for row in found])


JOBS = [
    PrintedColumn("job"),
    PrintedColumn("service"),
    PrintedColumn("state"),
    PrintedColumn("attempts", right=True),
    PrintedColumn("created"),
    PrintedColumn("due", spare=2),
    PrintedColumn("ended", spare=1),
    PrintedColumn("size", right=True, spare=3),
    PrintedColumn("reason", folds=True),
]


def cells(row: Row) -> list[str]:
    return [
        row["job"],
        row["service"],
        row["state"],
        str(row["attempts"]),
        clock(row["created"]),
        clock(row["due"]) if row["state"] == "delayed" else "",
        clock(row["ended"]),
        size(row["body_bytes"]) if row["body_bytes"] is not None else "",
        reason(row),
    ]


def reason(row: Row) -> str:
    if row["outcome"] in ("", "ok", "cancelled"):
        return str(row["reason"])
    return f"{row['outcome']}: {row['reason']}" if row["reason"] else str(row["outcome"])


def job(id: Id, to: To = None, json: Json = False, timeout: Timeout = 30.0) -> None:
    """Show one job: its state and all its attempts.

    **Examples**

    - `polydomo job 01KDVDNA000000000000000000`
    """
    row: Row = with_client(to, timeout, lambda client: client.job(id))
    if json:
        show_json(row)
        return
    retries = row["retries"]
    shown = {
        "service": row["service"],
        "state": row["state"],
        "outcome": reason(row),
        "progress": progress_text(row.get("progress")),
        "key": row["key"],
        "schedule": row["schedule"],
        "priority": str(row["priority"]) if row["priority"] else "",
        "attempts": f"{row['attempts']} of {retries['attempts']}",
        "created": clock(row["created"]),
        "due": clock(row["due"]),
        "expires": clock(row["expires"]),
        "ended": clock(row["ended"]),
        "body": size(row["body_bytes"]) if row["body_bytes"] is not None else "",
        "result": size(row["result_bytes"]) if row["result_bytes"] is not None else "",
    }
    show(
        [PrintedColumn("job"), PrintedColumn(row["job"], folds=True)],
        [[name, text] for name, text in shown.items() if text],
    )
    if row["story"]:
        typer.echo("")
        show(ATTEMPTS, [attempt_cells(attempt) for attempt in row["story"]])


ATTEMPTS = [
    PrintedColumn("attempt", right=True),
    PrintedColumn("started"),
    PrintedColumn("ended"),
    PrintedColumn("worker"),
    PrintedColumn("outcome", folds=True),
]


def attempt_cells(row: Row) -> list[str]:
    outcome = f"{row['outcome']}: {row['reason']}" if row["reason"] else row["outcome"]
    return [str(row["attempt"]), clock(row["started"]), clock(row["ended"]), row["worker"], outcome]
