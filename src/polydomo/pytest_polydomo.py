"""Fixtures for pytest, which loads this plugin when polydomo is installed.

```python
import pytest

def test_shout(polydomo_offer, polydomo_client):
    polydomo_offer("shout", lambda call: call.text.upper())
    assert polydomo_client.call("shout", "hello").text == "HELLO"

@pytest.mark.polydomo(jobs=True, settings={"durable.backoff_first": "10ms"})
def test_a_job(polydomo_broker, polydomo_client, polydomo_offer):
    job = polydomo_client.submit_job("shout", "hello")
    polydomo_broker.kill()
    polydomo_broker.start()
    polydomo_offer("shout", lambda call: call.text.upper())
    assert polydomo_client.result(job, wait=30).text == "HELLO"
```

- ``polydomo_broker``: a broker for this test, a ``polydomo.testing.Broker``. The mark ``polydomo`` has its arguments.
- ``polydomo_client``: a ``polydomo.Client`` of it.
- ``polydomo_offer(name, function, **options)``: starts a worker of it, and returns the ``polydomo.Worker`` once it is registered.
  ``schema``, ``batch`` and ``wait`` are those of ``Worker.add``, other options those of ``Worker``.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from polydomo import Client, Worker
    from polydomo.server.server import BrokerServer
    from polydomo.testing import Broker

OF_FUNCTION = ("schema", "batch", "wait")  # options of ``Worker.add``


class Offer(Protocol):
    def __call__(self, name: str, function: Callable[..., Any], **options: Any) -> "Worker": ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "polydomo(settings=None, jobs=False): arguments of the broker of the fixture polydomo_broker"
    )


@pytest.fixture
def polydomo_broker(request: pytest.FixtureRequest) -> "Iterator[Broker]":
    """A broker in a thread, on a free port. It stops when the test ends."""
    from polydomo import testing

    mark = request.node.get_closest_marker("polydomo")
    with testing.broker(**mark.kwargs if mark is not None else {}) as broker:
        yield broker


@pytest.fixture
def polydomo_client(polydomo_broker: "Broker") -> "Iterator[Client]":
    """A client of ``polydomo_broker``."""
    from polydomo import Client

    with Client(polydomo_broker.url) as client:
        yield client


@pytest.fixture
def polydomo_offer(polydomo_broker: "Broker") -> Iterator[Offer]:
    """A function that starts a worker of ``polydomo_broker``: ``polydomo_offer("shout", function, concurrency=4)``. The workers stop when
    the test ends."""
    from polydomo import Worker

    def offer(name: str, function: Callable[..., Any], **options: Any) -> Worker:
        chosen = {option: options.pop(option) for option in OF_FUNCTION if option in options}
        worker = Worker(polydomo_broker.url, **options)
        worker.add(name, function, **chosen)

        key, before = name.encode(), [0]

        def number(server: "BrokerServer") -> int:
            service = server.broker.services.get(key)
            return len(service.workers) if service is not None else 0

        def counted(server: "BrokerServer") -> bool:
            before[0] = number(server)
            return True

        polydomo_broker.wait_until(counted)
        workers.enter_context(worker)
        polydomo_broker.wait_until(lambda server: number(server) > before[0])
        return worker

    with ExitStack() as workers:
        yield offer
