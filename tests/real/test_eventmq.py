"""EventMQ 0.3.13: its job manager and its scheduler, as its own commands start them, run what its own client sends, through our broker."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import polydomo
from polydomo import testing
from polydomo.broker.requests import queues
from polydomo.server.settings.settings import Settings
from tests.cli.shell import Running
from tests.ports import free_port
from tests.real.peers import PATIENCE, PROGRAMS, Program, needs
from tests.server.harness import wait_for as until

pytestmark = [needs("eventmq"), pytest.mark.real_time]

# Its daemons take every setting from a variable. A short patience makes them look for a broker that is gone sooner than after 15 s;
# a long one keeps them where they are on a slow machine.
QUICK = {"EVENTMQ_HEARTBEAT_TIMEOUT": "1", "EVENTMQ_HEARTBEAT_INTERVAL": "1", "EVENTMQ_HEARTBEAT_LIVENESS": "2"}
PATIENT = {**QUICK, "EVENTMQ_HEARTBEAT_TIMEOUT": "30"}


@pytest.fixture
def broker() -> Iterator[testing.Broker]:
    settings = Settings()
    settings.beat = 0.5
    settings.beats_missed = 200
    with testing.broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def manager(broker: testing.Broker) -> Iterator[Program]:
    """``emq-jobmanager``, ready for two jobs at a time."""
    with Program("emq-jobmanager", "-B", broker.url, "-J", "2", **PATIENT) as program:
        broker.wait_for("default", timeout=PATIENCE)
        yield program


@pytest.fixture
def client(broker: testing.Broker) -> Iterator[Program]:
    with Program("eventmq_ask.py", broker.url) as program:
        yield program


def result(client: Program, **job: object) -> object:
    """Defers a job with ``reply_requested``; the value that its function returned."""
    msgid = client.say("defer", {"reply_requested": True, **job})
    reply = client.say("receive")
    assert reply is not None and reply[:3] == ["", "eMQP/1.0", "REPLY"]
    assert reply[5] == msgid
    value: dict[str, object] = json.loads(reply[4])
    return value["value"]


def noted(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_the_job_manager_runs_what_the_client_defers(manager: Program, client: Program) -> None:
    assert result(client, func="eventmq_jobs.double", args=[21]) == {"doubled": 42}
    again = {"func": "eventmq_jobs.double", "args": [4], "guarantee": True, "retry_count": 2, "timeout": 20}
    assert result(client, **again) == {"doubled": 8}


def test_a_queue_without_workers_falls_back_to_the_default(manager: Program, client: Program) -> None:
    assert result(client, func="eventmq_jobs.double", args=[1], queue="nobody's") == {"doubled": 2}


def test_a_job_without_reply_requested(manager: Program, client: Program, tmp_path: Path) -> None:
    path = tmp_path / "noted"
    for _ in range(5):
        client.say("defer", {"func": "eventmq_jobs.note", "args": [str(path)]})
    until(lambda: noted(path) == 5, "five jobs")
    assert result(client, func="eventmq_jobs.double", args=[3]) == {"doubled": 6}  # and nothing was sent for the five


def test_jobs_of_a_client_that_has_exited_run_when_a_job_manager_starts(broker: testing.Broker, tmp_path: Path) -> None:
    path = tmp_path / "noted"
    with Program("eventmq_ask.py", broker.url) as client:
        for number in range(25):
            client.say("defer", {"func": "eventmq_jobs.note", "args": [str(path)], "kwargs": {"number": number}})
        broker.wait_until(lambda server: len(queues.waiting(server.broker.services[b"default"])) == 25)
    broker.wait_until(lambda server: not server.connections, PATIENCE)
    with Program("emq-jobmanager", "-B", broker.url, "-J", "2", **PATIENT):
        until(lambda: noted(path) == 25, "25 of 25 jobs")


def test_a_job_of_a_client_that_has_exited_moves_to_another_job_manager(
    broker: testing.Broker, manager: Program, tmp_path: Path
) -> None:
    path = tmp_path / "noted"
    with Program("eventmq_ask.py", broker.url) as client:
        client.say("defer", {"func": "eventmq_jobs.nap_and_note", "args": [2, str(path)]})
        broker.wait_until(lambda server: any(worker.held for worker in server.broker.workers))
    manager.kill()
    broker.wait_for("default", 0, PATIENCE)
    with Program("emq-jobmanager", "-B", broker.url, "-J", "2", **PATIENT):
        until(lambda: noted(path) == 1, "the job")


def test_the_job_manager_ends_a_job_without_a_client_at_its_timeout(broker: testing.Broker, tmp_path: Path) -> None:
    path = tmp_path / "noted"
    with Program("eventmq_ask.py", broker.url) as client:
        job = {"func": "eventmq_jobs.nap_and_note", "args": [60, str(path), "began"], "timeout": 1}
        client.say("defer", job)
        broker.wait_until(lambda server: b"default" in server.broker.services)
    with Program("emq-jobmanager", "-B", broker.url, "-J", "2", **PATIENT) as manager:
        until(lambda: noted(path) == 1, "the job's start")
        broker.wait_until(lambda server: not server.broker.open_requests, PATIENCE)
        assert manager.logged("TimeoutError")
    assert noted(path) == 1, "it did not reach its end"


def test_two_jobs_at_a_time(manager: Program, client: Program, tmp_path: Path) -> None:
    """Each READY is a free slot: a short job passes a long one by."""
    gate = tmp_path / "gate"
    slow = client.say("defer", {"func": "eventmq_jobs.wait_for", "args": [str(gate)], "reply_requested": True})
    quick = client.say("defer", {"func": "eventmq_jobs.nap", "args": [0], "reply_requested": True})
    assert client.say("receive")[5] == quick
    gate.touch()
    assert client.say("receive")[5] == slow


def test_clients_of_other_protocols_reach_it(broker: testing.Broker, manager: Program) -> None:
    job = {
        "callable": "double",
        "path": "eventmq_jobs",
        "args": [5],
        "kwargs": {},
        "class_args": [],
        "class_kwargs": {},
    }
    for protocol in ("mdx", "mdp1", "dcp", "memo"):
        with polydomo.Client(broker.url, protocol=protocol) as asking:
            reply = asking.call("default", json.dumps(["run", job]), timeout=PATIENCE)
            assert json.loads(reply.text) == {"value": {"doubled": 10}}


def test_our_job_manager_runs_what_its_client_defers(broker: testing.Broker, client: Program, tmp_path: Path) -> None:
    words = ("default", "-p", "emqp", "--allow", "eventmq_jobs.*", "--processes", "2", "--to", broker.url)
    with Running("work", *words, cwd=PROGRAMS):
        broker.wait_until(lambda server: server.broker.has_worker(b"default"), PATIENCE)
        assert result(client, func="eventmq_jobs.double", args=[21]) == {"doubled": 42}
        path = tmp_path / "noted"
        client.say("defer", {"func": "eventmq_jobs.note", "args": [str(path)], "kwargs": {"number": 1}})
        until(lambda: noted(path) == 1, "a job without a reply")


def test_its_client_reaches_a_worker_of_another_protocol(broker: testing.Broker, client: Program) -> None:
    worker = polydomo.Worker(broker.url, protocol="mdx")
    worker.add("other", lambda call: json.dumps({"value": json.loads(call.text)[0]}))
    with worker:
        broker.wait_for("other")
        assert result(client, func="eventmq_jobs.double", args=[1], queue="other") == "run"


def test_a_job_manager_that_is_killed_gives_its_jobs_to_another(
    broker: testing.Broker, manager: Program, client: Program, tmp_path: Path
) -> None:
    client.say("defer", {"func": "eventmq_jobs.nap", "args": [2], "reply_requested": True})
    broker.wait_until(lambda server: any(worker.held for worker in server.broker.workers))
    with Program("emq-jobmanager", "-B", broker.url, "-J", "2", **PATIENT):
        broker.wait_for("default", 2, PATIENCE)
        manager.kill()
        assert json.loads(client.say("receive")[4]) == {"value": "rested"}


def test_a_job_manager_that_is_stopped_leaves(broker: testing.Broker, manager: Program) -> None:
    manager.process.terminate()
    broker.wait_for("default", 0, PATIENCE)


def test_the_scheduler_sends_what_the_client_scheduled(
    broker: testing.Broker, manager: Program, client: Program, tmp_path: Path
) -> None:
    path = tmp_path / "noted"
    settings = {"EVENTMQ_SCHEDULER_ADDR": broker.url, "EVENTMQ_REDIS_STARTUP_ERROR_HARD_KILL": "False"}
    with Program("emq-scheduler", **settings, **PATIENT):
        broker.wait_until(lambda server: bool(server.broker.schedulers), PATIENCE)
        job = {"func": "eventmq_jobs.note", "args": [str(path)], "interval_secs": 1}
        client.say("schedule", job)
        until(lambda: noted(path) >= 3, "three runs")
        client.say("schedule", {**job, "unschedule": True})
        assert result(client, func="eventmq_jobs.double", args=[1]) == {
            "doubled": 2
        }  # what was sent before is run by now
        runs = noted(path)
        client.say("defer", {"func": "eventmq_jobs.nap", "args": [2.5], "reply_requested": True})
        client.say("receive")
        assert noted(path) <= runs + 1  # one may have been on its way


def test_a_restarted_broker_is_found_again(broker: testing.Broker, client: Program) -> None:
    with Program("emq-jobmanager", "-B", broker.url, "-J", "2", **QUICK):
        broker.wait_for("default", timeout=PATIENCE)
        assert result(client, func="eventmq_jobs.double", args=[1]) == {"doubled": 2}
        broker.kill()
        broker.start()
        broker.wait_until(lambda server: server.broker.has_worker(b"default"), PATIENCE)
        with Program("eventmq_ask.py", broker.url) as after:
            assert result(after, func="eventmq_jobs.double", args=[2]) == {"doubled": 4}


def test_publications_of_the_client_reach_subscribers(broker: testing.Broker, client: Program) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.connect(broker.url)
        subscriber.setsockopt(zmq.SUBSCRIBE, b"news.")
        broker.wait_until(lambda server: len(server.broker.publishing.subscriptions) == 1)
        client.say("publish", "other", {"not": "for us"})
        client.say("publish", "news.today", {"all": "well"})
        assert subscriber.poll(int(PATIENCE * 1000))
        assert subscriber.recv_multipart() == [b"news.today", b'{"all": "well"}']


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_its_own_ports_with_its_own_router_and_with_ours(whose: str, tmp_path: Path) -> None:
    """Job manager, scheduler and client know nothing but EventMQ's front end and back end, and do the same with both brokers."""
    front, back, admin = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
    variables = {
        "EVENTMQ_FRONTEND_ADDR": front,
        "EVENTMQ_BACKEND_ADDR": back,
        "EVENTMQ_ADMINISTRATIVE_ADDR": admin,
        "EVENTMQ_SCHEDULER_ADDR": front,
        "EVENTMQ_WORKER_ADDR": back,
        "EVENTMQ_REDIS_STARTUP_ERROR_HARD_KILL": "False",
    }
    deferred, scheduled = tmp_path / "deferred", tmp_path / "scheduled"
    with contextlib.ExitStack() as stack:
        if whose == "ours":
            settings = Settings()
            settings.emqp.front, settings.emqp.back = front, back
            stack.enter_context(testing.broker(settings=settings))
        else:
            router = stack.enter_context(Program("emq-router", **variables))
            router.logged("Listening for requests")
        stack.enter_context(Program("emq-jobmanager", "-J", "2", **variables))
        stack.enter_context(Program("emq-scheduler", **variables))
        client = stack.enter_context(Program("eventmq_ask.py", front))

        def runs(path: Path, interval: dict[str, int]) -> bool:
            """EventMQ's router drops messages before the job manager and the scheduler are connected, so they are sent again."""
            client.say(
                "schedule" if interval else "defer", {"func": "eventmq_jobs.note", "args": [str(path)], **interval}
            )
            with contextlib.suppress(AssertionError):
                until(lambda: noted(path) >= 1, "a run", 2.0)
            return noted(path) >= 1

        until(lambda: runs(deferred, {}), "a deferred job")
        until(lambda: runs(scheduled, {"interval_secs": 1}), "a scheduled job")
        until(lambda: noted(scheduled) >= 3, "three runs of it")
