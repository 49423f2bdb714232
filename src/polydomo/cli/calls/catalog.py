"""``polydomo catalog``, ``polydomo register`` and ``polydomo update``: the catalog of services, over DBP.

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
    app.command()(update)


def catalog(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Services to look up.  [default: all]")
    ] = None,
    function: Annotated[
        str, typer.Option(metavar="TEXT", help="Only services with this function; TEXT* for those that begin so.")
    ] = "",
    to: To = None,
    json: Json = False,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """List the services in the catalog, or look up services by name or function, over DBP.

    Services that are registered at other brokers, joined by bridges, are listed too, with their broker. Exits with status 4 if a
    name is not in the catalog, or no service has the function.

    **Examples**

    - `polydomo catalog`
    - `polydomo catalog weather --json`
    - `polydomo catalog --function 'the weather*'`
    - `polydomo catalog --to tcp://127.0.0.1:5246`
    """
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.errors import NoSuchService, SettingError

    url = options.address(to)
    if names and function:
        raise SettingError("--function: give names or a function, not both")
    with needs_broker(url):
        found, warning = asyncio.run(look(url, names or [], function, timeout))
    if json:
        show_json(found)
    elif found or not (names or function):
        named = any(isinstance(entry, dict) and "broker" in entry for entry in found.values())
        columns = [*COLUMNS, PrintedColumn("broker")] if named else COLUMNS
        show(columns, [cells(name, entry)[: len(columns)] for name, entry in found.items()])
    if warning:
        raise NoSuchService(warning)


async def look(url: str, names: list[str], function: str, timeout: float) -> "tuple[dict[str, object], str]":
    from polydomo.client.catalog import AsyncCatalog

    async with AsyncCatalog(url, timeout=timeout) as catalog:
        if not function:
            return await catalog.look(*names)
        found = await catalog.with_function(function)
        return found, "" if found else f"no service in the catalog has the function {function!r}"


def cells(name: str, entry: object) -> list[str]:
    """A one-line summary of a service. The entry's contents are chosen by the peer that registered it."""
    from polydomo.protocols.dbp.info import IP_KEYS, TIMING_KEYS

    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    port = fields.get("port")
    ip = next((fields[key] for key in IP_KEYS if fields.get(key)), "")
    address = fields.get("address") or (f"{ip}:{port}" if ip and port else ip)
    beat = next((fields[key] for key in TIMING_KEYS if key in fields), "")
    home = fields.get("broker")
    broker = home.get("address") or home.get("identity") if isinstance(home, dict) else ""
    words = (fields.get("protocol", "dbp"), address, fields.get("function", ""), beat, broker)
    return [name, *(str(word) for word in words)]


Ip = Annotated[
    str | None,
    typer.Option(metavar="IP", help="Its IP address.  [default: the address of this machine as the broker sees it]"),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="PREFIX", help="Topics that the service publishes at --pub-port; repeatable."),
]
PubPort = Annotated[
    int | None,
    typer.Option(
        "--pub-port", metavar="PORT", min=1, max=65535, help="Port of its PUB socket, to which the broker subscribes."
    ),
]


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the service.")],
    port: Annotated[int, typer.Option(metavar="PORT", min=1, max=65535, help="Where the service listens.")],
    ip: Ip = None,
    function: Annotated[str, typer.Option(metavar="TEXT", help="Description of the service.")] = "",
    topic: Topics = None,
    pub_port: PubPort = None,
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
    - `polydomo register weather --port 8080 --pub-port 8081 --topic weather.`
    """
    from polydomo.errors import SettingError

    if bool(topic) != (pub_port is not None):
        raise SettingError("--topic: needs --pub-port, and --pub-port needs --topic")
    information: dict[str, object] = {"name": name, "port": port, "function": function}
    information.update(publishes(topic, pub_port))
    if ip is not None:
        information["ip"] = ip
    if beat:
        information["heartbeat"] = beat
    asyncio.run(stay(options.address(to), information, timeout, udp_port if udp else 0))


def publishes(topics: list[str] | None, port: int | None) -> dict[str, object]:
    """The fields of a registration that name a publisher."""
    found: dict[str, object] = {}
    if topics:
        found["topics"] = topics
    if port is not None:
        found["interfaces"] = {"pub": {"port": port}}
    return found


def update(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the service.")],
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=1, max=65535, help="Where the service listens.")
    ] = None,
    ip: Annotated[str | None, typer.Option(metavar="IP", help="Its IP address.")] = None,
    function: Annotated[str | None, typer.Option(metavar="TEXT", help="Description of the service.")] = None,
    topic: Topics = None,
    pub_port: PubPort = None,
    beat: Annotated[
        float | None, options.time_option("Time between its heartbeats; the service must send them so.", least=0.1)
    ] = None,
    to: To = None,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """Change the registration of a service in the catalog, over DBP, from the machine that registered it.

    Prints the agreed time between heartbeats. Options that are not given keep their values. A `polydomo register` that is
    running registers its own values again when it has lost the broker. Exits with status 1 if the broker rejects the update.

    **Examples**

    - `polydomo update weather --function "the weather of tomorrow"`
    - `polydomo update weather --port 8081 --pub-port 8082 --topic weather. --topic sea.`
    """
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.errors import SettingError

    changes: dict[str, object] = {
        key: value
        for key, value in (("port", port), ("ip", ip), ("function", function), ("heartbeat", beat))
        if value is not None
    }
    changes.update(publishes(topic, pub_port))
    if not changes:
        raise SettingError("give at least one value to change, such as --function TEXT")
    url = options.address(to)
    with needs_broker(url):
        agreed = asyncio.run(change(url, {"name": name, **changes}, timeout))
    typer.echo(f"updated {name}" + (f"; a heartbeat every {agreed:g} s" if agreed else ""))


async def change(url: str, changes: dict[str, object], timeout: float) -> float:
    from polydomo.client.catalog import AsyncCatalog

    async with AsyncCatalog(url, timeout=timeout) as catalog:
        if "interfaces" in changes:  # the others stay
            found, _ = await catalog.look(str(changes["name"]))
            entry = found.get(str(changes["name"]))
            known = entry.get("interfaces") if isinstance(entry, dict) else None
            if isinstance(known, dict) and isinstance(changes["interfaces"], dict):
                changes["interfaces"] = {**known, **changes["interfaces"]}
        return await catalog.update(changes)


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
            typer.echo(
                f"registered {information['name']}" + (f"; a heartbeat every {interval:g} s" if interval else "")
            )

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
