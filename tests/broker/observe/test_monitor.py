"""States with their time and cause, monitoring events, disconnected peers, and counters. The test sets the clock."""

import json
from typing import Any

import pytest

from polydomo.broker.builtin.service import Asked
from polydomo.broker.observe import figures, states
from polydomo.broker.observe.tallies import Tallies
from polydomo.broker.policy import Policy
from polydomo.model.json_form import iso_time
from polydomo.model.records import Publication, Service, Session, Worker
from polydomo.model.tuning import Tuning
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import frame, split
from tests.broker.rig import START, Peer, World


class Watcher(Peer):
    """A subscriber."""

    def __init__(self, world: World, *prefixes: bytes) -> None:
        super().__init__(world)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        for prefix in prefixes:
            self.core.subscribe(self, prefix)

    def send_publication(self, publication: Publication) -> None:
        topic, body = split(publication.message)
        self.heard.append((topic.decode(), json.loads(body)))

    def take(self) -> list[tuple[str, str, str]]:
        """(topic, state, cause) of everything heard since the last call."""
        heard, self.heard = self.heard, []
        return [(topic, row["state"], row["cause"]) for topic, row in heard]


def state(world: World, worker: Worker) -> tuple[str, float, str]:
    known = states.of_worker(world.broker, worker)
    return known.state, round(known.since - START, 3), known.cause


def asked(world: World, session: Session, name: bytes) -> Any:
    return json.loads(world.broker.builtin.answer(world.broker.builtin.by_name[name], Asked(name, session, b"", "")))


# --- workers --------------------------------------------------------------------------------------------------------------


def test_a_worker_that_stops_beating_is_late_then_lost_at_the_times_its_settings_say() -> None:
    world = World()
    watcher = Watcher(world, b"monitor.worker.")
    worker = world.worker(b"echo", beat=2.5, silence=7.5).me
    assert state(world, worker) == ("ready", 0.0, "registered from scripted")
    world.wait(5.61)
    assert state(world, worker)[0] == "ready"
    world.wait(0.08)
    assert state(world, worker)[0] == "late"
    assert state(world, worker)[1] == pytest.approx(5.625, abs=0.07)
    world.wait(1.8)
    assert worker.alive
    world.wait(0.1)
    assert not worker.alive
    assert state(world, worker)[0] == "lost"
    assert state(world, worker)[1] == pytest.approx(7.5, abs=0.08)
    topics = watcher.take()
    assert [(topic, state) for topic, state, _ in topics] == [
        ("monitor.worker.w1", "ready"),
        ("monitor.worker.w1", "late"),
        ("monitor.worker.w1", "lost"),
    ]
    assert topics[1][2].startswith("silent for 5.") and topics[2][2].startswith("no heartbeat for 7.")


def test_a_late_worker_that_sends_is_ready_at_once_and_monitored_at_the_next_tick() -> None:
    world = World()
    watcher = Watcher(world, b"monitor.worker.w")
    peer = world.worker(b"echo")
    world.wait(6.0)
    assert state(world, peer.me)[0] == "late"
    peer.say_beat()
    assert state(world, peer.me) == ("ready", 6.0, "heard again")
    world.wait(2.5)
    peer.say_beat()
    assert [heard[1] for heard in watcher.take()] == ["ready", "late", "ready"]
    world.wait(3.0)
    assert state(world, peer.me)[0] == "ready"


def test_a_busy_worker_is_late_after_three_quarters_of_what_a_busy_one_is_allowed() -> None:
    world = World(tuning=Tuning(busy_timeout=100.0))
    client, peer = world.client(), world.worker(b"echo")
    world.wait(1.0)
    client.ask()
    assert state(world, peer.me) == ("busy", 1.0, "holds a request")
    world.wait(74.0)
    assert state(world, peer.me)[0] == "busy"
    world.wait(2.0)
    assert state(world, peer.me)[0] == "late"
    peer.answer()
    assert state(world, peer.me)[0] == "ready"


def test_a_worker_whose_silence_means_nothing_is_never_late() -> None:
    world = World()
    peer = world.worker(b"echo", silence=0)
    world.wait(10_000.0)
    assert state(world, peer.me)[0] == "ready"


def test_a_worker_that_leaves_has_left_and_is_remembered_with_the_cause() -> None:
    world = World()
    watcher = Watcher(world, b"monitor.")
    peer = world.worker(b"echo", b"other")
    watcher.heard.clear()
    world.wait(1.0)
    peer.leave("DISCONNECT")
    assert watcher.take() == [
        ("monitor.worker.w1", "left", "DISCONNECT"),
        ("monitor.service.echo", "left", "its last worker: DISCONNECT"),
        ("monitor.service.other", "left", "its last worker: DISCONNECT"),
    ]
    (gone,) = asked(world, watcher, b"polydomo.gone")["worker"]
    assert (gone["name"], gone["state"], gone["cause"], gone["services"]) == (
        "w1",
        "left",
        "DISCONNECT",
        ["echo", "other"],
    )
    assert gone["time"] == iso_time(START + 1.0)


def test_the_list_of_disconnected_peers_is_bounded() -> None:
    world = World()
    world.broker.monitor.max_gone = 3
    for _ in range(5):
        world.worker(b"echo").close()
    gone = world.broker.monitor.gone
    assert list(gone["worker"]) == ["w3", "w4", "w5"]
    assert list(gone["client"]) == ["c3", "c4", "c5"]
    assert list(gone["service"]) == ["echo"]


# --- services and clients ---------------------------------------------------------------------------------------------------


def test_a_service_is_as_good_as_its_best_worker() -> None:
    world = World()
    client = world.client()
    client.ask(service=b"echo")
    service = world.broker.services[b"echo"]
    assert states.of_service(world.broker, service).state == "registering"
    first = world.worker(b"echo")
    assert states.of_service(world.broker, service).state == "busy"
    second = world.worker(b"echo")
    assert states.of_service(world.broker, service).state == "ready"
    client.ask(service=b"echo")
    assert states.of_service(world.broker, service) == ("busy", START, "every worker holds a request")
    client.ask(service=b"echo")
    second.leave()
    first.close()
    assert states.of_service(world.broker, service).state == "lost"  # three requests wait for it
    world.worker(b"echo")
    assert states.of_service(world.broker, service).state == "busy"
    assert "echo" not in world.broker.monitor.gone["service"]


def test_a_service_whose_workers_are_all_late_is_late() -> None:
    world = World()
    world.worker(b"echo", credit=0)
    world.wait(6.0)
    service = world.broker.services[b"echo"]
    assert states.of_service(world.broker, service).state == "late"


def test_clients_are_ready_or_busy_and_leave_or_are_lost() -> None:
    world = World()
    watcher = Watcher(world, b"monitor.client.")
    watcher.take()
    client = world.client()
    assert states.of_client(client) == ("ready", START, "connected")
    world.wait(2.0)
    client.ask()
    client.ask()
    assert states.of_client(client) == ("busy", START + 2.0, "waits for 2 replies")
    client.close()
    other = world.client()
    other.link.lost(CloseCause.CONNECTION_LOST, "reset by peer")
    assert watcher.take() == [
        ("monitor.client.c2", "ready", "connected"),
        ("monitor.client.c2", "left", "connection closed"),
        ("monitor.client.c3", "ready", "connected"),
        ("monitor.client.c3", "lost", "connection lost: reset by peer"),
    ]


def test_catalog_entries_are_monitored_and_become_late_then_lost() -> None:
    world = World()
    watcher = Watcher(world, b"monitor.service.camera")
    world.broker.directory.register(watcher, "camera", "192.0.2.1", {"name": "camera"}, 2.0)
    world.wait(2.99)
    assert [heard[1] for heard in watcher.take()] == ["ready"]
    world.wait(0.02)
    assert watcher.take() == [("monitor.service.camera", "late", "no heartbeat for 3.0 s")]
    world.broker.directory.heartbeat("camera", "192.0.2.1")
    assert watcher.take() == [("monitor.service.camera", "ready", "heartbeats resumed")]
    world.wait(5.98)
    assert [heard[1] for heard in watcher.take()] == ["late"]
    world.wait(0.03)
    assert watcher.take() == [("monitor.service.camera", "lost", "no heartbeat for 6.0 s")]
    assert world.broker.monitor.gone["service"]["camera"]["address"] == "192.0.2.1"


# --- watching -----------------------------------------------------------------------------------------------------------------


def test_a_new_monitor_gets_all_states_first() -> None:
    world = World()
    world.client().ask()
    world.worker(b"echo")
    world.broker.directory.register(world.client(), "camera", "192.0.2.1", {"name": "camera"}, 2.0)
    watcher = Watcher(world, b"monitor.")
    heard = {topic: row.get("state") for topic, row in watcher.heard}
    assert heard == {
        "monitor.worker.w1": "busy",
        "monitor.service.echo": "busy",
        "monitor.service.camera": "ready",
        "monitor.client.c1": "busy",
        "monitor.client.c2": "ready",
        "monitor.client.c3": "ready",
        "monitor.client.c4": "ready",
        "monitor.figures": None,
    }
    watcher.heard.clear()
    assert Watcher(world, b"monitor.worker.w1").take() == [("monitor.worker.w1", "busy", "holds a request")]
    assert Watcher(world, b"").heard == []


def test_a_greeting_is_bounded() -> None:
    world = World()
    world.broker.monitor.max_listed = 3
    for _ in range(10):
        world.client()
    assert len(Watcher(world, b"monitor.client.").heard) == 3
    assert len(Watcher(world, b"monitor.client.c9").heard) == 1


def test_fifty_thousand_requests_a_second_are_one_message() -> None:
    """What a dashboard receives depends on the number of services, not on the rate: the broker sums up each second."""
    world = World()
    broker = world.broker
    names = [b"service-%02d" % number for number in range(50)]
    workers = [world.worker(name, beat=0.0, silence=0.0) for name in names]
    watcher = Watcher(world, b"monitor.figures")
    client = world.client()
    broker.tick()
    watcher.heard.clear()
    for number in range(50_000):
        broker.now += 1 / 50_000
        broker.request(client, names[number % 50], frame(b"x", False), b"x")
        worker = workers[number % 50]
        broker.final(worker.me, worker.jobs.pop().token, frame(b"y", False))
        worker.tokens.clear()
    assert watcher.heard == []
    broker.tick()
    ((_, busy),) = watcher.heard
    assert busy["rate"] == pytest.approx(50_000, rel=0.01)
    world.wait(1.0)
    broker.tick()
    assert len(json.dumps(busy)) < 1.5 * len(json.dumps(watcher.heard[-1][1]))


def test_figures_are_published_once_a_second_to_subscribers() -> None:
    world = World()
    watcher = Watcher(world, b"monitor.figures")
    client, worker = world.client(), world.worker(b"echo")
    watcher.heard.clear()
    for _ in range(10):
        client.ask()
        world.wait(0.05)
        worker.answer()
    world.wait(0.5)
    world.broker.tick()
    ((topic, found),) = watcher.heard
    assert topic == "monitor.figures"
    assert found["rate"] == 10.0
    assert found["p50_us"] == pytest.approx(50_000, rel=0.011)
    assert found["workers"] == {"ready": 1, "busy": 0, "late": 0}
    (row,) = found["services"]
    assert (row["name"], row["state"], row["answered"], row["rate"]) == ("echo", "ready", 10, 10.0)
    world.wait(1.0)
    world.broker.tick()
    idle = watcher.heard[-1][1]
    assert idle["rate"] == 0.0
    for row in (idle, *idle["services"]):
        assert (row["p50_us"], row["p99_us"], row["max_us"]) == (None, None, None)  # 0 would look like a measurement


def test_events_are_built_only_for_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    def dumps(row: object) -> str:
        raise AssertionError("made into JSON for nobody")

    monkeypatch.setattr("polydomo.broker.observe.monitor.json.dumps", dumps)
    world = World()
    world.worker(b"echo").close()
    world.broker.tick()


# --- counting -----------------------------------------------------------------------------------------------------------------


def test_requests_are_counted_by_service_protocol_and_outcome() -> None:
    world = World(Policy(queue_expiry=5.0))
    client, worker = world.client(), world.worker(b"echo")
    for _ in range(3):
        client.ask()
        world.wait(0.01)
        worker.answer()
    client.ask()
    worker.fail()
    client.ask(service=b"nobody")
    world.wait(6.0)
    found = figures.totals(world.broker)
    assert (found["answered"], found["failed"]) == (3, {"failed": 1, "no-worker": 1})
    tally = world.broker.monitor.tallies[(b"echo", "scripted")]
    world.broker.monitor.fold()
    assert (tally.answered, tally.failed) == (3, {"failed": 1})


def test_counters_of_a_service_survive_its_removal() -> None:
    world = World()
    client = world.client()
    for _ in range(2):
        worker = world.worker(b"echo")
        client.ask()
        worker.answer()
        worker.leave()
        assert b"echo" not in world.broker.services
    world.broker.monitor.fold()
    assert world.broker.monitor.tallies[(b"echo", "scripted")].answered == 2


def test_names_without_workers_get_no_separate_tally() -> None:
    world = World(Policy(queue_expiry=1.0))
    client = world.client()
    for number in range(50):
        client.ask(service=b"no-%d" % number)
    world.wait(2.0)
    assert list(world.broker.monitor.tallies) == [(b"", "scripted")]
    assert world.broker.monitor.tallies[(b"", "scripted")].failed == {"no-worker": 50}


def test_a_request_that_ends_after_its_service_was_forgotten_is_counted() -> None:
    """It runs at another process, say, and all that were counted until then had failed."""
    tallies, service = Tallies(), Service(b"echo")
    tallies.tally(service, "mdx").fail("no-worker")
    tallies.service_forgotten(service)
    assert list(tallies.table) == [(b"", "mdx")]
    fresh = service.new_durations.get("mdx", tallies.tally(service, "mdx").fresh)  # as ``outcomes.end`` finds it
    fresh.append(0.5)
    tallies.table[b"echo", "mdx"].fold()
    assert tallies.table[b"echo", "mdx"].answered == 1


def test_tallies_are_bounded_and_count_everything() -> None:
    world = World()
    world.broker.tallies.max_tallies = 3
    client = world.client()
    for number in range(6):
        worker = world.worker(b"s%d" % number)
        client.ask(service=b"s%d" % number)
        worker.answer()
    assert len(world.broker.monitor.tallies) == 4
    assert figures.totals(world.broker)["answered"] == 6


def test_pending_counts_are_folded_within_a_second() -> None:
    world = World()
    client, worker = world.client(), world.worker(b"echo")
    for _ in range(100):
        client.ask()
        worker.answer()
        world.wait(0.1)
        assert len(world.broker.monitor.tallies[(b"echo", "scripted")].fresh) <= 11


def test_refusals_stale_replies_and_violations_are_counted() -> None:
    world = World(Policy(max_services=1))
    client, worker = world.client(), world.worker(b"echo")
    assert client.ask(service=b"another") is None
    world.broker.final(worker.me, b"0" * 12, b"")
    world.broker.report_violation(client, "something")
    counters = world.broker.counters
    assert (counters.refused, counters.stale, counters.violations) == (1, 1, 1)
    found = asked(world, client, b"polydomo.status")
    assert (found["refused"], found["stale"], found["violations"]) == (1, 1, 1)
    assert found["workers_by_state"] == {"ready": 1, "busy": 0, "late": 0}


def test_reserved_rows_have_states() -> None:
    world = World()
    client = world.client()
    world.worker(b"echo")
    client.ask()
    world.wait(1.0)
    for name in (b"polydomo.workers", b"polydomo.services"):
        (row,) = asked(world, client, name)
        assert (row["state"], row["state_since"], row["state_us"]) == ("busy", iso_time(START), 1_000_000)
    (row,) = asked(world, client, b"polydomo.clients")
    assert (row["state"], row["state_us"], row["cause"]) == ("busy", 1_000_000, "waits for a reply")
    assert asked(world, client, b"polydomo.figures")["open_requests"] == 1
