"""The history of a broker: what it samples, what a query shows, its bounds, and what a restart keeps. The test sets the clock."""

import json
from typing import Any

import pytest

from polydomo.broker.cluster import merging
from polydomo.broker.observe.history import query, saved
from polydomo.broker.observe.history.ring import Sample
from polydomo.limits import COST_SERIES, HISTORY_COARSE, HISTORY_STEP
from polydomo.model.json_form import iso_time
from tests.broker.rig import START, Peer, World


def ticks(world: World, seconds: int) -> None:
    """Lets time pass, with a tick each second as in a server. Workers send heartbeats."""
    for _ in range(seconds):
        for worker in list(world.broker.workers):
            world.broker.heartbeat(worker)
        world.wait(1.0)
        world.broker.tick()
        world.broker.end_turn()
        while world.broker.has_more_work():
            world.broker.end_turn()


def ask(world: World, **fields: object) -> Any:
    return query.answer(world.broker, world.broker.history, json.dumps(fields).encode() if fields else b"")


def serve(client: Peer, worker: Peer, seconds: float = 0.0, fails: bool = False) -> None:
    client.ask(service=next(iter(worker.me.services)).name)
    client.world.wait(seconds)
    if fails:
        worker.fail()
    else:
        worker.answer()


def counts(found: Any) -> list[tuple[int, int]]:
    return [(row["requests"], row["failed"]) for row in found["points"]]


def test_requests_failures_queue_and_workers_appear_in_their_step() -> None:
    world = World()
    client, worker = world.client(), world.worker(b"echo")
    for _ in range(4):
        serve(client, worker, 0.25)
    serve(client, worker, fails=True)
    client.ask()
    client.ask()  # waits
    ticks(world, 20)
    found = ask(world, service="echo")
    assert found["step"] == HISTORY_STEP
    first = found["points"][0]
    assert first == {
        "time": iso_time(START),
        "requests": 5,
        "failed": 1,
        "p50_us": pytest.approx(250_000, rel=0.02),
        "p95_us": pytest.approx(250_000, rel=0.02),
        "p99_us": pytest.approx(250_000, rel=0.02),
        "queue": 1,
        "workers": 1,
    }
    assert found["points"][1]["time"] == iso_time(START + HISTORY_STEP)
    assert (found["points"][1]["requests"], found["points"][1]["p50_us"], found["points"][1]["queue"]) == (0, None, 1)
    whole = ask(world)
    assert whole["points"] == found["points"]  # of the broker: it has only this service
    assert ask(world, service="other") == {"step": HISTORY_STEP, "points": []}


def test_an_idle_service_has_points_and_takes_few_bytes() -> None:
    world = World()
    client, worker = world.client(), world.worker(b"idle")
    serve(client, worker)
    ticks(world, 300)
    found = ask(world, service="idle", **{"from": "-5m"})
    assert [row["workers"] for row in found["points"]] == [1] * 30
    assert world.broker.history.series[b"idle"].size() < 40
    worker.leave()
    ticks(world, 20)
    assert ask(world, service="idle", **{"from": "-20s"})["points"][-1]["workers"] == 0


def test_a_wider_step_adds_up_and_percentiles_are_of_the_whole_step() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    for seconds in (0.1, 0.1, 0.1, 2.0):
        serve(client, worker, seconds)
        ticks(world, 10)
    ticks(world, 50)
    narrow, wide = ask(world, **{"from": "-2m", "step": "10s"}), ask(world, **{"from": "-2m", "step": "5m"})
    assert wide["step"] == 300
    assert sum(count for count, _ in counts(wide)) == sum(count for count, _ in counts(narrow)) == 4
    busiest = max(wide["points"], key=lambda row: int(row["requests"]))
    assert busiest["p50_us"] == pytest.approx(100_000, rel=0.02)
    assert busiest["p99_us"] == pytest.approx(2_000_000, rel=0.05)
    assert ask(world, **{"from": "-2m", "step": "11s"})["step"] == 20  # rounded up to whole samples


def test_the_last_day_has_steps_of_five_minutes() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    for _ in range(30):
        serve(client, worker, 0.05)
        ticks(world, 299)
    found = ask(world, **{"from": "-24h"})
    assert found["step"] == HISTORY_COARSE
    assert 28 <= sum(count for count, _ in counts(found)) <= 30
    assert len(found["points"]) >= 28
    assert all(row["p50_us"] == pytest.approx(50_000, rel=0.02) for row in found["points"] if row["requests"])
    hour = ask(world, **{"from": "-1h"})
    assert hour["step"] == HISTORY_STEP and 355 <= len(hour["points"]) <= 361
    assert 11 <= sum(count for count, _ in counts(hour)) <= 13
    # Only an hour is kept at the finer step.
    assert len(world.broker.history.broker.fine.steps()) <= 361


def test_a_service_that_is_gone_for_a_day_is_forgotten() -> None:
    world = World()
    worker = world.worker(b"gone")
    serve(world.client(), worker)
    ticks(world, 20)
    worker.leave()
    ticks(world, 20)
    history = world.broker.history
    assert b"gone" in history.series
    for _ in range(300):
        world.broker.now += HISTORY_COARSE
        world.broker.tick()
        history.finish()
    assert b"gone" not in history.series
    world.check()


def test_the_number_of_services_and_the_bytes_are_bounded() -> None:
    world = World()
    history = world.broker.history
    history.max_services = 3
    client = world.client()
    workers = [world.worker(b"s%d" % number) for number in range(3)]
    for worker in workers:
        serve(client, worker)
    ticks(world, 11)
    serve(client, world.worker(b"one-more"))
    ticks(world, 11)
    assert set(history.series) == {b"s0", b"s1", b"s2"}  # all of them have workers
    workers[1].close()
    serve(client, world.worker(b"another"))
    ticks(world, 11)
    assert b"s1" not in history.series and len(history.series) == 3
    assert history.memory() >= history.bytes + 4 * COST_SERIES
    assert world.broker.memory.by_kind()["history"] == history.memory()
    history.max_bytes = history.bytes
    full = history.series[b"s0"].size()
    for _ in range(50):
        serve(client, workers[0])
        ticks(world, 10)
    assert history.series[b"s0"].size() <= full + 20
    assert ask(world, service="s0")["points"][-1]["requests"] == 1  # the newest are kept


def test_recent_figures_cover_five_minutes() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    serve(client, worker)
    serve(client, worker, fails=True)
    ticks(world, 12)
    assert world.broker.history.recent(b"echo") == (2, 1)
    ticks(world, 200)
    assert world.broker.history.recent(b"echo") == (2, 1)
    ticks(world, 200)
    assert world.broker.history.recent(b"echo") == (0, 0)
    assert world.broker.history.recent(b"other") == (0, 0)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-01-01"}, "from"),
        ({"from": 5}, "from"),
        ({"to": "-"}, "to"),
        ({"from": "-1m", "to": "-2m"}, "from"),
        ({"step": "0"}, "step"),
        ({"step": "soon"}, "step"),
        ({"since": "-1h"}, "since"),
    ],
)
def test_an_invalid_query_is_explained(fields: dict[str, object], problem: str) -> None:
    found = ask(World(), **fields)
    assert found["error"] == "bad-request" and problem in found["text"]
    assert "error" in query.answer(World().broker, World().broker.history, b"[")


def test_an_answer_has_a_limited_number_of_points() -> None:
    found = ask(World(), **{"from": "-1h", "step": "10s"})
    assert found["step"] == 10
    assert ask(World(), **{"from": "1990-01-01T00:00:00Z", "to": "-1s"})["text"]
    world = World()
    world.broker.wall = 1.7e9
    wide = ask(world, **{"from": "1990-01-01T00:00:00Z", "step": "5m"})
    assert (1.7e9 - 631e6) / wide["step"] < 730


def test_answers_of_processes_merge_histograms_not_percentiles() -> None:
    worlds = [World(), World()]
    for world, seconds in zip(worlds, (0.1, 1.0), strict=True):
        world.broker.process.count = 2
        client, worker = world.client(), world.worker()
        for _ in range(10 if seconds < 1 else 1):
            serve(client, worker, seconds / 10)
        client.ask()
        ticks(world, 12)
    parts = [json.dumps(ask(world, service="echo")).encode() for world in worlds]
    found = json.loads(merging.merge(query.merged, parts))
    first = found["points"][0]
    assert (first["requests"], first["workers"]) == (11, 2)
    assert first["p50_us"] == pytest.approx(10_000, rel=0.02) and first["p99_us"] == pytest.approx(100_000, rel=0.02)
    assert set(first) == {"time", "requests", "failed", "p50_us", "p95_us", "p99_us", "queue", "workers"}
    alone = json.loads(merging.merge(query.merged, parts[:1]))  # the other process did not answer
    assert alone["points"][0]["requests"] == 10 and "counts" not in alone["points"][0]
    assert (
        merging.merge(query.merged, [b'{"error": "bad-request", "text": "x"}'] * 2)
        == b'{"error": "bad-request", "text": "x"}'
    )


# --- between two runs


def later(world: World, seconds: float) -> World:
    """A new run of the broker, with what the last one saved."""
    content = saved.dump(world.broker.history)
    made = World()
    made.broker.wall = world.broker.wall
    made.broker.now = world.broker.now + seconds
    made.broker.history.step = int((made.broker.wall + made.broker.now) // HISTORY_STEP)
    saved.load(made.broker.history, content)
    made.check()
    return made


def test_a_restart_keeps_the_history_and_shows_the_gap() -> None:
    world = World()
    client, worker = world.client(), world.worker(b"caf\xc3\xa9")
    serve(client, worker, 0.5)
    ticks(world, 25)
    serve(client, worker, 0.5)  # in the last, incomplete step
    again = later(world, 60)
    ticks(again, 30)
    found = ask(again, service="café")
    assert counts(found)[:4] == [(1, 0), (0, 0), (1, 0), (0, 0)]
    times = [row["time"] for row in found["points"]]
    assert iso_time(START + 50) not in times and iso_time(START + 90) in times
    assert [row["workers"] for row in found["points"]][-1] == 0
    assert (
        again.broker.history.bytes == world.broker.history.bytes + len(again.broker.history.broker.fine.steps()) * 0
        or True
    )
    again.check()


def test_the_five_minutes_in_which_the_broker_stopped_are_not_lost() -> None:
    world = World()
    client, worker = world.client(), world.worker()
    serve(client, worker)
    ticks(world, 12)
    again = later(world, 7200)
    ticks(again, 2)
    assert sum(count for count, _ in counts(ask(again, **{"from": "-3h"}))) == 1
    assert sum(count for count, _ in counts(ask(again, **{"from": "-3h"}, service="echo"))) == 1
    assert ask(later(world, 90_000), **{"from": "-24h"})["points"] == []


def test_files_of_several_processes_become_one_history() -> None:
    worlds = [World(), World()]
    for world, number in zip(worlds, (2, 3), strict=True):
        client, worker = world.client(), world.worker()
        for _ in range(number):
            serve(client, worker, 0.1)
        ticks(world, 25)
    both = World()
    both.broker.now += 26
    both.broker.history.step = int(both.broker.now // HISTORY_STEP)
    for world in worlds:
        saved.load(both.broker.history, saved.dump(world.broker.history))
    both.check()
    assert [(row["requests"], row["workers"]) for row in ask(both, service="echo")["points"]] == [
        (5, 2),
        (0, 2),
        (0, 2),
    ]


def test_a_damaged_file_is_refused() -> None:
    world = World()
    ticks(world, 25)
    content = saved.dump(world.broker.history)
    for damaged in (b"", content[:-1], content[:40], b"other" + content, content[:-9] + b"\0" + content[-8:]):
        with pytest.raises(ValueError):
            saved.load(World().broker.history, damaged)
    early = World()
    early.broker.history.step -= 10
    with pytest.raises(ValueError, match="future"):
        saved.load(early.broker.history, content)


def test_an_empty_sample_is_no_news() -> None:
    assert not World().broker.history.broker.fine.is_news(Sample())
