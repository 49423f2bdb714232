"""Memoised services and requests with keys in their own simulator: seeds hold, and small deliberate breakages are found."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from polydomo.broker.requests import outcomes
from polydomo.broker.sharing.keyed import KeyedRequests
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.broker.sharing.shared_runs import SharedRuns
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.model.records import DONE, Request
from polydomo.model.shared_run import SharedRun
from polydomo.wire.frames import Body, join
from sim.memoised import Breach, Store, World
from sim.replacing import original, swap
from tests.forms import replaces_core


def run_seeds(count: int) -> None:
    for seed in range(count):
        World(seed).run()


Break = Callable[[ExitStack], None]


def test_seeds_hold() -> None:
    hits = joined = keyed = reused = 0
    for seed in range(15):
        world = World(seed).run()
        hits += world.memo.hits
        joined += world.memo.joined
        assert world.broker.keyed is not None
        keyed += world.broker.keyed.joined
        reused += world.broker.keyed.reused
    assert hits > 100 and joined > 100 and keyed > 100 and reused > 10


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_two_thousand_seeds_hold() -> None:
    for seed in range(2_000):
        World(10_000 + seed).run()


def body_ignored(stack: ExitStack) -> None:
    """All requests for one service have one key."""
    swap(stack, Memoiser, "key_of", lambda _: lambda self, service, body: service.ljust(32, b"."))


def service_ignored(stack: ExitStack) -> None:
    """The same body has one key for all services."""
    swap(stack, Memoiser, "key_of", lambda _: lambda self, service, body: bytes(body).ljust(32, b"."))


def not_joined(stack: ExitStack) -> None:
    """Identical requests run at the same time."""
    serve = original(Memoiser, "serve")

    def mutated(self: Memoiser, request: Request, needs_worker: bool) -> None:
        serve(self, request, needs_worker)
        self.runs.open.clear()

    swap(stack, Memoiser, "serve", lambda _: mutated)


def not_kept(stack: ExitStack) -> None:
    """The store is never asked."""
    swap(stack, Store, "reply", lambda _: lambda self, key: None)


def failure_kept(stack: ExitStack) -> None:
    """A failure is kept as if it were a reply."""
    failed = original(SharedRuns, "failed")

    def mutated(self: SharedRuns, request: Request, code: str, text: str) -> None:
        run = request.ref
        assert isinstance(run, SharedRun)
        if isinstance(self.owner, Memoiser) and not self.owner.store.broken:  # type: ignore[attr-defined]
            self.owner.store.put_reply(run.key, run.service.name.decode(), "", join([code.encode()]))
        failed(self, request, code, text)

    swap(stack, SharedRuns, "failed", lambda _: mutated)


def one_answered(stack: ExitStack) -> None:
    """Of the requests that wait for one reply, only the first gets it."""
    settle = original(SharedRuns, "_settle")
    swap(stack, SharedRuns, "_settle", lambda _: lambda self, run: settle(self, run)[:1])


def cancelled_for_all(stack: ExitStack) -> None:
    """A run ends with the first client that leaves, though others wait."""

    def mutated(self: SharedRuns, worker: Any, request: Request) -> bool:
        run = self._holds.pop(request, None)
        if run is not None:
            run.waiting.pop(request.token, None)
            self.open.pop(run.key, None)
            if run.request is not None and run.request.state != DONE:
                outcomes.cancel(self.state, run.request, "no client waits for it any more")
        return True

    swap(stack, SharedRuns, "cancel_request", lambda _: mutated)


def held_for_ever(stack: ExitStack) -> None:
    """A request that the memoiser gave back is still counted as held."""
    taken_back = original(outcomes, "taken_back")
    swap(stack, outcomes, "taken_back", lambda _: lambda worker, request: taken_back(worker, request) is None)


def answered_twice(stack: ExitStack) -> None:
    """Requests that joined are answered, and run later all the same."""
    replied = original(SharedRuns, "replied")

    def mutated(self: SharedRuns, request: Request, body: Body) -> None:
        replied(self, request, join([b"part", b"other"]))

    swap(stack, SharedRuns, "replied", lambda _: mutated)


def unwritten(stack: ExitStack) -> None:
    """Hits have no row in the journal."""
    memoised = original(JournalRecorder, "memoised")

    def mutated(self: JournalRecorder, request: Request, how: str) -> None:
        if how != "hit":
            memoised(self, request, how)

    swap(stack, JournalRecorder, "memoised", lambda _: mutated)


def keys_not_joined(stack: ExitStack) -> None:
    """Every request with a key has a run of its own."""
    serve = original(KeyedRequests, "serve")

    def mutated(self: KeyedRequests, request: Request, key: bytes, needs_worker: bool) -> None:
        serve(self, request, key + b"%d" % request.number, needs_worker)

    swap(stack, KeyedRequests, "serve", lambda _: mutated)


def other_body_joined(stack: ExitStack) -> None:
    """A request joins the one with its key, whatever its body."""
    serve = original(KeyedRequests, "serve")

    def mutated(self: KeyedRequests, request: Request, key: bytes, needs_worker: bool) -> None:
        for run in self.runs.open.values():
            if run.key.endswith(b"keyed" + key):
                run.body = request.body
        serve(self, request, key, needs_worker)

    swap(stack, KeyedRequests, "serve", lambda _: mutated)


def never_cancelled(stack: ExitStack) -> None:
    """A run under a key goes on when its last client has cancelled."""
    swap(stack, KeyedRequests, "keeps_running", lambda _: lambda self, run, disconnected: -1.0)


def linger_forgotten(stack: ExitStack) -> None:
    """A run that was kept for a client that connects again is never ended."""
    swap(stack, SharedRuns, "on_timer", lambda _: lambda self, key: None)


def late_one_misses_parts(stack: ExitStack) -> None:
    """A request that joins does not get the partial replies that were sent before."""
    join_run = original(SharedRuns, "join")

    def mutated(self: SharedRuns, run: SharedRun, request: Request) -> None:
        parts, run.parts = run.parts, []
        join_run(self, run, request)
        run.parts = parts

    swap(stack, SharedRuns, "join", lambda _: mutated)


def parts_twice(stack: ExitStack) -> None:
    """Partial replies are passed on twice."""
    partial = original(SharedRuns, "partial")

    def mutated(self: SharedRuns, request: Request, body: Body) -> None:
        run = request.ref
        assert isinstance(run, SharedRun)
        partial(self, request, body)
        for token in list(run.waiting):
            self.broker.partial(self.worker, token, body)

    swap(stack, SharedRuns, "partial", lambda _: mutated)


def parts_leak(stack: ExitStack) -> None:
    """The bytes of kept partial replies are counted for ever."""
    swap(stack, SharedRuns, "_drop_parts", lambda _: lambda self, run: None)


def join_unwritten(stack: ExitStack) -> None:
    """Requests that join have no row in the journal."""
    swap(stack, JournalRecorder, "keyed", lambda _: lambda self, request, how, key, run: None)


MUTANTS: dict[Break, set[str]] = {  # and the rules that may find them
    body_ignored: {"reply", "once"},
    service_ignored: {"reply", "once"},
    not_joined: {"once", "invariant", "rest"},
    not_kept: {"once"},
    failure_kept: {"reply", "once"},
    one_answered: {"rest", "invariant"},
    cancelled_for_all: {"rest", "invariant"},
    held_for_ever: {"rest"},
    answered_twice: {"reply"},
    unwritten: {"journal"},
    keys_not_joined: {"once"},
    other_body_joined: {"key", "reply"},
    never_cancelled: {"unwanted"},
    linger_forgotten: {"unwanted"},
    late_one_misses_parts: {"reply"},
    parts_twice: {"reply"},
    parts_leak: {"invariant"},
    join_unwritten: {"journal"},
}


@replaces_core
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(mutant: Break, stack: ExitStack) -> None:
    mutant(stack)
    with pytest.raises(Breach) as found:
        run_seeds(20)
    assert found.value.rule in MUTANTS[mutant], str(found.value)
