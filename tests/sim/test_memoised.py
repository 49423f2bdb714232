"""Memoised services in their own simulator: seeds hold, and small deliberate breakages are found."""

from collections.abc import Callable
from typing import Any

import pytest

from polydomo.broker import outcomes
from polydomo.broker.memoising import Memoiser, Shared
from polydomo.journal.recorder import JournalRecorder
from polydomo.protocols.request import DONE, Request
from polydomo.wire.frames import Body, join
from sim.memoised import Breach, World


def run_seeds(count: int) -> None:
    for seed in range(count):
        World(seed).run()


Break = Callable[[pytest.MonkeyPatch], None]


def test_seeds_hold() -> None:
    hits = joined = 0
    for seed in range(15):
        world = World(seed).run()
        hits += world.memo.hits
        joined += world.memo.joined
    assert hits > 100 and joined > 100


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
        self.open.clear()

    patch.setattr(Memoiser, "serve", mutated)


def not_kept(patch: pytest.MonkeyPatch) -> None:
    """The store is never asked."""
    patch.setattr("sim.memoised.Store.reply", lambda self, key: None)


def failure_kept(patch: pytest.MonkeyPatch) -> None:
    """A failure is kept as if it were a reply."""
    failed = Memoiser.failed

    def mutated(self: Memoiser, request: Request, code: str, text: str) -> None:
        shared = request.ref
        assert isinstance(shared, Shared)
        if not self.store.broken:  # type: ignore[attr-defined]
            self.store.put_reply(shared.key, shared.service.name.decode(), "", join([code.encode()]))
        failed(self, request, code, text)

    patch.setattr(Memoiser, "failed", mutated)


def one_answered(patch: pytest.MonkeyPatch) -> None:
    """Of the requests that wait for one reply, only the first gets it."""
    settle = Memoiser._settle
    patch.setattr(Memoiser, "_settle", lambda self, shared: settle(self, shared)[:1])


def cancelled_for_all(patch: pytest.MonkeyPatch) -> None:
    """A run ends with the first client that leaves, though others wait."""

    def mutated(self: Memoiser, worker: Any, request: Request) -> bool:
        shared = self._holds.pop(request, None)
        if shared is not None:
            shared.waiting.pop(request.token, None)
            self.open.pop(shared.key, None)
            if shared.request is not None and shared.request.state != DONE:
                outcomes.cancel(self.core, shared.request, "no client waits for it any more")
        return True

    patch.setattr(Memoiser, "cancel_request", mutated)


def held_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A request that the memoiser gave back is still counted as held."""
    taken_back = outcomes.taken_back
    patch.setattr(outcomes, "taken_back", lambda worker, request: taken_back(worker, request) is None)


def answered_twice(patch: pytest.MonkeyPatch) -> None:
    """Requests that joined are answered, and run later all the same."""
    replied = Memoiser.replied

    def mutated(self: Memoiser, request: Request, body: Body) -> None:
        replied(self, request, join([b"part", b"other"]))

    patch.setattr(Memoiser, "replied", mutated)


def unwritten(patch: pytest.MonkeyPatch) -> None:
    """Hits have no row in the journal."""
    memoised = JournalRecorder.memoised

    def mutated(self: JournalRecorder, request: Request, how: str) -> None:
        if how != "hit":
            memoised(self, request, how)

    patch.setattr(JournalRecorder, "memoised", mutated)


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
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(mutant: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(Breach) as found:
        run_seeds(20)
    assert found.value.rule in MUTANTS[mutant], str(found.value)
