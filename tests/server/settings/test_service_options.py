"""The options of services reach the parts of a running broker that they concern."""

import json

import polydomo
from polydomo import testing
from polydomo.server.http import metrics
from polydomo.server.server import BrokerServer

OPTIONS = {
    "kept.*": {"durable": True, "retries": 7},
    "kept.not": {"durable": False, "memo": True, "version": "2", "objective": "99.9% in 250ms"},
    "tea*": {"dialect": "libmdp"},
    "*": {"retries": 2},
}


def rendered(broker: testing.Broker) -> str:
    """The page of metrics."""
    pages: list[str] = []

    def render(server: BrokerServer) -> bool:
        pages.append(metrics.render(server))
        return True

    broker.wait_until(render)
    return pages[0]


def test_every_part_of_the_broker_follows_the_most_specific_pattern() -> None:
    with testing.broker(settings={"service": OPTIONS}) as broker:

        def followed(server: BrokerServer) -> bool:
            core = server.broker
            assert core.durable is not None and core.memoiser is not None
            assert [core.durable.covers(name) for name in (b"kept.a", b"kept.not", b"other")] == [True, False, False]
            backoffs = core.durable.jobs.policy.backoffs
            found = [backoffs.get(name) for name in (b"kept.a", b"kept.not", b"other")]
            assert [backoff.attempts for backoff in found if backoff is not None] == [7, 7, 2]
            assert [core.memoiser.takes(name) for name in (b"kept.not", b"kept.a")] == [True, False]
            assert core.memoiser.version_of(b"kept.not") == "2" and core.memoiser.version_of(b"kept.a") == ""
            assert core.tuning.mdp2_dialects.get(b"teapot") == "libmdp"
            return True

        broker.wait_until(followed)
        runs: list[str] = []
        worker = polydomo.Worker(broker.url)

        def upper(call: polydomo.Call) -> str:
            runs.append(call.text)
            return call.text.upper()

        worker.add("kept.not", upper)
        with worker, polydomo.Client(broker.url) as client:
            assert [client.call("kept.not", "tea").text for _ in range(3)] == ["TEA"] * 3
            assert runs == ["tea"]
            rows = {row["name"]: row for row in client.call("polydomo.services").json()}
            assert rows["kept.not"]["objective"] == "99.9% in 250ms"
            figures = {row["name"]: row for row in client.call("polydomo.figures").json()["services"]}
            assert figures["kept.not"]["objective"] == "99.9% in 250ms"
            page = rendered(broker)
    assert 'polydomo_service_objective_seconds{service="kept.not"} 0.25' in page.splitlines()
    assert 'polydomo_service_objective_ratio{service="kept.not"} 0.999' in page.splitlines()


def test_a_service_without_an_objective_has_none() -> None:
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("echo", lambda call: call.text)
        with worker, polydomo.Client(broker.url) as client:
            broker.wait_for("echo")
            (row,) = json.loads(client.call("polydomo.services").text)
            assert row["name"] == "echo" and row["objective"] is None
            page = rendered(broker)
    assert "polydomo_service_objective" not in page
