"""``polydomo watch``: shows a broker's activity live."""

import asyncio
import sys
import time
from typing import Annotated, Any

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import To
from polydomo.cli.common.reading import read, reader
from polydomo.cli.common.render import on_terminal

Row = dict[str, Any]

WATCH_TIME = 5.0  # seconds to wait for one snapshot


def add_to(app: typer.Typer) -> None:
    app.command()(watch)


def watch(
    to: To = None,
    interval: Annotated[float, options.time_option("Time between updates.", least=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show services, workers, queues, rates, latencies and recent events of a broker, live.

    It reconnects when the broker restarts; press Ctrl-C to stop. In a pipe, and with `--json`, it prints snapshots one after another.

    **Examples**

    - `polydomo watch`
    - `polydomo watch --once`
    - `polydomo watch --json | jq -c '{rate, p99_us, queued}'`
    """
    from polydomo.cli.common.exit_status import needs_broker

    url = options.address(to)
    with needs_broker(url):
        if once:
            print_figures(asyncio.run(BrokerPoller(url).once()), json)
        elif json or not on_terminal():
            asyncio.run(follow(url, interval, json))
        else:
            asyncio.run(live(url, interval))


class BrokerPoller:
    """Reads metrics and workers from a broker."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def once(self) -> Row:
        async with reader(self.url, WATCH_TIME) as client:
            # the broker's monitor may not have ticked yet, so the first rates may cover less than a second
            return await self.look(client)

    async def look(self, client: Any) -> Row:
        """The metrics, and the workers to show."""
        from polydomo.errors import CallFailed, CallTimeout

        try:
            figures = (await read(client, "polydomo.figures")).json()
            workers = (await read(client, "polydomo.workers")).json()
        except CallTimeout:
            raise CallTimeout(f"{self.url} did not answer in time; is it a polydomo broker?") from None
        except ValueError:
            raise CallFailed(
                "not-implemented", f"{self.url} does not support polydomo.figures; is it a polydomo broker?"
            ) from None
        if not isinstance(figures, dict) or not isinstance(workers, list):
            raise CallFailed(
                "not-implemented", f"{self.url} does not support polydomo.figures; is it a polydomo broker?"
            )
        return {**figures, "workers_list": workers}


async def follow(url: str, interval: float, json: bool) -> None:
    """Prints snapshots, for a pipe. The first must succeed; after that, it waits for the broker whenever it is gone."""
    from polydomo.cli.common.exit_status import lost, print_error
    from polydomo.errors import PolydomoError

    looker = BrokerPoller(url)
    async with reader(url, WATCH_TIME) as client:
        print_figures(await looker.look(client), json)
        away = False
        while True:
            sys.stdout.flush()
            await asyncio.sleep(interval)
            try:
                print_figures(await looker.look(client), json)
                away = False
            except PolydomoError as error:
                if not away:
                    print_error(f"{lost(url, error)}; waiting for the broker")
                away = True


def print_figures(figures: Row, json: bool) -> None:
    import json as format

    from polydomo.cli.inspect.watch_view import lines

    if json:
        typer.echo(format.dumps(figures))
    else:
        typer.echo("\n".join(lines(figures)))


async def live(url: str, interval: float) -> None:
    """Draws the full screen until Ctrl-C. The first snapshot must succeed; after that, it waits for the broker whenever it is gone."""
    from rich.console import Console
    from rich.live import Live

    from polydomo.cli.common.exit_status import lost
    from polydomo.cli.inspect.watch_view import BARS, PLAIN, RateHistory, screen
    from polydomo.errors import PolydomoError

    looker = BrokerPoller(url)
    history = RateHistory()
    console = Console()
    bars = PLAIN if console.options.ascii_only else BARS
    async with reader(url, WATCH_TIME) as client:
        figures = await looker.look(client)
        with Live(console=console, screen=True, auto_refresh=False, transient=True) as view:
            trouble = ""
            while True:
                began = time.monotonic()
                history.add(figures)
                width, height = console.size
                view.update(screen(figures, history, width, height, trouble, bars), refresh=True)
                await asyncio.sleep(max(0.05, interval - (time.monotonic() - began)))
                try:
                    figures = await looker.look(client)
                    trouble = ""
                except PolydomoError as error:
                    trouble = lost(url, error)
