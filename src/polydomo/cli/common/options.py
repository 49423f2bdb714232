"""Options that several commands share, and the address of the broker."""

import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from polydomo.cli.common.security import name_of, remember_name

CLIENT_VARIABLE = "POLYDOMO_TO"  # the address that commands connect to; not a setting of the broker

To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="URL",
        envvar=CLIENT_VARIABLE,
        callback=remember_name,
        help="Address of the broker; discover:// waits for a beacon.  [default: tcp://127.0.0.1:5246]",
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option("--protocol", "-p", metavar="NAME", help="mdx, mdp1, mdp2, dcp, memo or emqp.  [default: mdx]"),
]
TypeSize = Annotated[
    int | None,
    typer.Option(
        "--type-size",
        metavar="N",
        help="DCP: bytes of the message type, 1 or 4; the DagBox broker uses 4.  [default: 1]",
    ),
]
Frame0 = Annotated[
    str | None,
    typer.Option(
        "--frame0", metavar="TEXT", help="MDX: frame 0 of every message, if the broker does not use the default."
    ),
]


def seconds(least: float = 0.0) -> Callable[[Any], float]:
    """Reads a time for a flag: ``5``, ``5s``, ``500ms``, ``2m``."""

    def read(text: Any) -> float:
        from polydomo.server.settings.types import Seconds

        try:
            return Seconds(least).read(text)
        except ValueError as error:
            raise typer.BadParameter(f"{error}, not {text!r}") from None

    read.__name__ = "time"
    return read


def time_option(text: str, *names: str, least: float = 0.001) -> Any:
    """A flag that takes a time."""
    return typer.Option(*names, metavar="TIME", parser=seconds(least), help=text)


def size_option(text: str, *names: str) -> Any:
    """A flag that takes a number of bytes: ``500MiB``."""
    return typer.Option(*names, metavar="SIZE", parser=_size, help=text)


def _size(text: Any) -> int:
    from polydomo.server.settings.types import Size

    try:
        return Size(0).read(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}, not {text!r}") from None


_size.__name__ = "size"


Timeout = Annotated[float, time_option("Timeout for the answer, such as 500ms or 5s.")]
ANSWER_TIME = 15.0  # seconds; a broker answers at once, unless its machine is suspended for a while
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def address(to: str | None) -> str:
    """The broker's address: the flag, the variable, the context, or where ``polydomo up`` listens. Raises SettingError."""
    from polydomo.cli.common.security import target
    from polydomo.errors import SettingError
    from polydomo.wire.address import parse_url

    try:
        for url in to.split(",") if to else []:
            parse_url(url.strip(), connect=True)
    except SettingError as error:
        raise SettingError(f"{name_of('to')}: {error}") from None
    return target(to)


def read_log_level(text: str) -> str:
    """The value of ``--log-level``. Raises SettingError."""
    from polydomo.errors import SettingError
    from polydomo.server import logs
    from polydomo.server.settings.types import Choice

    try:
        return Choice(*logs.LEVELS).read(text)
    except ValueError as error:
        raise SettingError(f"--log-level: {error}, not {text!r}") from None


def protocol_name(protocol: str | None) -> str:
    from polydomo.errors import SettingError
    from polydomo.protocols import registry

    if protocol is not None and protocol.strip().lower() == "dbp":
        raise SettingError("--protocol: dbp clients send no requests; use another protocol, or `polydomo catalog`")
    try:
        return registry.find(protocol or registry.DEFAULT).name
    except SettingError as error:
        raise SettingError(f"--{error}") from None


def worker_protocol_name(protocol: str | None) -> str:
    """The same for workers, which have one protocol more."""
    from polydomo.errors import SettingError
    from polydomo.protocols import registry

    try:
        return registry.find_worker(protocol or registry.DEFAULT).name
    except SettingError as error:
        raise SettingError(f"--{error}") from None


def of_protocol(protocol: str, type_size: int | None, frame0: str | None) -> dict[str, Any]:
    """Options of a protocol, for brokers that deviate from the specification. Raises SettingError."""
    from polydomo.errors import SettingError
    from polydomo.protocols.dcp.session import TYPE_SIZES

    found: dict[str, Any] = {}
    if type_size is not None:
        if protocol != "dcp":
            raise SettingError(f"--type-size: only dcp has this option, not {protocol}")
        if type_size not in TYPE_SIZES:
            raise SettingError(f"--type-size: must be 1 or 4, not {type_size}")
        found["type_size"] = type_size
    if frame0 is not None:
        if protocol != "mdx":
            raise SettingError(f"--frame0: only mdx has this option, not {protocol}")
        found["header"] = os.fsencode(frame0)
    return found


def headers_of(protocol: str, words: list[str]) -> dict[str, str]:
    """Parses headers written as ``NAME:VALUE`` or ``NAME``. Raises SettingError."""
    from polydomo.errors import SettingError
    from polydomo.protocols import registry

    found = {name.strip(): value.strip() for name, _, value in (word.partition(":") for word in words)}
    write = registry.find(protocol).headers
    if words and write is None:
        raise SettingError(f"--header: only emqp has headers, not {protocol}")
    if write is not None:
        try:
            write(found)
        except SettingError as error:
            raise SettingError(f"--header{str(error).removeprefix('headers')}") from None
    return found


def refused_time(url: str) -> float:
    """How long to retry while connections are refused: short if the only address is on this machine, because no program listens there."""
    from polydomo.limits import CONNECT_TIME, CONNECT_TIME_LOCAL
    from polydomo.wire.address import DISCOVER, is_loopback, parse_url

    addresses = [parse_url(one, connect=True) for one in url.split(",")]
    local = len(addresses) == 1 and addresses[0].kind != DISCOVER and is_loopback(addresses[0])
    return CONNECT_TIME_LOCAL if local else CONNECT_TIME
