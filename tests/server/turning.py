"""A server in the test's own loop, which is turned by hand."""

import asyncio
from collections.abc import Callable

LOOPS = ("uvloop", "asyncio")


async def until(condition: Callable[[], bool]) -> None:
    """Turns the loop until the condition holds."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)
