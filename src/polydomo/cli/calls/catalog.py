"""``polydomo catalog`` and ``polydomo register``: the catalog of services, over DBP.

They work with any broker that speaks DBP. With polydomo, they also see the services of the other protocols.
"""

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import ANSWER_TIME, Json, Timeout, To
from polydomo.cli.common.render import PrintedColumn, show, show_json
from polydomo.limits import DBP_BROADCAST_PORT

if TYPE_CHECKING:
    from polydomo.errors import PolydomoError

COLUMNS = [
    PrintedColumn("service"),
    PrintedColumn("protocol"),
    PrintedColumn("address"),
    PrintedColumn("function", folds=True),
    PrintedColumn("heartbeat", right=True),
]


def add_to(app: typer.Typer) -> None:
    app.command()(catalog)
    app.command()(register)


def catalog(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Services to look up.  [default: all]")
    ] = None,
    to: To = None,
    json: Json = False,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """List the services in the catalog, or look up services by name, over DBP.

    Exits with status 4 if a name is not in the catalog.

    **Examples**

    - `polydomo catalog`
    - `polydomo catalog weather --json`
    - `polydomo catalog --to tcp://127.0.0.1:5246`
    """
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.errors import NoSuchService

    url = options.address(to)
    with needs_broker(url):
        found, warning = asyncio.run(look(url, names or [], timeout))
    if json:
        show_json(found)
    elif found or not names:
        show(COLUMNS, [cells(name, entry) for name, entry in found.items()])
    if warning:
        raise NoSuchService(warning)


async def look(url: str, names: list[str], timeout: float) -> "tuple[dict[str, object], str]":
    from polydomo.client.catalog import AsyncCatalog

    async with AsyncCatalog(url, timeout=timeout) as catalog:
        return await catalog.look(*names)


def cells(name: str, entry: object) -> list[str]:
    """A one-line summary of a service. The entry's contents are chosen by the peer that registered it."""
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    ip, port = fields.get("ip"), fields.get("port")
    address = fields.get("address") or (f"{ip}:{port}" if ip and port else ip or "")
    beat = fields.get("heartbeat", "")
    return [name, *(str(word) for word in (fields.get("protocol", "dbp"), address, fields.get("function", ""), beat))]


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the service.")],
    port: Annotated[int, typer.Option(metavar="PORT", min=1, max=65535, help="Where the service listens.")],
    ip: Annotated[
        str | None,
        typer.Option(
            metavar="IP", help="Its IP address.  [default: the address of this machine as the broker sees it]"
        ),
    ] = None,
    function: Annotated[str, typer.Option(metavar="TEXT", help="Description of the service.")] = "",
    beat: Annotated[float, options.time_option("Time between heartbeats; 0 sends none.", least=0.0)] = 5.0,
    udp: Annotated[
        bool, typer.Option("--udp", help="Send heartbeats over UDP as long as the broker's broadcasts arrive.")
    ] = False,
    udp_port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65535, help="UDP port of the broker's broadcasts.")
    ] = DBP_BROADCAST_PORT,
    to: To = None,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """Register a service in the catalog over DBP, and keep it registered with heartbeats until SIGTERM or Ctrl-C.

    The service itself runs elsewhere. If the connection to the broker is lost, the command registers the service again once a
    broker is back. Exits with status 1 if the broker rejects the registration.

    **Examples**

    - `polydomo register weather --port 8080 --function "the weather, over HTTP"`
    - `polydomo register weather --ip 192.0.2.7 --port 8080 --beat 1`
    - `polydomo register weather --port 8080 --udp --to discover://`
    """
    information: dict[str, object] = {"name": name, "port": port, "function": function}
    if ip is not None:
        information["ip"] = ip
    if beat:
        information["heartbeat"] = beat
    asyncio.run(stay(options.address(to), information, timeout, udp_port if udp else 0))


async def stay(url: str, information: dict[str, object], timeout: float, udp_port: int = 0) -> None:
    from polydomo.cli.common.exit_status import not_there, print_error
    from polydomo.client import catalog
    from polydomo.errors import NotConnected
    from polydomo.wire.address import DISCOVER, Address

    class Person(catalog.RegistrationObserver):
        """Reports each change to the user once."""

        missing = False

        def registered(self, interval: float) -> None:
            self.missing = False
            typer.echo(f"registered {information['name']}" + (f", beating every {interval:g} s" if interval else ""))

        def lost(self, error: "PolydomoError") -> None:
            if not self.missing:
                self.missing = True
                if isinstance(error, NotConnected):
                    print_error(f"{not_there(url, str(error), error.accepted)}; waiting for the broker")
                else:
                    print_error(f"{error}; registering again")

    place = catalog.AsyncCatalog(url, timeout=timeout)
    udp = Address(DISCOVER, "*", udp_port) if udp_port else None
    staying = asyncio.ensure_future(catalog.stay_registered(place, information, Person(), udp))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, staying.cancel)
    try:
        await staying
    except asyncio.CancelledError:
        place.leave()
    finally:
        await place.close()
