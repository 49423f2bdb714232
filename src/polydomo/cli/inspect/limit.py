"""``limit``: limits how many requests of a service run at the same time, and how many start in any window of time."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.common.options import ANSWER_TIME, Json, Timeout, To
from polydomo.cli.common.reading import read
from polydomo.cli.common.render import PrintedColumn, show, show_json
from polydomo.cli.inspect.control import order
from polydomo.cli.inspect.inspection import limits_text
from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Row = dict[str, Any]

COLUMNS = [PrintedColumn("service"), PrintedColumn("limits"), PrintedColumn("set by")]


def add_to(app: typer.Typer) -> None:
    app.command()(limit)


def limit(
    service: Annotated[
        str, typer.Argument(metavar="SERVICE|ls|rm", help="Name or pattern, such as billing.*, or ls or rm.")
    ],
    pattern: Annotated[str | None, typer.Argument(metavar="PATTERN", help="With rm: whose limit to remove.")] = None,
    running: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most this many requests run at the same time.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/TIME", help="At most this many start in any such time, such as 90/10s.")
    ] = None,
    per: Annotated[
        str | None, typer.Option(metavar="WORD", help="What is counted: service (default), principal or group.")
    ] = None,
    to: To = None,
    json: Json = False,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """Limit the requests of a service, in total or for each group or principal. Requests over the limit wait.

    The limit is stored in the job store, if the broker has one, and counts instead of the limits of the settings.

    **Examples**

    - `polydomo limit billing --running 5 --rate 90/10s --per group`
    - `polydomo limit ls`
    - `polydomo limit rm billing`
    """
    options = {"running": running, "rate": rate, "per": per}
    given = {name: value for name, value in options.items() if value is not None}
    if service == "ls":
        if pattern is not None or given:
            raise SettingError("limit ls takes no service and no limits")
        from polydomo.cli.common.exchange import with_client

        rows: list[Row] = with_client(to, timeout, listed)
        if json:
            show_json(rows)
        else:
            show(COLUMNS, [[row["service"], shown(row["limits"]), row["source"]] for row in rows])
        return
    if service == "rm":
        if pattern is None or given:
            raise SettingError("limit rm needs a service or pattern, and no limits; `polydomo limit ls` lists them")
        answer = order(to, "limit", {"service": pattern, "remove": True}, timeout)
        text = f"{pattern}: the limit was removed"
    else:
        if pattern is not None:
            raise SettingError(f"limit: {pattern!r} is one argument too many; only ls and rm are words")
        answer = order(to, "limit", {"service": service, **given}, timeout)
        kept = "" if answer.get("stored") else "; it is not stored, because the broker has no job store"
        text = f"{service}: {shown(answer.get('limits', {}))}{kept}"
    if json:
        show_json(answer)
    else:
        typer.echo(text)


async def listed(client: "AsyncClient") -> list[Row]:
    rows: list[Row] = (await read(client, "polydomo.limits")).json()
    return rows


def shown(limits: Row) -> str:
    """A pattern of the settings may set only some of them."""
    return limits_text({"per": "service", **limits}) or f"per {limits.get('per', 'service')}"
