"""The simulator reports every recorded change of a request's state that is not in the table of transitions."""

import pytest

from polydomo.broker.requests.transitions import STATES
from polydomo.model.records import DONE, HELD, NEW, PARKED, QUEUED, Request
from sim.lives import Lives

# What the recorder saw, and the state of the request at that time.
RIGHT = [
    [("accepted", QUEUED), ("held", HELD), ("ended", DONE)],
    [("accepted", PARKED), ("ended", DONE)],
    [("accepted", QUEUED), ("held", HELD), ("requeued", QUEUED), ("held", HELD), ("forwarded", HELD), ("held", HELD)],
    [("accepted", QUEUED), ("held", HELD), ("requeued", PARKED), ("held", HELD)],  # resumed, which is not recorded
]
WRONG = [
    [("accepted", DONE)],
    [("accepted", HELD)],
    [("accepted", QUEUED), ("accepted", QUEUED)],
    [("accepted", QUEUED), ("held", QUEUED)],
    [("accepted", QUEUED), ("held", HELD), ("held", HELD)],
    [("accepted", QUEUED), ("held", HELD), ("requeued", HELD)],
    [("accepted", QUEUED), ("requeued", QUEUED)],
    [("accepted", QUEUED), ("forwarded", QUEUED)],
    [("accepted", QUEUED), ("ended", HELD)],
    [("accepted", QUEUED), ("ended", DONE), ("held", HELD)],
    [("accepted", QUEUED), ("ended", DONE), ("ended", DONE)],
    [("held", HELD)],
]


def breaches(story: "list[tuple[str, int]]") -> list[str]:
    found: list[str] = []
    lives = Lives(lambda rule, text: found.append(f"{rule}: {text}"))
    request = Request()
    request.number, request.state = 1, NEW
    for event, state in story:
        request.state = state
        getattr(lives, event)(request)
    return found


@pytest.mark.parametrize("story", RIGHT, ids=str)
def test_a_story_of_the_table_is_accepted(story: "list[tuple[str, int]]") -> None:
    assert breaches(story) == []


@pytest.mark.parametrize("story", WRONG, ids=str)
def test_a_change_outside_the_table_is_reported(story: "list[tuple[str, int]]") -> None:
    found = breaches(story)
    assert found and found[-1].startswith("transition: request 1 was ")
    assert STATES[story[-1][1]] in found[-1]
