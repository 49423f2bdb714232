"""``polydomo schedule``: jobs and flows that are started repeatedly."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.calls.call import read_body
from polydomo.cli.common.exchange import Timeout, with_client
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.render import PrintedColumn, in_zone, show, show_json
from polydomo.cli.jobs.form import Body, First, Group, Named, Priority, Retries, RunTimeout, backoff, named_or
from polydomo.cli.journal import search
from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Row = dict[str, Any]

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]

schedule_commands = typer.Typer(no_args_is_help=True, help="Submit jobs on a schedule: cron expressions and intervals.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(schedule_commands, name="schedule")


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
