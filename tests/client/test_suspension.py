"""Time in which the process was suspended does not count for a wait."""

import asyncio
import time

import pytest

from polydomo.client.suspension import running_timeout, wait_running
from polydomo.limits import OVERSLEPT, SUSPENSION_LOOK

LIMIT = 2 * SUSPENSION_LOOK
PAUSE = OVERSLEPT + LIMIT + 0.1


async def answer_after(pause: float) -> str:
    """The process stands still for ``pause`` seconds; what arrived meanwhile is read in the turns after that."""
    time.sleep(pause)
    for _ in range(5):
        await asyncio.sleep(0.001)
    return "answer"


def test_a_suspension_does_not_end_the_wait() -> None:
    async def play() -> None:
        async with running_timeout(LIMIT):
            assert await answer_after(PAUSE) == "answer"
        answer = asyncio.ensure_future(answer_after(PAUSE))
        await wait_running([answer], LIMIT)
        assert answer.done()

    asyncio.run(play())


def test_the_wait_ends_in_time_without_one() -> None:
    async def play() -> None:
        never = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            async with running_timeout(LIMIT):
                await never
        assert never.cancelled()
        never = asyncio.get_running_loop().create_future()
        await wait_running([never], LIMIT)
        assert not never.done()

    asyncio.run(play())
