"""Partial replies of jobs while they run: stored, in order, each once; over restarts, attempts and every protocol of the libraries."""

import http.client
import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from urllib.parse import urlsplit

import pytest

import polydomo.testing
from polydomo import Backoff, Call, CallFailed, CallTimeout, Client, NoSuchJob, SettingError, Worker
from polydomo.client.message import JobPart
from polydomo.testing import Broker

PATIENCE = 60.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"durable.backoff_first": "10ms", "service": "kept.durable"}
    with polydomo.testing.broker(settings=settings, jobs=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url, timeout=PATIENCE) as client:
        yield client


class Words:
    """A function that sends words, and waits before the last one for the test. The first ``fails`` attempts fail after two words."""

    def __init__(self, fails: int = 0) -> None:
        self.go = threading.Event()
        self.fails = fails
        self.runs = 0

    def __call__(self, call: Call) -> Generator[str, None, str]:
        self.runs += 1
        run = self.runs
        yield f"one{run} "
        yield f"two{run} "
        if run <= self.fails:
            raise CallFailed("broken", f"run {run}")
        assert self.go.wait(PATIENCE)
        yield "three "
        return "end"


def serving(
    broker: Broker, function: Callable[[Call], object], protocol: str = "mdx", service: str = "words"
) -> Worker:
    worker = Worker(broker.url, protocol)
    worker.add(service, function)
    return worker


def shown(parts: Iterable[JobPart]) -> list[tuple[str, str, bool]]:
    return [(part.id, part.text, part.final) for part in parts]


@pytest.mark.parametrize("protocol", ["mdx", "mdp2"])
def test_parts_arrive_while_the_job_runs_and_the_rest_of_the_result_at_its_end(
    broker: Broker, client: Client, protocol: str
) -> None:
    words = Words()
    with serving(broker, words, protocol):
        id = client.submit_job("words")
        stream = client.stream_result(id)
        first = [next(stream), next(stream)]
        assert client.job(id)["state"] == "running"
        words.go.set()
        rest = list(stream)
    assert shown([*first, *rest]) == [
        ("1.1", "one1 ", False),
        ("1.2", "two1 ", False),
        ("1.3", "three ", False),
        ("1.4", "end", True),
    ]
    assert client.result(id).text == "one1 two1 three end", "the result has all parts, as before"
    assert shown(list(client.stream_result(id, after="1.2"))) == shown(rest), "a stream can be read again later"
    assert shown(list(client.stream_result(id, after=3))) == [("1.4", "end", True)]
    assert list(client.stream_result(id, after="1.4")) == []


def test_a_broker_that_is_killed_has_what_a_client_has_seen_and_the_next_run_is_a_new_sequence(
    broker: Broker, client: Client
) -> None:
    words = Words()
    with serving(broker, words):
        id = client.submit_job("words")
        stream = client.stream_result(id)
        seen = [next(stream), next(stream)]
        broker.kill()
        broker.start()
        words.go.set()
        rest = list(stream)
        assert shown([*seen, *rest])[2:] == [
            ("2.1", "one2 ", False),
            ("2.2", "two2 ", False),
            ("2.3", "three ", False),
            ("2.4", "end", True),
        ]
    assert client.result(id).text == "one2 two2 three end"


def test_a_second_attempt_is_a_new_sequence(broker: Broker, client: Client) -> None:
    words = Words(fails=1)
    words.go.set()
    id = client.submit_job("words")
    with serving(broker, words):
        client.result(id, wait=PATIENCE)
    assert [part.id for part in client.stream_result(id)] == ["2.1", "2.2", "2.3", "2.4"]
    assert [part.id for part in client.stream_result(id, after="1.2")] == ["2.1", "2.2", "2.3", "2.4"]


def test_parts_of_an_attempt_before_are_not_joined_with_the_result_of_one_without_parts(
    broker: Broker, client: Client
) -> None:
    runs: list[int] = []

    def once_with_parts(call: Call) -> Generator[str, None, str]:
        runs.append(1)
        if len(runs) == 1:
            yield "lost"
            raise CallFailed("broken", "no")
        return "found"

    id = client.submit_job("words")
    with serving(broker, once_with_parts):
        assert client.result(id, wait=PATIENCE).text == "found"
    assert shown(list(client.stream_result(id))) == [("2.1", "found", True)]
    assert shown(list(client.stream_result(id, after="1.1"))) == [("2.1", "found", True)]


def test_a_dead_job_ends_the_stream_with_its_failure_and_a_retry_goes_on_counting(
    broker: Broker, client: Client
) -> None:
    words = Words(fails=1)
    words.go.set()
    id = client.submit_job("words", retries=Backoff(attempts=1))
    with serving(broker, words):
        stream = client.stream_result(id)
        assert [next(stream).id, next(stream).id] == ["1.1", "1.2"]
        with pytest.raises(CallFailed, match="run 1"):
            next(stream)
        assert client.retry_dead(id) == 1
        assert [part.id for part in client.stream_result(id, after="1.2")] == ["2.1", "2.2", "2.3", "2.4"]


def test_what_cannot_be_streamed_is_an_error(client: Client) -> None:
    id = client.submit_job("nobody")
    with pytest.raises(CallTimeout):
        next(client.stream_result(id, wait=0.05))
    with pytest.raises(SettingError, match="after"):
        next(client.stream_result(id, after="x.y"))
    with pytest.raises(NoSuchJob):
        next(client.stream_result("01KDVDNA000000000000000000"))
    client.cancel(id)
    with pytest.raises(CallFailed, match="cancelled"):
        next(client.stream_result(id))


def http_of(broker: Broker) -> http.client.HTTPConnection:
    parts = urlsplit(broker.url.replace("tcp://", "http://"))
    return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE)


def test_http_streams_events_and_continues_after_the_last_event_id(broker: Broker, client: Client) -> None:
    words = Words()
    with serving(broker, words):
        id = client.submit_job("words")
        next(client.stream_result(id, after="1.1"))
        connection = http_of(broker)
        connection.request("GET", f"/v1/jobs/{id}/stream", headers={"Last-Event-ID": "1.1"})
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "text/event-stream"
        assert [response.readline() for _ in range(2)] == [b"id: 1.2\n", b"event: partial\n"]
        words.go.set()
        text = response.read().decode()
    assert "id: 1.3\nevent: partial\n" in text and "id: 1.4\nevent: final\n" in text
    connection.request("GET", f"/v1/jobs/{id}/result", headers={"Accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in connection.getresponse().read().splitlines()]
    assert [(line["event"], line["id"], line["frames"]) for line in lines] == [
        ("partial", "1.1", ["one1 "]),
        ("partial", "1.2", ["two1 "]),
        ("partial", "1.3", ["three "]),
        ("final", "1.4", ["end"]),
    ]
    statuses = []
    for path, after in ((id, "1.4"), ("01KDVDNA000000000000000000", ""), (id, "wrong")):
        connection.request("GET", f"/v1/jobs/{path}/stream", headers={"Last-Event-ID": after})
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    assert statuses == [204, 404, 400]
