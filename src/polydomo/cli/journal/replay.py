"""``polydomo replay``: sends the requests of a journal again."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.render import PrintedColumn, show, show_json
from polydomo.cli.journal import search
from polydomo.errors import PolydomoError, SettingError
from polydomo.journal.quantities import took

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient
    from polydomo.journal.reading.replay import RecordedRequest

AT_ONCE = 256  # maximum calls in flight; further calls wait


def add_to(app: typer.Typer) -> None:
    app.command()(replay)


def replay(
    journal: Annotated[
        Path, typer.Argument(metavar="DIR", help="The journal, recorded at level messages with bodies.")
    ],
    to: To = None,
    speed: Annotated[
        str, typer.Option(metavar="N", help="Multiple of the recorded speed; max is as fast as possible.")
    ] = "1",
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only requests of this time span, such as 10m.")
    ] = None,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Only requests to this service.")] = None,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="Only requests with this outcome: ok, failed (any failure), timeout, ..."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", "-p", metavar="NAME", help="Protocol of the calls.  [default: the recorded one]"),
    ] = None,
    timeout: Annotated[float, options.time_option("Timeout of each call.")] = 30.0,
    json: Json = False,
) -> None:
    """Send the requests of a journal to a broker again, at the recorded speed or faster.

    The broker that wrote it must have recorded the payloads: `polydomo up --journal messages --service resize.bodies`. Each
    recorded client becomes one connection. The command compares the outcomes with the recorded ones.

    **Examples**

    - `polydomo replay polydomo-data/journal --to tcp://127.0.0.1:6000`
    - `polydomo replay polydomo-data/journal --speed 10 --service resize`
    - `polydomo replay polydomo-data/journal --outcome failed --since 1h --speed max`
    """
    from polydomo.cli.common.exit_status import needs_broker

    factor = pace(speed)
    found = search.find(journal, None, "DIR")  # first, because it reports missing packages
    from polydomo.journal import schema
    from polydomo.journal.reading.reader import moment
    from polydomo.journal.reading.replay import asked

    back = search.seconds("--since", since)
    begin = moment(time.time() - back) if back is not None else None
    messages = found.reader.rows(schema.MESSAGES, begin)
    wanted, without = asked(messages, found.reader.rows(schema.REQUESTS, begin))
    search.print_problems(found.reader)
    wanted = [one for one in wanted if (service is None or one.service == service) and ended_as(one.outcome, outcome)]
    if not wanted:
        raise PolydomoError(
            f"{journal} has no request with its whole payload; record with --journal messages --service SERVICE.bodies"
        )
    url = options.address(to)
    with needs_broker(url):
        result = asyncio.run(Replay(url, wanted, factor, protocol, timeout).run())
    if json:
        show_json({**result.figures(), "without_payload": without})
        return
    figures = result.figures()
    show(
        [PrintedColumn("replay"), PrintedColumn("", right=True)],
        [
            [name.removesuffix("_us").replace("_", " "), took(value) if name.endswith("_us") else str(value)]
            for name, value in figures.items()
        ],
    )
    if without:
        typer.echo(f"polydomo: skipped {without} requests whose payload was not recorded, or only in part", err=True)


def ended_as(recorded: str, wanted: str | None) -> bool:
    """
    >>> ended_as("timeout", "failed"), ended_as("ok", "failed"), ended_as("", "failed"), ended_as("timeout", "timeout")
    (True, False, False, True)
    """
    if wanted is None:
        return True
    return recorded not in ("", "ok") if wanted == "failed" else recorded == wanted


def pace(speed: str) -> float:
    if speed == "max":
        return 0.0
    try:
        value = float(speed)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise SettingError(f"--speed: must be a number above 0, or max, not {speed!r}")
    return value


@dataclass
class ReplayResult:
    asked: int = 0
    answered: int = 0
    failed: int = 0
    like_before: int = 0
    seconds: float = 0.0
    recorded_seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)

    def figures(self) -> dict[str, int]:
        return {
            "asked": self.asked,
            "answered": self.answered,
            "failed": self.failed,
            "ended_as_recorded": self.like_before,
            "took_us": round(self.seconds * 1e6),
            "recorded_us": round(self.recorded_seconds * 1e6),
            **{f"failed_as_{name}": count for name, count in sorted(self.errors.items())},
        }


class Replay:
    def __init__(
        self, url: str, wanted: "list[RecordedRequest]", factor: float, protocol: str | None, timeout: float
    ) -> None:
        self.url = url
        self.wanted = wanted
        self.factor = factor
        self.protocol = protocol
        self.timeout = timeout
        self.outcome = ReplayResult(recorded_seconds=wanted[-1].time - wanted[0].time)
        self.clients: dict[tuple[int, str], AsyncClient] = {}
        self.room = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> ReplayResult:
        begin = time.monotonic()
        first = self.wanted[0].time
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as calls:
            for one in self.wanted:
                if self.factor:
                    wait = begin + (one.time - first) / self.factor - time.monotonic()
                    if wait > 0:
                        await asyncio.sleep(wait)
                await self.room.acquire()
                calls.create_task(self._call(await self._client(stack, one), one))
        self.outcome.seconds = time.monotonic() - begin
        return self.outcome

    async def _client(self, stack: contextlib.AsyncExitStack, one: "RecordedRequest") -> "AsyncClient":
        from polydomo.client.aio import AsyncClient
        from polydomo.protocols import registry

        name = self.protocol or one.protocol
        with contextlib.suppress(SettingError):
            name = registry.find(name).name
        key = (one.client, name)
        if key not in self.clients:
            client = AsyncClient(self.url, name, timeout=self.timeout, refused_timeout=options.refused_time(self.url))
            self.clients[key] = await stack.enter_async_context(client)
        return self.clients[key]

    async def _call(self, client: "AsyncClient", one: "RecordedRequest") -> None:
        outcome = self.outcome
        outcome.asked += 1
        try:
            await client.call(one.service.encode(), *one.frames)
        except PolydomoError as error:
            outcome.failed += 1
            name = type(error).__name__
            outcome.errors[name] = outcome.errors.get(name, 0) + 1
            outcome.like_before += one.outcome != "ok"
        else:
            outcome.answered += 1
            outcome.like_before += one.outcome == "ok"
        finally:
            self.room.release()
