"""One exchange of a command with a broker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

from polydomo.cli.common import options

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Timeout = Annotated[float, options.time_option("How long to wait for a broker that can answer.")]


def with_client(to: str | None, timeout: float, ask: "Callable[[AsyncClient], Awaitable[Any]]") -> Any:
    """Runs one exchange with a broker; tries each of the given addresses."""
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.client.aio import AsyncClient

    url = options.address(to)

    async def run() -> Any:
        async with AsyncClient(url, timeout=timeout, refused_timeout=options.refused_time(url)) as client:
            return await ask(client)

    with needs_broker(url):
        return asyncio.run(run())
