"""``polydomo dead``: jobs that failed permanently."""

from typing import Annotated

import typer

from polydomo.cli.common.exchange import Timeout, with_client
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.render import show_json
from polydomo.cli.jobs.jobs import jobs
from polydomo.errors import SettingError

DeadId = Annotated[str | None, typer.Argument(metavar="ID", help="One dead job.")]
OfService = Annotated[str | None, typer.Option("--service", metavar="NAME", help="All dead jobs of this service.")]
All = Annotated[bool, typer.Option("--all", help="All dead jobs.")]

dead_commands = typer.Typer(invoke_without_command=True, help="List jobs that failed permanently; retry or drop them.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(dead_commands, name="dead")


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
