"""Memoised services and requests with keys in their own simulator: seeds hold, and small deliberate breakages are found."""

from collections.abc import Callable
from typing import Any

import pytest

from polydomo.broker import outcomes
from polydomo.broker.keyed_requests import KeyedRequests
from polydomo.broker.memoising import Memoiser
from polydomo.broker.shared_runs import SharedRuns
from polydomo.journal.recorder import JournalRecorder
from polydomo.protocols.request import DONE, Request
from polydomo.protocols.shared_run import SharedRun
from polydomo.wire.frames import Body, join
from sim.memoised import Breach, World


def run_seeds(count: int) -> None:
    for seed in range(count):
        World(seed).run()


Break = Callable[[pytest.MonkeyPatch], None]


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


def body_ignored(patch: pytest.MonkeyPatch) -> None:
    """All requests for one service have one key."""
    patch.setattr(Memoiser, "key_of", lambda self, service, body: service.ljust(32, b"."))


def service_ignored(patch: pytest.MonkeyPatch) -> None:
    """The same body has one key for all services."""
    patch.setattr(Memoiser, "key_of", lambda self, service, body: bytes(body).ljust(32, b"."))


def not_joined(patch: pytest.MonkeyPatch) -> None:
    """Identical requests run at the same time."""
    serve = Memoiser.serve

    def mutated(self: Memoiser, request: Request, needs_worker: bool) -> None:
        serve(self, request, needs_worker)
        self.runs.open.clear()

    patch.setattr(Memoiser, "serve", mutated)


def not_kept(patch: pytest.MonkeyPatch) -> None:
    """The store is never asked."""
    patch.setattr("sim.memoised.Store.reply", lambda self, key: None)


def failure_kept(patch: pytest.MonkeyPatch) -> None:
    """A failure is kept as if it were a reply."""
    failed = SharedRuns.failed

    def mutated(self: SharedRuns, request: Request, code: str, text: str) -> None:
        run = request.ref
        assert isinstance(run, SharedRun)
        if isinstance(self.owner, Memoiser) and not self.owner.store.broken:  # type: ignore[attr-defined]
            self.owner.store.put_reply(run.key, run.service.name.decode(), "", join([code.encode()]))
        failed(self, request, code, text)

    patch.setattr(SharedRuns, "failed", mutated)


def one_answered(patch: pytest.MonkeyPatch) -> None:
    """Of the requests that wait for one reply, only the first gets it."""
    settle = SharedRuns._settle
    patch.setattr(SharedRuns, "_settle", lambda self, run: settle(self, run)[:1])


def cancelled_for_all(patch: pytest.MonkeyPatch) -> None:
    """A run ends with the first client that leaves, though others wait."""

    def mutated(self: SharedRuns, worker: Any, request: Request) -> bool:
        run = self._holds.pop(request, None)
        if run is not None:
            run.waiting.pop(request.token, None)
            self.open.pop(run.key, None)
            if run.request is not None and run.request.state != DONE:
                outcomes.cancel(self.core, run.request, "no client waits for it any more")
        return True

    patch.setattr(SharedRuns, "cancel_request", mutated)


def held_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A request that the memoiser gave back is still counted as held."""
    taken_back = outcomes.taken_back
    patch.setattr(outcomes, "taken_back", lambda worker, request: taken_back(worker, request) is None)


def answered_twice(patch: pytest.MonkeyPatch) -> None:
    """Requests that joined are answered, and run later all the same."""
    replied = SharedRuns.replied

    def mutated(self: SharedRuns, request: Request, body: Body) -> None:
        replied(self, request, join([b"part", b"other"]))

    patch.setattr(SharedRuns, "replied", mutated)


def unwritten(patch: pytest.MonkeyPatch) -> None:
    """Hits have no row in the journal."""
    memoised = JournalRecorder.memoised

    def mutated(self: JournalRecorder, request: Request, how: str) -> None:
        if how != "hit":
            memoised(self, request, how)

    patch.setattr(JournalRecorder, "memoised", mutated)


def keys_not_joined(patch: pytest.MonkeyPatch) -> None:
    """Every request with a key has a run of its own."""
    serve = KeyedRequests.serve

    def mutated(self: KeyedRequests, request: Request, key: bytes, needs_worker: bool) -> None:
        serve(self, request, key + b"%d" % request.number, needs_worker)

    patch.setattr(KeyedRequests, "serve", mutated)


def other_body_joined(patch: pytest.MonkeyPatch) -> None:
    """A request joins the one with its key, whatever its body."""
    serve = KeyedRequests.serve

    def mutated(self: KeyedRequests, request: Request, key: bytes, needs_worker: bool) -> None:
        for run in self.runs.open.values():
            if run.key.endswith(b"keyed" + key):
                run.body = request.body
        serve(self, request, key, needs_worker)

    patch.setattr(KeyedRequests, "serve", mutated)


def never_cancelled(patch: pytest.MonkeyPatch) -> None:
    """A run under a key goes on when its last client has cancelled."""
    patch.setattr(KeyedRequests, "keeps_running", lambda self, run, disconnected: -1.0)


def linger_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A run that was kept for a client that connects again is never ended."""
    patch.setattr(SharedRuns, "on_timer", lambda self, key: None)


def late_one_misses_parts(patch: pytest.MonkeyPatch) -> None:
    """A request that joins does not get the partial replies that were sent before."""
    join_run = SharedRuns.join

    def mutated(self: SharedRuns, run: SharedRun, request: Request) -> None:
        parts, run.parts = run.parts, []
        join_run(self, run, request)
        run.parts = parts

    patch.setattr(SharedRuns, "join", mutated)


def parts_twice(patch: pytest.MonkeyPatch) -> None:
    """Partial replies are passed on twice."""
    partial = SharedRuns.partial

    def mutated(self: SharedRuns, request: Request, body: Body) -> None:
        run = request.ref
        assert isinstance(run, SharedRun)
        partial(self, request, body)
        for token in list(run.waiting):
            self.core.partial(self.worker, token, body)

    patch.setattr(SharedRuns, "partial", mutated)


def parts_leak(patch: pytest.MonkeyPatch) -> None:
    """The bytes of kept partial replies are counted for ever."""
    patch.setattr(SharedRuns, "_drop_parts", lambda self, run: None)


def join_unwritten(patch: pytest.MonkeyPatch) -> None:
    """Requests that join have no row in the journal."""
    patch.setattr(JournalRecorder, "keyed", lambda self, request, how, key, run: None)


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


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(mutant: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Breach) as found:
        run_seeds(20)
    assert found.value.rule in MUTANTS[mutant], str(found.value)
