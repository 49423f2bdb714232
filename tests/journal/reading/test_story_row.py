"""The spans of ``GET /v1/requests/{id}``: they agree with the steps of the same story, at every level of the journal."""

import pytest

from polydomo.journal.levels import Levels
from polydomo.journal.reading.story_row import spans
from polydomo.journal.schema import MESSAGES, REQUESTS
from tests.journal.reading.test_story import story_from, texts
from tests.journal.stage import journalled

Spans = list[tuple[str, str, float, float]]


def shown(story: object) -> Spans:
    """(name, kind, start, end), in seconds."""
    return [(row["name"], row["kind"], row["start_us"] / 1e6, row["end_us"] / 1e6) for row in spans(story)]  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [REQUESTS, MESSAGES])
def test_a_request_that_timed_out_while_it_ran(level: str) -> None:
    world, recorder = journalled(Levels(level))
    world.client().ask(b"one", deadline=3.0)
    world.wait(0.5)
    world.worker()
    world.wait(10.0)
    story = story_from(recorder)
    assert "failed (timeout)" in texts(story)[-1]
    assert shown(story) == [("queued", "queued", 0.0, 0.5), ("worker w1", "running", 0.5, 3.0)]


@pytest.mark.parametrize("level", [REQUESTS, MESSAGES])
def test_a_lost_worker_and_the_wait_after_it(level: str) -> None:
    world, recorder = journalled(Levels(level))
    first = world.worker()
    client = world.client()
    client.ask()
    world.wait(1.0)
    first.close()
    world.wait(2.0)
    client.close()
    assert shown(story_from(recorder)) == [
        ("queued", "queued", 0.0, 0.0),
        ("worker w1", "lost", 0.0, 1.0),
        ("queued", "queued", 1.0, 3.0),
    ]


def test_a_dispatch_whose_time_is_not_recorded() -> None:
    world, recorder = journalled(Levels(REQUESTS))
    worker = world.worker()
    world.client().ask()
    for held in (1.0, 2.0):
        world.wait(held)
        worker.close()
        world.wait(0.5)
        worker = world.worker()
    world.wait(4.0)
    worker.answer()
    assert shown(story_from(recorder)) == [
        ("queued", "queued", 0.0, 0.0),
        ("worker w1", "lost", 0.0, 1.0),
        ("queued, then worker w2", "lost", 1.0, 3.5),
        ("queued", "queued", 3.5, 4.0),
        ("worker w3", "running", 4.0, 8.0),
    ]


@pytest.mark.parametrize("level", [REQUESTS, MESSAGES])
def test_a_forwarded_request_was_at_two_workers(level: str) -> None:
    world, recorder = journalled(Levels(level))
    first, second = world.worker(b"one"), world.worker(b"two")
    world.client().ask(b"x", b"one")
    world.wait(1.0)
    first.forward(b"two")
    world.wait(2.0)
    second.answer()
    assert [row for row in shown(story_from(recorder)) if row[1] == "running"] == [
        ("worker w1", "running", 0.0, 1.0),
        ("worker w2", "running", 1.0, 3.0),
    ]


def test_an_open_request() -> None:
    world, recorder = journalled()
    world.client().ask()
    world.wait(1.0)
    assert [row[1] for row in shown(story_from(recorder))] == ["queued"]
