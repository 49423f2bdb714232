"""HTTP clients and workers in worlds full of faults: every rule holds, and broken HTTP code is caught."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from polydomo.web import work
from polydomo.web.session import HttpSession
from polydomo.web.work import HttpWorker
from polydomo.wire.http.link import HttpLink
from sim import run
from sim.replacing import swap
from tests.forms import replaces_core

MIXES = (("http,mdx", "http,mdp2"), ("http,http,memo", "http,emqp,mdx"), ("mdp1,http", "http"))


def breaches(seed: int, clients: str, workers: str) -> list[str]:
    world = run.run_seed(seed, [f"clients={clients}", f"workers={workers}"])
    return [str(breach) for breach in world.breaches]


@pytest.mark.parametrize("seed", range(1, 7))
def test_every_rule_holds_with_http_peers(seed: int) -> None:
    assert breaches(seed, *MIXES[seed % len(MIXES)]) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_every_rule_holds_in_many_worlds(seed: int) -> None:
    assert breaches(seed, *MIXES[seed % len(MIXES)]) == []


def lease_never_ends(stack: ExitStack) -> None:
    """A worker that hangs keeps its request for ever."""

    def make(plain: Any) -> Any:
        def set_alarm(self: HttpWorker, what: str, seconds: float) -> None:
            plain(self, what, 1e9 if what == work.LEASE_OVER else seconds)

        return set_alarm

    swap(stack, HttpWorker, "set_alarm", make)
    swap(stack, HttpWorker, "bind", lambda bind: lambda self, session: None)


def clients_that_left_are_not_noticed(stack: ExitStack) -> None:
    swap(stack, HttpSession, "on_close", lambda on_close: lambda self, reason: None)


def requests_sent_ahead_are_dropped(stack: ExitStack) -> None:
    """What a client sends before it has its response is never read."""

    def make(plain: Any) -> Any:
        def answered(self: HttpLink) -> None:
            self.reader.rest()
            plain(self)

        return answered

    swap(stack, HttpLink, "_answered", make)


@replaces_core
@pytest.mark.parametrize(
    "break_it",
    [
        lease_never_ends,
        clients_that_left_are_not_noticed,
        requests_sent_ahead_are_dropped,
    ],
)
def test_broken_code_is_caught(break_it: Callable[[ExitStack], None]) -> None:
    found: list[str] = []
    with ExitStack() as stack:
        break_it(stack)
        for seed in range(1, 25):
            try:
                found = breaches(seed, *MIXES[seed % len(MIXES)])
            except Exception as error:
                found = [repr(error)]
            if found:
                break
    assert found, "no seed has noticed"
