"""A call ends with the same error, whichever end notices first that its timeout has passed."""

import asyncio

import pytest

from polydomo.client.pending import Single
from polydomo.errors import CallTimeout
from polydomo.model.outcomes import TIMEOUT
from polydomo.protocols.ends import Failure


async def outcome(deadline: float, *, reported: bool) -> str:
    """The error of a call whose deadline is that many seconds from now: the broker reports the timeout, or the client notices it."""
    loop = asyncio.get_running_loop()
    call = Single(b"resize", b"", loop)
    call.deadline, call.timeout = loop.time() + deadline, 0.1
    if reported:
        call.on_failure(Failure(1, TIMEOUT, "the deadline passed"))
    else:
        call.expire()
    with pytest.raises(CallTimeout) as raised:
        await call.future
    return str(raised.value)


@pytest.mark.parametrize("reported", [True, False])
def test_either_end_may_notice_the_timeout(reported: bool) -> None:
    assert asyncio.run(outcome(0.0, reported=reported)) == "no reply from resize within 0.1 s"


def test_a_shorter_limit_of_the_broker_is_reported_with_its_reason() -> None:
    assert asyncio.run(outcome(60.0, reported=True)) == "resize: the deadline passed"
