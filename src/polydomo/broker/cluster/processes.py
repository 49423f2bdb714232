"""The other processes of one broker, by their bridges."""

import json

from polydomo.broker.state import State
from polydomo.limits import PROCESS_NUMBERS
from polydomo.model.records import Session, Worker


def first(state: State) -> Worker | None:
    """The bridge to process 0."""
    for worker, index in state.process.bridges.items():
        if index == 0:
            return worker
    return None


def owner_of(state: State, number: int) -> Worker | None:
    """The bridge to the process whose request has this number; None if it is this process, or is not there."""
    index = number // PROCESS_NUMBERS
    if index != state.process.index:
        for worker, other in state.process.bridges.items():
            if other == index:
                return worker
    return None


def send_event(session: Session, topic: bytes, row: "dict[str, object]") -> None:
    """A worker or a service changed: notifies the process at the other end."""
    session.send_to_sibling(b"EVENT", [topic, json.dumps(row).encode()])
