"""Failures that can never succeed: a durable job is dead at once, with the worker's reason, whichever protocol its worker speaks."""

import json
from collections.abc import Iterator

import httpx
import pytest
import websockets.sync.client

import polydomo.testing
from polydomo import Backoff, Call, CallFailed, Client, Permanent, Retry, Worker
from polydomo.testing import Broker

PATIENCE = 60.0
HOURS = Backoff(attempts=5, first=3600.0, most=3600.0)  # a second attempt would come too late for the test


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"service": {"kept": {"durable": True, "retries": 5}}, "durable.backoff_first": "1h"}
    with polydomo.testing.broker(settings=settings, jobs=True) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url, timeout=PATIENCE) as client:
        yield client


def outcome(client: Client, job: str) -> tuple[str, str, int]:
    """State, reason and number of attempts of a job that has ended."""
    with pytest.raises(CallFailed):
        client.result(job, wait=PATIENCE)
    row = client.job(job)
    return row["state"], row["reason"], row["attempts"]


@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_a_function_that_raises_permanent(broker: Broker, client: Client, protocol: str) -> None:
    name = f"doomed-{protocol}"
    worker = Worker(broker.url, protocol)

    @worker.service(name)
    def doomed(call: Call) -> None:
        raise Permanent("no such customer") if call.text else Permanent

    with worker:
        job = client.submit_job(name, "x", retries=HOURS)
        assert outcome(client, job) == ("dead", "permanent: no such customer", 1)
        empty = client.submit_job(name, "", retries=HOURS)
        assert outcome(client, empty)[1] == "permanent: the worker reported that another attempt cannot succeed"
        with pytest.raises(CallFailed, match="permanent: no such customer"):
            client.call(name, "x")  # an ordinary request, too, is not given to another worker


def test_a_durable_request_is_not_retried_either(broker: Broker, client: Client) -> None:
    worker = Worker(broker.url)

    @worker.service("kept")
    def kept(call: Call) -> None:
        raise Permanent("no such customer")

    with worker, pytest.raises(CallFailed, match="no such customer"):
        client.call("kept", "x")


@pytest.mark.parametrize("protocol", ["mdx", "dcp", "emqp"])
def test_arguments_that_do_not_match_the_schema(broker: Broker, client: Client, protocol: str) -> None:
    worker = Worker(broker.url, protocol)

    @worker.service("add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    with worker:
        job = client.submit_job("add", '{"a": "one"}', retries=HOURS)
        state, reason, attempts = outcome(client, job)
    assert (state, attempts) == ("dead", 1)
    assert reason.startswith("invalid-arguments: add: Expected `int`, got `str`")


def test_raw_workers_over_http_and_websocket(broker: Broker, client: Client) -> None:
    http = broker.url.replace("tcp", "http")
    job = client.submit_job("raw", "x", retries=HOURS)
    got = httpx.post(f"{http}/v1/work/raw?wait=60", timeout=PATIENCE)
    token = {"polydomo-token": got.headers["polydomo-token"]}
    replied = httpx.post(f"{http}/v1/reply?failure=permanent", content="no", headers=token, timeout=PATIENCE)
    assert replied.status_code == 204
    assert outcome(client, job) == ("dead", "permanent: no", 1)
    job = client.submit_job("raw-ws", "x", retries=HOURS)
    with websockets.sync.client.connect(broker.url.replace("tcp", "ws") + "/v1/ws") as socket:
        socket.send(json.dumps({"op": "work", "service": "raw-ws"}))
        while (message := json.loads(socket.recv(PATIENCE)))["op"] != "job":
            pass
        socket.send(json.dumps({"op": "fail", "token": message["token"], "code": "permanent", "text": "no"}))
        assert outcome(client, job) == ("dead", "permanent: no", 1)


def test_a_dead_job_can_still_be_tried_again(broker: Broker, client: Client) -> None:
    worker = Worker(broker.url)
    tries: list[str] = []

    @worker.service("mended")
    def mended(call: Call) -> str:
        tries.append(call.text)
        if len(tries) == 1:
            raise Permanent("the table does not exist")
        return "done"

    with worker:
        job = client.submit_job("mended", "x", retries=HOURS)
        assert outcome(client, job) == ("dead", "permanent: the table does not exist", 1)
        answer = client.call("polydomo.retry", json.dumps({"job": job}))
        assert "error" not in answer.json()
        assert client.result(job, wait=PATIENCE).text == "done"


def test_a_retry_without_a_text_has_a_reason(broker: Broker, client: Client) -> None:
    worker = Worker(broker.url)

    @worker.service("busy")
    def busy(call: Call) -> None:
        raise Retry

    @worker.service("silent")
    def silent(call: Call) -> None:
        raise CallFailed("retry:0" if call.text else "failed", "")

    with worker:
        twice = Backoff(attempts=2, first=0.01)
        for service, body in (("busy", ""), ("silent", "x")):
            job = client.submit_job(service, body, retries=twice)
            assert outcome(client, job) == ("dead", "the worker asked for another attempt", 2)
            assert [row["reason"] for row in client.job(job)["story"]] == ["the worker asked for another attempt"] * 2
        job = client.submit_job("silent", retries=twice)
        assert outcome(client, job)[1] == "the worker reported a failure without a reason"
