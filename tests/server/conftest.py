"""What several files of these tests share."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.server.turning import LOOPS


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], None]]:
    """Runs a coroutine on uvloop and on asyncio's own loop."""
    factory = pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run
