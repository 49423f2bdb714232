"""A tee passes every event to both recorders."""

from polydomo.broker.observe.recorder import Recorder
from polydomo.journal.levels import Levels
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.recording.tee import Tee
from polydomo.journal.schema import MESSAGES, REQUESTS
from tests.journal.stage import RUN, journalled, live


def test_every_event_goes_through_the_tee() -> None:
    events = {name for name in vars(Recorder) if callable(getattr(Recorder, name)) and not name.startswith("_")}
    assert "joined" in events and events <= set(vars(Tee))


def test_the_broker_s_events_reach_both_recorders() -> None:
    """With the compiled core this failed: compiled code does not see methods that are set on a compiled class."""
    world, alone = journalled()
    live(world, 7)

    world, first = journalled()
    second = JournalRecorder(RUN, Levels(MESSAGES))
    second.attach(world.broker)
    second.begin("the first run")
    world.broker.record_to(Tee(first, second))
    live(world, 7)

    assert len(alone.rows()) > 400
    assert first.rows() == alone.rows()
    assert second.rows() == alone.rows()


def test_a_recorder_gets_only_what_it_wants() -> None:
    world, first = journalled(Levels(REQUESTS))
    second = JournalRecorder(RUN, Levels(MESSAGES))
    second.attach(world.broker)
    world.broker.record_to(Tee(first, second))
    live(world, 7)
    assert {row["event"] for row in second.rows() if "event" in row} >= {"accepted", "dispatched"}
    assert not {row["event"] for row in first.rows() if "event" in row} & {"accepted", "dispatched"}
    assert any("event" not in row for row in first.rows())
