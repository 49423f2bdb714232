"""The simulator itself: a seed always gives the same record, and a failing seed prints the command that runs it again."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from polydomo.native import is_compiled
from sim import run
from sim.clock import Process, Scheduler
from sim.mutate import MUTANTS
from sim.network import Endpoint, Listener, Network, Owner
from sim.options import FAULTS, PROTOCOLS, Options, draw, override
from tests.forms import replaces_core

SOURCE = Path(__file__).parents[2] / "src"
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def digests(**environment: str) -> str:
    command = [sys.executable, "-m", "sim.run", "--seeds", "6", "--first", "11", "--digest"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return "".join(line for line in done.stdout.splitlines(keepends=True) if len(line.split()) == 2)


def test_the_same_seed_gives_the_same_record_byte_for_byte() -> None:
    first = digests(PYTHONHASHSEED="1")
    assert len(first.splitlines()) == 6
    assert digests(PYTHONHASHSEED="2") == first


def test_different_seeds_give_different_worlds() -> None:
    assert len({run.run_seed(seed).record.digest() for seed in (1, 2, 3)}) == 3


@pytest.mark.skipif(not is_compiled(), reason="compares the compiled core with the interpreted one")
def test_the_compiled_core_tells_the_same_story_as_the_interpreted_one() -> None:
    assert digests(PYTHONPATH=str(SOURCE)) == digests()


def test_every_protocol_and_every_fault_is_drawn_by_some_seed() -> None:
    drawn = [draw(seed) for seed in range(1, 301)]
    assert {protocol for options in drawn for protocol in options.clients} == {*PROTOCOLS, "http"}
    assert {protocol for options in drawn for protocol in options.workers} == {*PROTOCOLS, "http"}
    assert {fault for options in drawn for fault in options.faults()} == {*FAULTS, "greed"}
    assert any(not options.faults() or len(options.faults()) < 4 for options in drawn), (
        "a swarm has worlds with few faults"
    )


@replaces_core
def test_a_failing_seed_prints_its_command_and_the_history_of_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = BY_NAME["attempts-unbounded"]
    options = [part for change in mutant.changes for part in ("--option", change)]
    with mutant.broken():
        assert run.main(["--seeds", "5", "--first", "1", "--stop", *options]) == 1
    said = capsys.readouterr().out
    assert "failing=0.9" in options
    assert f"failed; run it again with: python -m sim.run --seeds 1 --first 1 {' '.join(options)}\n" in said
    assert "the history of c" in said and "submitted" in said and "accepted" in said
    assert "failed: 1" in said


def test_a_successful_run_prints_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--seeds", "2", "--first", "1"]) == 0
    said = capsys.readouterr().out
    for word in ("seeds/s", "events/s", "faults:", "requests checked", "outcomes:", "every seed held"):
        assert word in said


def test_options_are_set_by_name() -> None:
    options = Options()
    for text in ("cut=0.5", "clients=mdx,memo", "attempts=7", "nng=true"):
        override(options, text)
    assert (options.cut, options.clients, options.attempts, options.nng) == (0.5, ["mdx", "memo"], 7, True)
    with pytest.raises(ValueError):
        override(options, "nonsense=1")
    with pytest.raises(ValueError):
        override(options, "attempts=many")


# --- the network -----------------------------------------------------------------------------------------------------------


class Sink(Owner):
    def __init__(self) -> None:
        self.data = b""
        self.pieces = 0
        self.lost = ""

    def on_data(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def on_lost(self, reason: str) -> None:
        self.lost = reason


class Host(Listener):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler, "host")
        self.sink = Sink()
        self.endpoint: Endpoint | None = None

    def accept(self, endpoint: Endpoint) -> Owner:
        self.endpoint = endpoint
        return self.sink


class Pair:
    def __init__(self, seed: int = 1, **options: float) -> None:
        self.scheduler = Scheduler()
        chosen = Options()
        for name, value in options.items():
            setattr(chosen, name, value)
        self.network = Network(self.scheduler, chosen, Random(seed))
        self.peer = Process(self.scheduler, "peer")
        self.host = Host(self.scheduler)
        self.mine = Sink()
        self.near: list[Endpoint] = []
        self.network.dial(self.peer, self.host, self.mine, self.near.append, lambda why: None)
        self.wait(1.0)

    def wait(self, seconds: float) -> None:
        end = self.scheduler.now + seconds
        while self.scheduler.step(end):
            pass


def test_bytes_arrive_in_order_for_any_split() -> None:
    pair = Pair(split=1.0, jitter=0.1)
    sent = b"".join(b"%05d" % i for i in range(2000))
    for at in range(0, len(sent), 500):
        pair.near[0].write(sent[at : at + 500])
        pair.wait(0.05)
    pair.wait(5.0)
    assert pair.host.sink.data == sent
    assert pair.host.sink.pieces > 20


def test_a_blocked_direction_delivers_later_and_the_other_at_once() -> None:
    pair = Pair()
    pair.network.block(pair.peer, pair.host, 3.0)
    pair.near[0].write(b"there")
    assert pair.host.endpoint is not None
    pair.host.endpoint.write(b"back")
    pair.wait(1.0)
    assert (pair.host.sink.data, pair.mine.data) == (b"", b"back")
    pair.wait(3.0)
    assert pair.host.sink.data == b"there"


def test_a_cut_loses_a_suffix_and_both_sides_learn_of_it() -> None:
    seen = set()
    for seed in range(20):
        pair = Pair(seed, jitter=0.5)
        for i in range(10):
            pair.near[0].write(b"%d" % i * 10)
        pair.network.connections[0].cut(Random(seed), 0.0)
        pair.wait(5.0)
        whole = b"".join(b"%d" % i * 10 for i in range(10))
        assert whole.startswith(pair.host.sink.data)
        assert pair.host.sink.lost and pair.mine.lost
        seen.add(len(pair.host.sink.data))
    assert len(seen) > 1


def test_a_peer_that_does_not_read_still_sees_the_end() -> None:
    pair = Pair()
    assert pair.host.endpoint is not None
    pair.host.endpoint.read(False)
    pair.near[0].write(b"unread")
    pair.wait(1.0)
    pair.near[0].close()
    pair.wait(1.0)
    assert pair.host.sink.data == b"" and pair.host.sink.lost


def test_a_frozen_process_is_late_and_a_dead_one_forgets() -> None:
    scheduler = Scheduler()
    done: list[str] = []
    frozen, dead = Process(scheduler, "frozen"), Process(scheduler, "dead")
    frozen.later(1.0, lambda: done.append("late"))
    frozen.later(1.0, lambda: done.append("called off")).cancel()
    dead.later(1.0, lambda: done.append("never"))
    frozen.freeze()
    dead.die()
    while scheduler.step(5.0):
        pass
    assert done == []
    frozen.thaw()
    while scheduler.step(6.0):
        pass
    assert done == ["late"]
