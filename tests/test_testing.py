"""The broker for users' tests."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from polydomo import (
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
from polydomo.server.settings import Settings

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
