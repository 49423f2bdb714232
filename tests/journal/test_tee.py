"""A tee passes every event to both recorders."""

import inspect

from polydomo.broker.recorder import Recorder
from polydomo.journal.tee import Tee


def test_every_event_goes_through_the_tee() -> None:
    events = {name for name, _ in inspect.getmembers(Recorder, inspect.isfunction) if not name.startswith("_")}
    assert "joined" in events and events <= set(vars(Tee))
