"""What ``submit`` and ``schedule add`` share: the body of a job, and the flags that say how it runs."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.journal import search
from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")]
Body = Annotated[
    list[str] | None, typer.Argument(metavar="BODY", help="Frames of the request body; - reads standard input.")
]
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
