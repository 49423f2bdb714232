"""``polydomo discover``: lists the brokers whose beacons arrive."""

import asyncio
from typing import Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import Json
from polydomo.cli.common.render import PrintedColumn, show, show_json
from polydomo.limits import BEACON_PORT, DISCOVER_TIME


def add_to(app: typer.Typer) -> None:
    app.command()(discover)


def discover(
    seconds: Annotated[
        float, options.time_option("How long to listen; brokers send a beacon once a second.", least=0.01)
    ] = DISCOVER_TIME,
    port: Annotated[int, typer.Option(metavar="PORT", min=1, max=65535, help="UDP port to listen on.")] = BEACON_PORT,
    json: Json = False,
) -> None:
    """List brokers that broadcast a beacon (`polydomo up --beacon`).

    Exits with status 5 if no beacon arrives. Clients and workers find a broker the same way with `--to discover://`.

    **Examples**

    - `polydomo discover`
    - `polydomo discover --seconds 5 --json | jq -r '.[].address'`
    - `polydomo call echo hello --to discover://`
    """
    from polydomo.client import discovery
    from polydomo.errors import NotConnected
    from polydomo.wire.address import DISCOVER, Address

    heard = asyncio.run(discovery.listen(seconds, Address(DISCOVER, "*", port)))
    if not heard:
        raise NotConnected(
            f"no beacon arrived on UDP port {port} within {seconds:g} s; start a broker with `polydomo up --beacon`"
        )
    rows = [{"address": str(found.address), "beacons": found.count} for found in heard]
    if json:
        show_json(rows)
    else:
        show(
            [PrintedColumn("broker"), PrintedColumn("beacons", right=True)],
            [[str(row["address"]), str(row["beacons"])] for row in rows],
        )
