"""Calls of the broker's own services that only read."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient
    from polydomo.client.message import Result


async def read(client: "AsyncClient", service: str, question: str | bytes = "") -> "Result":
    """Calls the service, and repeats the call once if its connection breaks: reading twice does no harm."""
    from polydomo.errors import ConnectionLost, NotConnected

    try:
        return await client.call(service, question)
    except NotConnected:
        raise  # the client has already tried again
    except ConnectionLost:
        return await client.call(service, question)
