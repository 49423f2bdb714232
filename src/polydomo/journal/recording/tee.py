"""A tee: two recorders as one, such as the journal and the tap.

Not compiled: compiled code does not see methods that are set on a compiled class.
"""

from collections.abc import Callable
from typing import Any

from polydomo.broker.observe.recorder import Recorder

MESSAGES = ("accepted", "dispatched", "partial", "reply_ignored", "credit_added", "window_set", "published")
RARE = (
    "opened closed registered late left requeued released forwarded stale refused denied access job flow node_ended violated "
    "slow_subscriber routed log_record memoised keyed internal joined"
).split()


class Tee(Recorder):
    """Passes every event to ``first``, if it wants it, and to ``second``. ``first`` answers queries."""

    def __init__(self, first: Recorder, second: Recorder) -> None:
        self.wants_requests = True
        self.wants_messages = first.wants_messages or second.wants_messages
        self.first = first
        self.second = second
        self.wants_bodies = first.wants_bodies or second.wants_bodies

    def request_id(self, number: int, accepted: float) -> str:
        return self.first.request_id(number, accepted)

    def memory(self) -> int:
        return self.first.memory() + self.second.memory()

    def figures(self) -> dict[str, float]:
        return self.first.figures()

    def journal(self, flush: bool) -> dict[str, object]:
        return self.first.journal(flush)


def _to_both(name: str, wanted: str) -> Callable[..., None]:
    def event(self: Tee, *facts: Any) -> None:
        for recorder in (self.first, self.second):
            if not wanted or getattr(recorder, wanted):
                getattr(recorder, name)(*facts)

    return event


for _name in MESSAGES:
    setattr(Tee, _name, _to_both(_name, "wants_messages"))
for _name in RARE:
    setattr(Tee, _name, _to_both(_name, ""))
Tee.ended = _to_both("ended", "wants_requests")  # type: ignore[method-assign]
Tee.reply_body = _to_both("reply_body", "wants_bodies")  # type: ignore[method-assign]
