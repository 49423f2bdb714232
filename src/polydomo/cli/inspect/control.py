"""``pause``, ``resume`` and ``drain``: control a running broker."""

import re
from typing import Annotated, Any

import typer

from polydomo.cli.common.options import ANSWER_TIME, Json, Timeout, To
from polydomo.cli.common.render import show_json

Row = dict[str, Any]

NUMBER = re.compile(r"w\d+")

Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")]
Target = Annotated[
    str, typer.Argument(metavar="WORKER|SERVICE", help="Name or number (w7) of a worker, or name of a service.")
]


def add_to(app: typer.Typer) -> None:
    app.command()(pause)
    app.command()(resume)
    app.command()(drain)


def order(to: str | None, what: str, header: Row, timeout: float) -> Row:
    """Sends a control command to the broker. Raises CallFailed."""
    from polydomo.cli.common.exchange import with_client

    row: Row = with_client(to, timeout, lambda client: client.jobs.order(what, header, timeout))
    return row


def pause(service: Service, to: To = None, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """Pause a service: its requests and jobs stay queued, without expiring, until `polydomo resume`.

    Workers finish the requests they are running.

    **Examples**

    - `polydomo pause render`
    """
    print_result(order(to, "pause", {"service": service}, timeout), json)


def resume(target: Target, to: To = None, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """Resume a service that was paused or drained, or a worker that was drained.

    **Examples**

    - `polydomo resume render`
    - `polydomo resume gpu-3`
    """
    print_result(order_either(to, "resume", target, timeout), json)


def drain(target: Target, to: To = None, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """Drain a worker or a service.

    A drained worker gets no new requests, finishes its running ones, and stays connected. A drained service rejects new requests.

    **Examples**

    - `polydomo drain gpu-3`
    - `polydomo drain w7`
    - `polydomo drain render`
    """
    print_result(order_either(to, "drain", target, timeout), json)


def order_either(to: str | None, what: str, target: str, timeout: float) -> Row:
    """Applies to the worker of this name if there is one, otherwise to the service."""
    from polydomo.errors import NoSuchJob

    try:
        return order(to, what, {"worker": target}, timeout)
    except NoSuchJob:
        if NUMBER.fullmatch(target):
            raise  # the number of a worker that is gone, not a service
        return order(to, what, {"service": target}, timeout)


def print_result(row: Row, json: bool) -> None:
    if json:
        show_json(row)
    elif "workers" in row:
        for worker in row["workers"]:
            name = f"{worker['worker']} ({worker['name']})" if worker["name"] else worker["worker"]
            state = f"draining, {worker['held']} running" if worker["draining"] else "accepts requests again"
            typer.echo(f"{name}: {state}")
    else:
        state = "paused" if row["paused"] else "drained" if row["drained"] else "serving"
        known = "" if row.get("known", True) else "; no worker offers it now"
        typer.echo(f"{row['service']}: {state}, {row['queued']} queued, {row['running']} running{known}")
