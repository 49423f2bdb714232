"""``polydomo call``: calls a service from the shell."""

import asyncio
import base64
import difflib
import json as jsons
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.calls.arrow_table import ArrowTable
from polydomo.cli.common import options
from polydomo.cli.common.options import Frame0, Protocol, To, TypeSize
from polydomo.cli.common.render import on_terminal
from polydomo.cli.completion import service_names
from polydomo.visible import visible

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient
    from polydomo.client.message import Result

STDIN = "-"
HINT_TIME = 0.5  # seconds to wait for the list of services, from which a misspelt name is corrected


def add_to(app: typer.Typer) -> None:
    app.command()(call)


def call(
    service: Annotated[
        str, typer.Argument(metavar="SERVICE", help="Name of the service.", autocompletion=service_names)
    ],
    body: Annotated[
        list[str] | None,
        typer.Argument(metavar="BODY", help="Frames of the request body; - reads standard input."),
    ] = None,
    to: To = None,
    protocol: Protocol = None,
    timeout: Annotated[float, options.time_option("Timeout of the whole call, such as 500ms or 5s.")] = 30.0,
    wait: Annotated[
        float, options.time_option("How long to wait for a worker if none offers the service.", least=0.0)
    ] = 1.0,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask/--no-ask",
            help="Ask the broker whether a worker offers the service and whether it is paused. Some brokers do not support this.",
        ),
    ] = True,
    type_size: TypeSize = None,
    frame0: Frame0 = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME[:VALUE]", help="eMQP: a header of the request; repeatable."),
    ] = None,
    idempotency_key: Annotated[
        str,
        typer.Option(
            "--idempotency-key",
            metavar="TEXT",
            help="MDX, eMQP: join an open request with the same key instead of running again.",
        ),
    ] = "",
    group: Annotated[
        str,
        typer.Option(
            "--group", metavar="TEXT", help="MDX, eMQP: the group of the request, for a service limited per group."
        ),
    ] = "",
    near: Annotated[
        str,
        typer.Option("--near", metavar="TEXT", help="MDX, eMQP: prefer the worker that served this text last."),
    ] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Write the bytes of the reply unchanged.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per reply; binary frames are base64.")
    ] = False,
) -> None:
    """Call a service and print its reply. Partial replies are printed as they arrive.

    Each frame is printed as a line of text. With `--raw` the bytes are written unchanged.

    Exits with status 0 if the call succeeded, 1 if it failed, 2 if a flag is invalid, 3 if it timed out, 4 if no worker offers
    the service, 5 if no broker answers or the connection broke.

    **Examples**

    - `polydomo call echo hello`
    - `polydomo call add a=1 b=2`: named arguments, for a service that has a schema
    - `polydomo call resize - --raw <in.png >out.png`
    - `polydomo call sum 1 2 3 --protocol mdp2 --timeout 5`
    - `polydomo call mail "$letter" --protocol emqp --header retry-count:2`
    - `polydomo call echo hello --protocol dcp --type-size 4 --no-ask --to tcp://127.0.0.1:6000`
    """
    from polydomo.cli.common.arguments import frames_of
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.client.aio import AsyncClient
    from polydomo.errors import CallFailed, CallTimeout, SettingError

    if raw and json:
        raise SettingError("--raw and --json: choose one")
    url = options.address(to)
    spoken = options.protocol_name(protocol)
    more = options.of_protocol(spoken, type_size, frame0)
    headers = options.headers_of(spoken, header or [])
    patience = min(wait, timeout / 2) if ask else timeout
    name = os.fsencode(service)
    frames = read_body(body or [])
    table = ArrowTable()
    write: Write = write_raw if raw else write_json if json else partial(write_text, table=table)

    async def run() -> None:
        client = AsyncClient(url, spoken, timeout=timeout, refused_timeout=options.refused_time(url), **more)
        async with client:
            typed = await frames_of(client, name, body or [], patience if ask else 0.0)
            try:
                stream = client.stream(
                    name, *(typed or frames), headers=headers, key=idempotency_key, group=group, near=near
                )
                check = partial(refuse_unknown, client, name, f" --to {to}" if to else "") if ask else None
                async for part in replies(stream, patience, check):
                    write(part)
            except CallTimeout as error:
                if not ask or not await is_paused(client, service):
                    raise
                raise CallTimeout(f"{error}: the service is paused; `polydomo resume {service}` resumes it") from None
            except CallFailed as error:
                from polydomo.model.jobs.messages import INVALID_ARGUMENTS

                if error.code != INVALID_ARGUMENTS or typed:
                    raise
                raise CallFailed(error.code, f"{error.text}; write arguments as NAME=VALUE") from None

    with needs_broker(url):
        asyncio.run(run())


def read_body(words: list[str]) -> list[bytes]:
    """The frames of the body. Without arguments, it is one empty frame, which every protocol can carry."""
    from polydomo.errors import SettingError

    if words.count(STDIN) > 1:
        raise SettingError("BODY: standard input (-) can be read only once")
    return [sys.stdin.buffer.read() if word == STDIN else os.fsencode(word) for word in words] or [b""]


async def replies(
    stream: "AsyncGenerator[Result, None]",
    wait: float,
    check: "Callable[[asyncio.Future[Result]], Awaitable[None]] | None",
) -> "AsyncIterator[Result]":
    """Yields the replies as they arrive. If there is none after ``wait`` seconds, ``check`` asks the broker whether a worker offers the
    service.

    So a call succeeds if the service's worker is just starting, and a misspelt name fails before the timeout.
    """
    try:
        first = asyncio.ensure_future(anext(stream))
        try:
            await asyncio.wait([first], timeout=wait)
            if check is not None and not first.done():
                await check(first)
            yield await first
        finally:
            first.cancel()
            await asyncio.wait([first])
        async for part in stream:
            yield part
    finally:
        await stream.aclose()


async def refuse_unknown(client: "AsyncClient", service: bytes, to: str, first: "asyncio.Future[Result]") -> None:
    """Raises NoSuchService unless a worker offers the service or a reply has arrived."""
    from polydomo.errors import NoSuchService, PolydomoError

    try:
        offered = await client.offered(service)
    except PolydomoError:
        return  # a broker without MMI cannot answer; wait for the call itself
    if not offered and not first.done():
        name = service.decode(errors="backslashreplace")
        if await is_paused(client, name):
            why = f"the service {name!r} is paused, and no worker offers it; `polydomo resume {name}` resumes it"
        elif near := difflib.get_close_matches(name, await names(client), 1):
            why = f"no worker offers {name!r}; did you mean {near[0]!r}?"
        else:
            why = f"no worker offers {name!r}; `polydomo services{to}` lists the available services"
        if not first.done():
            raise NoSuchService(why)


async def names(client: "AsyncClient") -> list[str]:
    """The names of all services that have workers; empty if the broker is not polydomo and cannot list them."""
    return [row["name"] for row in await services(client) if row["workers"]]


async def is_paused(client: "AsyncClient", service: str) -> bool:
    return any(row["name"] == service and row["state"] == "paused" for row in await services(client))


async def services(client: "AsyncClient") -> list[dict[str, Any]]:
    """The rows of ``polydomo services``; empty if the broker is not polydomo and cannot list them."""
    from polydomo.errors import PolydomoError

    try:
        rows = (await client.call("polydomo.services", timeout=HINT_TIME)).json()
        return [row for row in rows if {"name", "workers", "state"} <= row.keys()]
    except (PolydomoError, ValueError, TypeError, AttributeError):
        return []


# --- writing a reply ----------------------------------------------------------------------------------------------------

Write = Callable[["Result"], None]


def write_raw(part: "Result") -> None:
    for frame in part:
        sys.stdout.buffer.write(frame)
    sys.stdout.buffer.flush()


def write_text(part: "Result", table: ArrowTable | None = None) -> None:
    """A line for each frame. A terminal gets control characters other than line ends and tabs escaped; a pipe gets the text unchanged.

    Arrow IPC streams are printed as a table.
    """
    table = table or ArrowTable()
    if table.summary(part):
        return
    for frame in part:
        if table.write(frame):
            continue
        text = frame.decode("utf-8", "backslashreplace")
        if on_terminal():
            text = visible(text, keep="\n\t")
        out = text.encode("utf-8", "surrogateescape")
        sys.stdout.buffer.write(out if out.endswith(b"\n") else out + b"\n")
    sys.stdout.buffer.flush()


def write_json(part: "Result") -> None:
    line = jsons.dumps({"final": part.final, "frames": [json_frame(frame) for frame in part]})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def json_frame(frame: bytes) -> object:
    try:
        return frame.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(frame).decode()}
