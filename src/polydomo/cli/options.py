"""Options that several commands share, and the address they all mean."""

from typing import Annotated

import typer

CLIENT_VARIABLE = "POLYDOMO_TO"  # where clients and workers of this command line connect to; no setting of a broker

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="URL",
        envvar=CLIENT_VARIABLE,
        help="Address of the broker; discover:// finds one by its beacon.  [default: tcp://127.0.0.1:5246]",
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option("--protocol", "-p", metavar="NAME", help="mdx, mdp1, mdp2, dcp, memo or emqp.  [default: mdx]"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def address(to: str | None) -> str:
    """The broker's address: the flag, the variable, or where ``polydomo up`` listens. Raises SettingError."""
    from polydomo.client.aio import DEFAULT_URL
    from polydomo.errors import SettingError
    from polydomo.wire.address import parse_url

    try:
        return str(parse_url(to or DEFAULT_URL, connect=True))
    except SettingError as error:
        raise SettingError(f"--to: {error}") from None


def protocol_name(protocol: str | None) -> str:
    from polydomo.protocols import registry

    return registry.find(protocol or registry.DEFAULT).name


def connect_time(url: str) -> float:
    """How long to wait for a connection: a broker on this machine is there or not, one far away may be slow to answer."""
    from polydomo.limits import CONNECT_TIME, CONNECT_TIME_LOCAL
    from polydomo.wire.address import DISCOVER, is_loopback, parse_url

    address = parse_url(url, connect=True)
    return CONNECT_TIME_LOCAL if is_loopback(address) and address.kind != DISCOVER else CONNECT_TIME
