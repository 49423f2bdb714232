"""Durable jobs from the shell: ``submit``, ``result``, ``cancel``, ``jobs``, ``job``, ``dead`` and ``schedule``."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.calls.call import read_body, write_raw, write_text
from polydomo.cli.common import options
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.render import PrintedColumn, clock, in_zone, progress_text, show, show_json
from polydomo.cli.journal import search
from polydomo.errors import SettingError
from polydomo.journal.quantities import size

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Row = dict[str, Any]

Timeout = Annotated[float, options.time_option("How long to wait for a broker that can answer.")]
Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")]
Body = Annotated[
    list[str] | None, typer.Argument(metavar="BODY", help="Frames of the request body; - reads standard input.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id that `polydomo submit` printed.")]
Priority = Annotated[int, typer.Option(metavar="N", help="Jobs with a higher priority run first.")]
Retries = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Maximum number of retries.  [default: the broker's setting]")
]
First = Annotated[
    str | None,
    typer.Option("--backoff", metavar="TIME", help="Delay before the first retry; it doubles with each retry."),
]
RunTimeout = Annotated[str | None, typer.Option("--run-timeout", metavar="TIME", help="Timeout of each attempt.")]
Group = Annotated[
    str, typer.Option("--group", metavar="TEXT", help="The group of the job, for a service limited per group.")
]
Named = Annotated[
    bool,
    typer.Option(
        "--named",
        help="Send NAME=VALUE as named arguments even if no worker offers the service now, whose schema would tell.",
    ),
]
DeadId = Annotated[str | None, typer.Argument(metavar="ID", help="One dead job.")]
OfService = Annotated[str | None, typer.Option("--service", metavar="NAME", help="All dead jobs of this service.")]
All = Annotated[bool, typer.Option("--all", help="All dead jobs.")]

dead_commands = typer.Typer(invoke_without_command=True, help="List jobs that failed permanently; retry or drop them.")
schedule_commands = typer.Typer(no_args_is_help=True, help="Submit jobs on a schedule: cron expressions and intervals.")


def add_to(app: typer.Typer) -> None:
    app.command()(submit)
    app.command()(result)
    app.command()(cancel)
    app.command()(jobs)
    app.command()(job)
    app.add_typer(dead_commands, name="dead")
    app.add_typer(schedule_commands, name="schedule")


def with_client(to: str | None, timeout: float, ask: "Callable[[AsyncClient], Awaitable[Any]]") -> Any:
    """Runs one exchange with a broker; tries each of the given addresses."""
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.client.aio import AsyncClient

    url = options.address(to)

    async def run() -> Any:
        async with AsyncClient(url, timeout=timeout, refused_timeout=options.refused_time(url)) as client:
            return await ask(client)

    with needs_broker(url):
        return asyncio.run(run())


async def named_or(
    client: "AsyncClient", service: str, words: list[str], frames: list[bytes], named: bool
) -> list[bytes]:
    """The body of a job: named arguments for a service that has a schema, otherwise the frames."""
    from polydomo.cli.common import arguments

    given = arguments.named(words)
    if given is None:
        if named:
            raise SettingError(f"--named: the arguments must be NAME=VALUE, not {' '.join(words) or 'none'}")
        return frames
    name = os.fsencode(service)
    typed = await arguments.frames_of(client, name, words)
    if typed is not None:
        return typed
    if named:
        return [arguments.encode(given, {})]
    if not await client.offered(name):
        typer.echo(
            f"no worker offers {service} now, so {' '.join(words)} is sent as text; --named sends named arguments",
            err=True,
        )
    return frames


def backoff(retries: int | None, first: str | None) -> Any:
    """The retry policy from the flags."""
    from polydomo.model.retry_policy import Backoff

    wait = search.seconds("--backoff", first)
    if wait is None:
        return retries
    plain = Backoff()
    attempts = plain.attempts if retries is None else retries + 1
    return Backoff(attempts=attempts, first=wait, most=max(wait, plain.most))


def submit(
    service: Service,
    body: Body = None,
    to: To = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="TEXT", help="Submitting the same key again returns the same job."),
    ] = None,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="Earliest start, from now, such as 10m.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Earliest start, such as 2026-01-31T07:30+01:00.")
    ] = None,
    priority: Priority = 0,
    ttl: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Drop the job if it has not started within this time of being due."),
    ] = None,
    retries: Retries = None,
    first: First = None,
    run_timeout: RunTimeout = None,
    group: Group = "",
    near: Annotated[
        str, typer.Option("--near", metavar="TEXT", help="Prefer the worker that served this text last.")
    ] = "",
    wait: Annotated[
        float | None, options.time_option("Wait this long for the result, and print it.", least=0.0)
    ] = None,
    named: Named = False,
    each_line: Annotated[
        str | None,
        typer.Option(
            "--each-line",
            metavar="FILE",
            help="Submit a job for each line of FILE that is not empty, with the line as its body; - reads standard input.",
        ),
    ] = None,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """Submit a durable job and print its id once the broker has stored it.

    A stored job survives crashes of the broker and of its workers. It is retried if it fails. Fetch the result with
    `polydomo result`, from any client, until the result expires.

    With --each-line, the jobs are stored together, and their ids are printed in the order of the lines. An idempotency key TEXT then
    becomes TEXT-1, TEXT-2 and so on, by the number of the line: submitting the file again returns the same jobs.

    **Examples**

    - `polydomo submit render scene.blend`
    - `polydomo submit add a=1 b=2`: named arguments, for a service that has a schema
    - `polydomo submit bill 42 --idempotency-key invoice-42 --retries 9 --backoff 10s`
    - `polydomo submit resize --each-line pictures.txt --idempotency-key monday`
    - `polydomo submit report weekly --at 2026-02-01T06:00+01:00 --wait 3600`
    """
    moment = None
    if at is not None:
        try:
            moment = datetime.fromisoformat(at)
        except ValueError:
            raise SettingError(f"--at: {at!r} is not a time such as 2026-01-31T07:30+01:00") from None
        moment = moment if moment.tzinfo is not None else moment.astimezone()
    chosen: Row = {
        "delay": search.seconds("--delay", delay),
        "at": moment,
        "priority": priority,
        "ttl": search.seconds("--ttl", ttl),
        "retries": backoff(retries, first),
        "run_timeout": search.seconds("--run-timeout", run_timeout),
        "group": group,
        "near": near,
    }
    if each_line is not None:
        if body or named or wait is not None:
            raise SettingError("--each-line: the bodies are the lines of the file; leave out BODY, --named and --wait")
        submit_lines(service, each_line, to, idempotency_key, chosen, json, timeout)
        return
    frames = read_body(body or [])

    async def ask(client: "AsyncClient") -> str:
        return await client.submit_job(
            os.fsencode(service).decode(),
            *await named_or(client, service, body or [], frames, named),
            key=idempotency_key,
            **chosen,
        )

    id = with_client(to, timeout, ask)
    if wait is not None:
        result(id, to, wait, timeout=timeout)
    elif json:
        show_json({"job": id})
    else:
        typer.echo(id)


def submit_lines(
    service: str, path: str, to: str | None, key: str | None, chosen: Row, json: bool, timeout: float
) -> None:
    """A job for each line of a file that is not empty."""
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"--each-line: cannot read {path}: {error.strerror}") from None
    lines = [(number, line) for number, line in enumerate(content.splitlines(), 1) if line]
    keys = [f"{key}-{number}" for number, _ in lines] if key is not None else None

    async def ask(client: "AsyncClient") -> list[str]:
        name = os.fsencode(service).decode()
        return await client.submit_jobs(name, [line for _, line in lines], keys=keys, **chosen)

    ids = with_client(to, timeout, ask)
    if json:
        show_json([{"job": id} for id in ids])
    else:
        typer.echo("".join(f"{id}\n" for id in ids), nl=False)


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


# --- dead jobs ----------------------------------------------------------------------------------------------------------------


@dead_commands.callback()
def dead(
    ctx: typer.Context,
    to: To = None,
    service: OfService = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Show at most N jobs.")] = 100,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """List jobs that failed permanently; retry or drop them.

    **Examples**

    - `polydomo dead`
    - `polydomo dead retry --service render`
    - `polydomo dead drop 01KDVDNA000000000000000000`
    """
    if ctx.invoked_subcommand is None:
        jobs(to, "dead", service, limit, json, timeout)


@dead_commands.command("retry")
def dead_retry(
    id: DeadId = None,
    service: OfService = None,
    all: All = False,
    to: To = None,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """Retry dead jobs, starting again at the first attempt."""
    count = change_dead("retry", (id, service, all), to, timeout)
    show_changed("retried", count, id, json)


@dead_commands.command("drop")
def dead_drop(
    id: DeadId = None,
    service: OfService = None,
    all: All = False,
    to: To = None,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """Remove dead jobs."""
    count = change_dead("drop", (id, service, all), to, timeout)
    show_changed("dropped", count, id, json)


def change_dead(what: str, which: "tuple[str | None, str | None, bool]", to: str | None, timeout: float) -> int:
    """``which``: the id of a job, a service, and whether all are meant. Returns the number of jobs."""
    id, service, all = which
    if sum((id is not None, service is not None, all)) != 1:
        raise SettingError(f"dead {what}: give one of ID, --service NAME and --all")
    count: int = with_client(to, timeout, lambda client: client.jobs.dead(what, id or "", service or "", all, timeout))
    return count


def show_changed(done: str, count: int, id: str | None, json: bool) -> None:
    if json:
        show_json({done: count})
    elif id is not None and not count:
        from polydomo.errors import NoSuchJob

        raise NoSuchJob(f"there is no dead job {id}; `polydomo dead` lists them")
    else:
        typer.echo(f"{done} {count}")


# --- schedules ----------------------------------------------------------------------------------------------------------------

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]


@schedule_commands.command("add")
def schedule_add(
    name: Name,
    when: Annotated[str, typer.Argument(metavar="WHEN", help='Cron expression, or interval such as "every 30s".')],
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service; none with --flow.")] = "",
    body: Body = None,
    flow: Annotated[
        str | None,
        typer.Option(
            "--flow", metavar="FILE", help="Start the flow of this file at each time; - reads standard input."
        ),
    ] = None,
    zone: Annotated[str, typer.Option(metavar="ZONE", help="Time zone of the cron expression.")] = "UTC",
    missed: Annotated[
        str,
        typer.Option(
            metavar="WORD", help="What to do about runs missed while no broker was up: run `once`, or `skip`."
        ),
    ] = "once",
    priority: Priority = 0,
    retries: Retries = None,
    first: First = None,
    run_timeout: RunTimeout = None,
    group: Group = "",
    named: Named = False,
    to: To = None,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """Add a schedule that submits a job, or starts a flow, repeatedly. It replaces a schedule of the same name, unless nothing has changed.

    **Examples**

    - `polydomo schedule add nightly "30 2 * * *" backup all --zone Europe/Berlin`
    - `polydomo schedule add poll "every 30s" fetch https://example.org/ --missed skip`
    - `polydomo schedule add report "0 6 * * mon" --flow report.toml`
    """
    frames = read_body(body or [])
    described = None
    if flow is not None:
        from polydomo.cli.flows.reading import read_file

        if priority or retries is not None or first or run_timeout or group or named:
            raise SettingError("--flow: the nodes of a flow have their own options")
        described = read_file(flow)

    async def ask(client: "AsyncClient") -> Row:
        return await client.schedule(
            name,
            when,
            service,
            *(await named_or(client, service, body or [], frames, named) if service else frames if body else []),
            flow=described,
            zone=zone,
            missed=missed,
            priority=priority,
            retries=backoff(retries, first),
            run_timeout=search.seconds("--run-timeout", run_timeout),
            group=group,
        )

    row: Row = with_client(to, timeout, ask)
    if json:
        show_json(row)
    else:
        typer.echo(f"{name}: next at {in_zone(row['next'], zone)}")


@schedule_commands.command("ls")
def schedule_ls(to: To = None, json: Json = False, timeout: Timeout = 30.0) -> None:
    """List the schedules and their next runs."""
    rows = with_client(to, timeout, lambda client: client.schedules())
    if json:
        show_json(rows)
    else:
        columns = [
            PrintedColumn("schedule"),
            PrintedColumn("service"),
            PrintedColumn("when"),
            PrintedColumn("zone"),
            PrintedColumn("missed"),
            PrintedColumn("next", folds=True),
        ]
        show(
            columns,
            [
                [
                    row["name"],
                    "(flow)" if row.get("flow") else row.get("service", ""),
                    row.get("when", ""),
                    row.get("zone", ""),
                    row.get("missed", ""),
                    row["problem"] or in_zone(row["next"], row.get("zone", "")),
                ]
                for row in rows
            ],
        )


@schedule_commands.command("rm")
def schedule_rm(name: Name, to: To = None, timeout: Timeout = 30.0) -> None:
    """Remove a schedule. Jobs it has already submitted are kept."""
    with_client(to, timeout, lambda client: client.unschedule(name))
    typer.echo(f"removed {name}")


@schedule_commands.command("run")
def schedule_run(name: Name, to: To = None, timeout: Timeout = 30.0) -> None:
    """Submit a schedule's job now, in addition to its planned runs, and print the job's id."""
    typer.echo(with_client(to, timeout, lambda client: client.run_schedule(name)))
