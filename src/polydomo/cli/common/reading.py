"""Calls of the broker's own services that only read."""

from typing import TYPE_CHECKING

from polydomo.cli.common import options

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient
    from polydomo.client.message import Result


def reader(url: str, timeout: float) -> "AsyncClient":
    """A client for these calls, over MDP/0.1, which works whatever the settings of the other protocols are."""
    from polydomo.client.aio import AsyncClient

    return AsyncClient(url, "mdp1", timeout=timeout, refused_timeout=options.refused_time(url))


async def read(client: "AsyncClient", service: str, question: str | bytes = "") -> "Result":
    """Calls the service, and repeats the call once if its connection breaks: reading twice does no harm."""
    from polydomo.errors import ConnectionLost, NotConnected

    try:
        return await client.call(service, question)
    except NotConnected:
        raise  # the client has already tried again
    except ConnectionLost:
        return await client.call(service, question)
