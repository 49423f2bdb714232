"""Replay of a journal: through the core with the recorded clock, and against a real broker."""

import json
from pathlib import Path

import pytest

import polydomo
from polydomo.broker.broker import Broker
from polydomo.journal.levels import Levels
from polydomo.journal.reading.replay import Core, asked, comparable_events
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.schema import MESSAGES
from polydomo.model.name_patterns import chosen
from polydomo.wire.frames import join
from tests.broker.rig import START
from tests.cli.shell import Broker as Up
from tests.cli.shell import run
from tests.entropy import Zeros
from tests.journal.stage import RUN, Row, journalled, live


def again(rows: list[Row]) -> tuple[Core, list[Row]]:
    recorder = JournalRecorder(Run("again", 2, 0.0), Levels(MESSAGES))
    broker = Broker(START, Zeros(), recorder=recorder)
    recorder.attach(broker)
    core = Core(broker, rows)
    core.run()
    broker.check_invariants()
    return core, recorder.rows()


@pytest.mark.parametrize("seed", range(10))
def test_the_core_does_again_what_it_did(seed: int) -> None:
    world, recorder = journalled()
    live(world, seed, 300)
    rows = recorder.rows()
    core, new = again(rows)
    assert core.unlike == []
    assert list(comparable_events(new, core.numbers)) == list(comparable_events(rows))


def test_a_broker_that_does_otherwise_is_seen() -> None:
    world, recorder = journalled()
    client, first, second = world.client(), world.worker(), world.worker()
    client.ask()
    first.answer()
    rows = recorder.rows()
    for row in rows:  # as if the second had got it
        if row.get("worker") == first.me.number and row.get("number"):
            row["worker"] = second.me.number
    core, new = again(rows)
    assert core.unlike == [f"row {rows[-2]['seq']}: w2 answered request 1, which it was not given"]
    assert list(comparable_events(new, core.numbers)) != list(comparable_events(rows))


def test_only_whole_payloads_are_asked_again() -> None:
    world, recorder = journalled(run=RUN._replace(max_body=20), bodies=chosen(["echo"]))
    client, worker = world.client(), world.worker()
    client.ask(b"short")
    worker.answer()
    client.ask(b"too long to be recorded")
    client.ask(b"short", b"other")
    rows = recorder.rows()
    found, without = asked([row for row in rows if "event" in row], [row for row in rows if "event" not in row])
    assert [(one.service, one.frames, one.outcome) for one in found] == [("echo", (b"short",), "ok")]
    assert without == 2


def test_against_a_broker(tmp_path: Path) -> None:
    with Up(tmp_path / "one", "--journal", "messages", "--service", "upper.bodies") as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        with worker, polydomo.Client(broker.url) as client, polydomo.Client(broker.url, "mdp2") as other:
            for word in ("a", "b", "c"):
                client.call("upper", word)
            other.call("upper", "d")
    heard: list[str] = []

    def upper(call: polydomo.Call) -> str:
        heard.append(call.text)
        return call.text.upper()

    with Up(tmp_path / "two") as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("upper", upper)
        with worker:
            result = run("replay", str(tmp_path / "one"), "--to", broker.url, "--speed", "max", "--json")
    assert result.returncode == 0, result.stderr
    observed = json.loads(result.stdout)
    assert (observed["asked"], observed["answered"], observed["ended_as_recorded"], observed["without_payload"]) == (
        4,
        4,
        4,
        0,
    )
    assert sorted(heard) == ["a", "b", "c", "d"]


def test_a_journal_without_payloads_names_the_setting(tmp_path: Path) -> None:
    with Up(tmp_path, "--journal", "messages"):
        pass
    result = run("replay", str(tmp_path))
    assert result.returncode == 1
    assert b"--service SERVICE.bodies" in result.stderr


def test_filling_has_the_size_that_was_recorded() -> None:
    from polydomo.journal.reading.replay import _filling

    for size in (0, 2, 100, 257, 266, 5000):
        assert len(_filling(size)) in (size, 0)
    assert _filling(7) == join([bytes(5)])
