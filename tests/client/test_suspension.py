"""Time in which the process was suspended does not count for a wait."""

import asyncio
import time

import pytest

from polydomo.cli.broker.up import fast_loop
from polydomo.client import suspension
from polydomo.client.suspension import running_timeout, wait_running
from polydomo.limits import OVERSLEPT

pytestmark = pytest.mark.real_time
LIMIT = 2.0
PAUSE = OVERSLEPT + LIMIT + 0.1


async def answer_after(pause: float) -> str:
    """The process stands still for ``pause`` seconds; what arrived meanwhile is read in the turns after that."""
    time.sleep(pause)
    for _ in range(5):
        await asyncio.sleep(0.001)
    return "answer"


@pytest.mark.parametrize("fast", [True, False])
def test_a_suspension_does_not_end_the_wait(fast: bool) -> None:
    async def play() -> None:
        answer = asyncio.ensure_future(answer_after(PAUSE))
        await wait_running([answer], LIMIT)
        assert answer.done()

    with asyncio.Runner(loop_factory=fast_loop() if fast else None) as runner:
        runner.run(play())


def test_one_timer_serves_all_waits_of_a_loop() -> None:
    async def play() -> None:
        answers = [asyncio.ensure_future(answer_after(0.0)) for _ in range(1000)]
        waits = [asyncio.ensure_future(wait_running([answer], 60.0)) for answer in answers]
        await asyncio.sleep(0)
        clock = suspension._clocks[asyncio.get_running_loop()]
        assert len(clock.meters) == 1000
        await asyncio.gather(*waits)
        assert not clock.meters and clock._timer.cancelled()

    asyncio.run(play())


def test_the_wait_ends_in_time_without_one() -> None:
    async def play() -> None:
        never = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            async with running_timeout(0.1):
                await never
        assert never.cancelled()
        never = asyncio.get_running_loop().create_future()
        await wait_running([never], 0.1)
        assert not never.done()

    asyncio.run(play())
