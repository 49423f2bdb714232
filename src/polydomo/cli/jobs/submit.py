"""``polydomo submit``."""

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.calls.call import read_body
from polydomo.cli.common import options
from polydomo.cli.common.exchange import Timeout, with_client
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.render import show_json
from polydomo.cli.jobs.form import Body, First, Group, Named, Priority, Retries, RunTimeout, Service, backoff, named_or
from polydomo.cli.jobs.jobs import result
from polydomo.cli.journal import search
from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Row = dict[str, Any]


def add_to(app: typer.Typer) -> None:
    app.command()(submit)


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
