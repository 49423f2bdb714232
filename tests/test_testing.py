"""The broker for users' tests."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import httpx
import pytest

from polydomo import (
    CallFailed,
    CallTimeout,
    Client,
    ConnectionLost,
    NoSuchService,
    NotConnected,
    Result,
    SettingError,
    Worker,
    testing,
)
from polydomo.server.server import BrokerServer
from polydomo.server.settings.settings import Settings

WAIT = 60.0


def test_the_address_stays() -> None:
    with testing.broker() as broker:
        url = broker.url
        assert not url.endswith(":0")
        broker.stop()
        broker.stop()  # twice is once
        broker.start()
        broker.start()
        assert broker.url == url
        with Client(url) as client:
            assert client.call("mmi.service", "nothing").text == "404"


def test_two_at_a_time() -> None:
    with testing.broker() as one, testing.broker() as other:
        assert one.url != other.url


def test_gone_after_the_block() -> None:
    with testing.broker() as broker:
        pass
    with Client(broker.url, connect_timeout=0.1) as client, pytest.raises(NotConnected):
        client.call("echo")


@contextlib.contextmanager
def open_call(broker: testing.Broker, go_on: threading.Event) -> "Iterator[Future[Result]]":
    """A call that a worker holds until ``go_on``."""
    worker = Worker(broker.url)
    worker.add("slow", lambda call: "done" if go_on.wait(WAIT) else "")
    with worker, Client(broker.url, timeout=WAIT) as client:
        future = client.submit("slow")
        broker.wait_until(lambda server: server.broker.open_requests == 1)
        yield future
        go_on.set()


def test_stop_lets_calls_finish() -> None:
    go_on = threading.Event()
    with testing.broker() as broker, open_call(broker, go_on) as future:
        stopping = threading.Thread(target=broker.stop, args=(WAIT,))
        stopping.start()
        go_on.set()
        assert future.result().text == "done"
        stopping.join(WAIT)
        assert not stopping.is_alive()


def test_kill_does_not() -> None:
    with testing.broker() as broker, open_call(broker, threading.Event()) as future:
        broker.kill()
        with pytest.raises(ConnectionLost):
            future.result()


def test_settings() -> None:
    settings = Settings(queue_expiry=0.05)
    with testing.broker(settings=settings) as broker, Client(broker.url, "mdp1") as client:
        future = client.submit("nobody", timeout=WAIT)
        broker.wait_until(lambda server: server.broker.open_requests == 1)
        broker.wait_until(lambda server: server.broker.open_requests == 0)
        future.cancel()
    assert settings.listen != [broker.url]  # the caller's own are left alone


def test_waiting_ends() -> None:
    with testing.broker() as broker:
        with pytest.raises(TimeoutError, match="'nobody' has 0 workers, not 1"):
            broker.wait_for("nobody", timeout=0.05)
        with pytest.raises(TimeoutError):  # not a KeyError: a service that is not known yet may still come
            broker.wait_until(lambda server: bool(server.broker.services[b"nobody"].workers), timeout=0.05)
        with Client(broker.url) as client:
            client.connect()
            with pytest.raises(CallTimeout):
                client.call("nobody", timeout=0.05)


def test_an_address_that_cannot_be_had() -> None:
    with testing.broker() as broker, pytest.raises(SettingError, match="cannot listen"):
        with testing.broker(broker.url):
            pass
    with pytest.raises(SettingError, match="other machines"):
        testing.Broker("tcp://0.0.0.0:0")
    with pytest.raises(SettingError, match="is not an address"):
        testing.Broker("5246")


def test_settings_by_name() -> None:
    with testing.broker(settings={"queue_expiry": "50ms"}) as broker, Client(broker.url) as client:
        with pytest.raises(NoSuchService):
            client.call("nobody-home", timeout=WAIT)
        with pytest.raises(NoSuchService, match="255"):
            client.call("x" * 256, timeout=WAIT)
    with pytest.raises(SettingError, match="did you mean attempts"), testing.broker(settings={"atempts": 1}):
        pass


def test_a_setting_of_the_store_keeps_jobs() -> None:
    for settings in ({"store": "sqlite"}, {"durable.attempts": 7}):
        with testing.broker(settings=settings) as broker:
            keeps_a_job(broker)
    with testing.broker() as broker, Client(broker.url) as client, pytest.raises(CallFailed, match="no-store"):
        client.submit_job("upper", "x")
    with testing.broker(settings={"store": "off"}) as broker, Client(broker.url) as client:
        with pytest.raises(CallFailed, match="no-store"):
            client.submit_job("upper", "x")


def keeps_a_job(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    worker.add("upper", lambda call: call.text.upper())
    with Client(broker.url) as client:
        job = client.submit_job("upper", "kept")
        broker.kill()
        broker.start()
        with worker:
            assert client.result(job, wait=WAIT).text == "KEPT"


def test_the_data_directory_of_the_settings_is_used(tmp_path: Path) -> None:
    for jobs in (False, True):
        data = tmp_path / f"data-{jobs}"
        with testing.broker(settings={"data": str(data)}, jobs=jobs) as broker:
            keeps_a_job(broker)
        assert (data / "jobs.db").exists() and (data / "memo.db").exists()
    elsewhere = tmp_path / "jobs.db"
    with testing.broker(settings={"store": f"sqlite:{elsewhere}"}) as broker:
        keeps_a_job(broker)
    assert elsewhere.exists()


def test_a_setting_of_the_journal_keeps_one() -> None:
    with testing.broker(settings={"journal.level": "messages"}) as broker, Client(broker.url) as client:
        worker = Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        with worker:
            client.call("upper", "x")
        broker.stop()
        broker.start()  # the journal too
        http = broker.url.replace("tcp", "http")
        with worker:
            broker.wait_for("upper")
            request = httpx.post(f"{http}/v1/call/upper", content="y", timeout=WAIT).headers["polydomo-request"]
        story = httpx.get(f"{http}/v1/requests/{request}", timeout=WAIT).json()
        assert [step["event"] for step in story["events"]] == ["accepted", "dispatched", "final"]


def test_memoised_replies_survive_a_restart_if_a_setting_asks_for_their_store() -> None:
    settings = {"service": {"upper": {"memo": True}}, "memo.max_bytes": "1MiB"}
    with testing.broker(settings=settings) as broker, Client(broker.url, timeout=WAIT) as client:
        worker = Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        with worker:
            assert client.call("upper", "x").text == "X"
        broker.stop()
        broker.start()
        assert client.call("upper", "x").text == "X"  # without a worker


@pytest.mark.parametrize("settings", [{"processes": 2}, {"log_level": "debug"}, {"log_json": True}])
def test_a_setting_that_cannot_take_effect_is_an_error(settings: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=f"{next(iter(settings))}: has no effect"), testing.broker(settings=settings):
        pass
    with testing.broker(settings={"processes": 1}):
        pass  # it has the value that the setting asks for


def test_the_grace_time_of_the_settings_is_that_of_stop() -> None:
    go_on = threading.Event()
    with testing.broker(settings={"grace": "60s"}) as broker, open_call(broker, go_on) as future:
        draining: list[Callable[[], bool]] = []

        def found(server: BrokerServer) -> bool:
            draining.append(lambda: server.broker.draining)
            return True

        broker.wait_until(found)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        while not draining[0]():
            time.sleep(0.01)
        go_on.set()
        assert future.result().text == "done"
        stopping.join(WAIT)
        assert not stopping.is_alive()
