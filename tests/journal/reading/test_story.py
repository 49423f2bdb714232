"""The story of a request in plain words: waits with their reason, lost workers, hops, and how it ended."""

from datetime import UTC, datetime
from typing import Any

from polydomo.journal.levels import Levels
from polydomo.journal.reading.story import Story, build
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.schema import MESSAGES, REQUESTS
from polydomo.protocols.emqp.session import EmqpSession
from tests.journal.stage import RUN, journalled
from tests.protocols.emqp_dbp_fakes import ASKS, HEAD, Table, request, worker_at

Row = dict[str, Any]
TIMES = ("time", "accepted", "first_dispatched", "dispatched", "first_partial")


def story_from(recorder: JournalRecorder, number: int = 1) -> Story:
    rows = [timed(row) for row in recorder.rows()]
    messages = [row for row in rows if "event" in row]
    finished = next((row for row in rows if "event" not in row and row["number"] == number), None)
    others = [row for row in messages if row["event"] in ("late", "left", "lost")]
    return build(recorder.run.run, number, [row for row in messages if row["number"] == number], finished, others)


def timed(row: Row) -> Row:
    """A row as the reader gives it."""
    moments = {name: datetime.fromtimestamp(row[name] / 1e6, UTC) for name in TIMES if row.get(name) is not None}
    return {**row, **moments}


def texts(story: Story) -> list[str]:
    return [step.text for step in story.steps]


def test_a_wait_has_its_reason() -> None:
    world, recorder = journalled()
    first, second = world.worker(b"resize"), world.worker(b"resize")
    client = world.client()
    client.ask(b"one", b"resize")
    client.ask(b"two", b"resize")
    client.ask(b"three", b"resize")
    world.wait(2.1)
    first.answer()
    world.wait(0.4)
    first.answer(b"a longer reply")
    assert second.jobs
    story = story_from(recorder, 3)
    assert texts(story) == [
        "c3 (scripted, scripted) called `resize`, 7 B framed",
        "queued: both workers of `resize` were busy",
        "waited 2.1 s: both workers of `resize` were busy; dispatched to w1 (scripted, scripted)",
        "w1 answered after 400 ms, 16 B framed; delivered to c3",
    ]
    assert story.head == "to `resize`: answered after 2.5 s, waited 2.1 s, ran 400 ms"
    assert [step.after for step in story.steps] == [0.0, 0.0, 2.1, 2.5]
    assert story.notes == []


def test_a_lost_worker_and_the_one_that_got_it_next() -> None:
    world, recorder = journalled()
    first = world.worker(b"resize", beat=2.5, silence=7.5)
    world.client().ask(b"one", b"resize")
    world.wait(3.0)
    first.say_beat()
    world.wait(7.6)
    second = world.worker(b"resize")
    world.wait(1.0)
    second.answer()
    story = story_from(recorder)
    found = texts(story)
    assert found[1] == "dispatched to w1 (scripted, scripted)"
    assert found[2].startswith("w1 is late: silent for")
    assert found[3].startswith(
        "worker w1 lost after it held the request for 10.5 s: no heartbeat for 7.5 s; requeued at the head of the queue"
    )
    assert found[4] == "waited 100 ms: no worker offers `resize`; dispatched to w2 (scripted, scripted), attempt 2"
    assert "dispatched twice" in story.head


def test_a_chain_of_services() -> None:
    world, recorder = journalled()
    first, second = world.worker(b"fetch"), world.worker(b"thumb")
    world.client().ask(b"one", b"fetch")
    world.wait(0.2)
    first.forward(b"thumb")
    world.wait(0.3)
    second.answer()
    story = story_from(recorder)
    assert "w1 forwarded it to `thumb` after 200 ms" in texts(story)
    assert story.head.endswith("dispatched twice, forwarded once, last to `thumb`")


def test_a_failure_shows_its_reason() -> None:
    world, recorder = journalled()
    world.client().ask(b"one", b"nobody", wait=1.0)
    world.wait(2.0)
    story = story_from(recorder)
    assert texts(story)[-1] == "failed (no-worker) after waiting 1.0 s: no worker was free in time"
    assert story.head.startswith("to `nobody`: failed (no-worker) after 1.0")


def test_a_request_that_is_still_open() -> None:
    world, recorder = journalled()
    world.client().ask()
    story = story_from(recorder)
    assert story.head == "to `echo`: no outcome yet" and "still open" in story.notes[0]


def test_partials_are_counted() -> None:
    world, recorder = journalled()
    worker, client = world.worker(), world.client(takes_partials=True)
    client.ask()
    worker.part(b"a")
    worker.part(b"b")
    worker.answer()
    assert texts(story_from(recorder))[2:4] == ["partial 1 from w1, 3 B framed", "partial 2 from w1, 3 B framed"]


def test_of_level_requests_there_is_the_record_and_what_was_rare() -> None:
    world, recorder = journalled(Levels(REQUESTS))
    first = world.worker()
    world.client().ask()
    world.wait(1.0)
    first.close()
    world.wait(0.5)
    second = world.worker()
    world.wait(1.0)
    second.answer()
    story = story_from(recorder)
    assert [step.what for step in story.steps] == ["accepted", "dispatched", "requeued", "dispatched", "final"]
    assert "worker w1 lost after it held the request for 1.0 s: connection closed" in texts(story)[2]
    assert "level requests" in story.notes[0]


def test_at_level_requests_every_attempt_has_a_line_and_a_time() -> None:
    """Three workers: the second one's dispatch is not recorded, and its time is not that of all three."""
    world, recorder = journalled(Levels(REQUESTS))
    first = world.worker()
    world.client().ask()
    for held in (1.0, 2.0):
        world.wait(held)
        first.close()
        world.wait(0.5)
        first = world.worker()
    world.wait(4.0)
    first.answer()
    story = story_from(recorder)
    assert [step.what for step in story.steps] == [
        "accepted", "dispatched", "requeued", "dispatched", "requeued", "dispatched", "final",
    ]  # fmt: skip
    lines = texts(story)
    assert "worker w1 lost after it held the request for 1.0 s" in lines[2]
    assert "dispatched to w2" in lines[3] and "attempt 2, at a time that is not recorded" in lines[3]
    assert "worker w2 lost: " in lines[4]
    assert "waited 500 ms: " in lines[5] and "dispatched to w3" in lines[5]
    assert "w3 replied after 4.0 s" in lines[6] or "after 4.0 s" in lines[6]


def test_of_level_requests_a_request_that_ended_in_the_queue_waited_there() -> None:
    world, recorder = journalled(Levels(REQUESTS))
    worker, client = world.worker(), world.client()
    client.ask()
    world.wait(0.4)
    worker.close()
    world.wait(20.0)
    client.close()
    story = story_from(recorder)
    assert [step.what for step in story.steps] == ["accepted", "dispatched", "requeued", "failed"]
    assert "held the request for 400 ms" in texts(story)[2]
    assert "after waiting 20.0 s" in texts(story)[3]


def test_a_request_that_joined_another_says_so() -> None:
    world, recorder = journalled()
    worker, one, two = world.worker(b"resize"), world.client(), world.client()
    one.ask_with_key(b"photo-7", b"one", b"resize")
    two.ask_with_key(b"photo-7", b"one", b"resize")
    worker.answer()
    assert "starts a run under the key `photo-7`: request #2 runs" in texts(story_from(recorder, 1))
    joined = texts(story_from(recorder, 3))
    assert "joins the run under the key `photo-7`: request #2 runs" in joined
    run = texts(story_from(recorder, 2))
    assert any(text.endswith("(keyed, scripted) called `resize`, 5 B framed") for text in run), run
    assert any(text.startswith("w1 answered") for text in run)


def test_a_reply_that_was_not_sent_is_not_called_delivered() -> None:
    """eMQP: the client did not ask for a reply, or has left."""
    for level in (MESSAGES, REQUESTS):
        table = Table()
        recorder = JournalRecorder(RUN, Levels(level))
        recorder.attach(table.broker)
        table.broker.record_to(recorder)
        worker, client = worker_at(table, slots=4), table.join(EmqpSession)
        for number, headers in enumerate((b"", ASKS, b"", b"retry-count:2")):
            client.say(*HEAD, b"READY", b"r", b"default", headers, b"hello") if number == 2 else request(
                client, headers=headers
            )
            if number == 3:
                client.close()
            worker.say(*HEAD, b"REPLY", b"x", b"done", worker.hear()[-1][3])
        assert [texts(story_from(recorder, number))[-1] for number in (1, 2, 3, 4)] == [
            "w1 answered, 6 B framed; not sent to c2: the client did not request a reply",
            "w1 answered, 6 B framed; delivered to c2",
            "w1 answered, 6 B framed; delivered to c2",
            "w1 answered, 6 B framed; not sent to c2: the client has disconnected",
        ]
