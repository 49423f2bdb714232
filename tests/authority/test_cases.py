"""What a principal with few rights could do before requests carried their origin: each case is refused, with one process and with two."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.authority.place import TRIES, Place, Worker, denied_since, emqp, schedule, wait_for

ASYNC = {"prefer": "respond-async"}
NO_JOB = "00000000000000000000000000"


@pytest.fixture(scope="module", params=[1, 2])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(tmp_path_factory.mktemp("place"), request.param) as made:
        yield made


@pytest.fixture(scope="module")
def workers(place: Place) -> Iterator[dict[str, Worker]]:
    made = {name: Worker(place, name) for name in ("open", "secret", "topsecret")}
    made["default"] = Worker(place, "default", protocol="emqp")  # where eMQP's requests without a worker go
    made["chain"] = Worker(place, "chain", forwards="topsecret")
    names = set(made)
    wait_for(lambda: names <= {row["name"] for row in place.ask("services") if row["workers"]}, "workers")
    yield made
    for worker in made.values():
        worker.close()


def names_of_schedules(place: Place) -> list[str]:
    return [row["name"] for row in place.ask("schedules", {})["schedules"]]


def test_schedule_needs_the_right_to_call(place: Place) -> None:
    for i in range(TRIES):
        before = place.denials()
        with place.emqp("mallory") as mallory:
            schedule(mallory, b"secret", b"payload %d" % i)
            denied = denied_since(place, before, 2)  # its first request is denied too
            wait_for(lambda: denied() or bool(names_of_schedules(place)), "an answer")  # noqa: B023
    assert names_of_schedules(place) == []


def test_unschedule_removes_only_a_schedule_of_its_own(place: Place) -> None:
    with place.emqp("alice") as alice:
        schedule(alice, b"open", b"mine")
        wait_for(lambda: len(names_of_schedules(place)) == 1, "the schedule")
        (name,) = names_of_schedules(place)
        for who in ("mallory", "bob"):
            with place.emqp(who) as other:
                schedule(other, b"open", b"mine", "UNSCHEDULE")
                emqp(other, "REQUEST", b"mmi.service", b"reply-requested", b"open")
        with place.emqp("bob") as bob:  # may call the queue, and has a schedule of his own with the same content

            def scheduled() -> bool:
                # Again, because the UNSCHEDULE of his other connection may arrive later, from another process.
                schedule(bob, b"open", b"mine")
                return len(names_of_schedules(place)) == 2

            wait_for(scheduled, "bob's schedule")
            schedule(bob, b"open", b"mine", "UNSCHEDULE")
            wait_for(lambda: len(names_of_schedules(place)) == 1, "bob's schedule is removed")
        assert names_of_schedules(place) == [name]
        schedule(alice, b"open", b"mine", "UNSCHEDULE")
        wait_for(lambda: names_of_schedules(place) == [], "alice's schedule is removed")


def test_a_scheduler_needs_the_right_to_offer(place: Place) -> None:
    with place.emqp("mallory") as mallory, place.emqp("alice") as alice:
        emqp(mallory, "INFORM", b"", b"scheduler")
        assert mallory.recv_multipart()[2] == b"DISCONNECT"
        schedule(alice, b"open", b"for the store")
        wait_for(lambda: len(names_of_schedules(place)) == 1, "the schedule is in the store")
        schedule(alice, b"open", b"for the store", "UNSCHEDULE")
        wait_for(lambda: names_of_schedules(place) == [], "it is removed")


def put(client: Any, content: bytes) -> str:
    stored = client.post("/cid", content=content, headers={"content-type": "application/octet-stream"})
    assert stored.status_code == 201
    return str(stored.headers["location"].rpartition("/")[2])


def test_memodb_evaluates_no_built_in_service(place: Place, workers: dict[str, Worker]) -> None:
    place.change('who = ["bob"]\ncall = ["open",', 'who = ["bob"]\ncall = ["polydomo.*", "open",')
    for service in ("polydomo.pause", "polydomo.clients", "polydomo.logs", "polydomo.requests", "mmi.service"):
        bob = place.http("bob")
        cid = put(bob, b'{"service": "open"}')
        answer = bob.post(f"/call/{service}/{cid}/evaluate", headers={"prefer": "wait=10"})
        assert answer.status_code == 403, (service, answer.text)
        assert bob.post(f"/v1/call/{service}", content=b"open").status_code == 403
    assert "paused" not in [row["state"] for row in place.ask("services")]
    place.change('call = ["polydomo.*", "open",', 'call = ["open",')


def test_memodb_evaluations_need_the_right_and_count_against_the_quota(
    place: Place, workers: dict[str, Worker]
) -> None:
    bob = place.http("bob")
    cid = put(bob, b"argument")
    assert bob.post(f"/call/secret/{cid}/evaluate", headers={"prefer": "wait=10"}).status_code == 403
    assert bob.post(f"/call/open/{cid}/evaluate", headers={"prefer": "wait=10"}).status_code == 200
    place.change('who = ["slow"]\ncall = ["open"]', 'who = ["slow"]\ncall = ["open", "memodb"]')
    slow = place.http("slow")
    cids = [put(slow, b"argument %d" % i) for i in range(6)]
    found = [slow.post(f"/call/open/{one}/evaluate", headers={"prefer": "wait=10"}).status_code for one in cids]
    assert 503 in found and found[0] == 200, found
    place.change('who = ["slow"]\ncall = ["open", "memodb"]', 'who = ["slow"]\ncall = ["open"]')


def test_a_guaranteed_request_needs_the_right_to_its_own_queue(place: Place, workers: dict[str, Worker]) -> None:
    workers["topsecret"].close()  # without a worker, the queue falls back to `default`
    wait_for(lambda: place.ask("services") is not None and not has_worker(place, "topsecret"), "no worker")
    for i in range(TRIES):
        before = place.denials()
        with place.socket("bob") as bob:
            emqp(bob, "REQUEST", b"topsecret", b"reply-requested,guarantee", b"attack %d" % i)
            denied = denied_since(place, before)
            wait_for(lambda: denied() or bool(open_jobs(place)), "an answer")  # noqa: B023
    assert open_jobs(place) == []
    workers["topsecret"] = Worker(place, "topsecret")
    wait_for(lambda: has_worker(place, "topsecret"), "the worker")
    assert workers["topsecret"].heard == []


def has_worker(place: Place, service: str) -> bool:
    return any(row["name"] == service and row["workers"] for row in place.ask("services"))


def open_jobs(place: Place) -> list[Any]:
    return [job for job in place.ask("jobs", {"state": "open"})["jobs"] if job["service"] == "topsecret"]


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "chain-1"}, ASYNC], ids=["plain", "keyed", "durable"])
def test_a_forward_needs_the_right_of_the_client(
    place: Place, workers: dict[str, Worker], headers: dict[str, str]
) -> None:
    place.change('who = ["bob"]\ncall = ["open",', 'who = ["bob"]\ncall = ["chain", "open",')
    body = b"forwarded " + json.dumps(headers).encode()
    for i in range(TRIES):
        key = {name: f"{value}-{i}" if name == "idempotency-key" else value for name, value in headers.items()}
        answer = place.http("bob").post("/v1/call/chain", content=body, headers=key)
        if headers == ASYNC:
            assert answer.status_code == 202
            job = answer.json()["job"]
            result = place.http("bob").get(f"/v1/jobs/{job}/result?wait=60")
            assert result.status_code == 502, result.text
        else:
            assert answer.status_code == 403, answer.text
    assert body not in workers["topsecret"].heard
    place.change('call = ["chain", "open",', 'call = ["open",')


def test_a_request_is_not_forwarded_to_a_built_in_service(place: Place) -> None:
    hostile = Worker(place, "hostile", forwards="polydomo.pause")
    try:
        wait_for(lambda: has_worker(place, "hostile"), "the worker")
        for _ in range(TRIES):
            answer = place.http("boss").post("/v1/call/hostile", content=b'{"service": "open"}')
            assert answer.status_code == 403, answer.text
        assert "paused" not in [row["state"] for row in place.ask("services")]
    finally:
        hostile.close()


def test_keys_belong_to_a_principal_and_a_service(place: Place, workers: dict[str, Worker]) -> None:
    key = {**ASYNC, "idempotency-key": "invoice-7"}
    first = place.http("bob").post("/v1/call/open", content=b"bob's", headers=key)
    second = place.http("alice").post("/v1/call/open", content=b"alice's", headers=key)
    third = place.http("alice").post("/v1/call/secret", content=b"alice's", headers=key)
    assert [answer.status_code for answer in (first, second, third)] == [202, 202, 202]
    assert not any(answer.json()["repeated"] for answer in (first, second, third))
    jobs = [answer.json()["job"] for answer in (first, second, third)]
    assert len(set(jobs)) == 3
    assert place.http("alice").get(f"/v1/jobs/{jobs[1]}/result?wait=60").text == "open:alice's"
    again = place.http("alice").post("/v1/call/open", content=b"alice's", headers=key)
    assert again.json() == {"job": jobs[1], "state": "done", "repeated": True}
    other = place.http("alice").post("/v1/call/open", content=b"another body", headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "urn:polydomo:key-reused")
    stolen = {"service": "open", "id": jobs[1]}
    answer = json.loads(place.call("bob", "polydomo.submit", json.dumps(stolen).encode(), b"bob's")[0])
    assert answer["error"] == "key-reused"


def test_a_job_belongs_to_its_principal(place: Place, workers: dict[str, Worker]) -> None:
    alice = place.http("alice")
    job = alice.post("/v1/call/open", content=b"private", headers=ASYNC).json()["job"]
    assert alice.get(f"/v1/jobs/{job}/result?wait=60").text == "open:private"
    for who in ("bob", "mallory"):
        for _ in range(TRIES):
            other = place.http(who)
            assert other.get(f"/v1/jobs/{job}/result").status_code == 403
            assert other.get(f"/v1/jobs/{job}").status_code == 403
            assert other.delete(f"/v1/jobs/{job}").status_code == 403
    assert place.http("boss").get(f"/v1/jobs/{job}/result").text == "open:private"
    assert alice.get(f"/v1/jobs/{job}").json()["state"] == "done"


def test_titanic_returns_and_closes_only_jobs_of_its_own(place: Place, workers: dict[str, Worker]) -> None:
    status, job = place.call("alice", "titanic.request", b"open", b"private")
    assert status == b"200"
    wait_for(lambda: place.call("alice", "titanic.reply", job)[0] == b"200", "the reply")
    for _ in range(TRIES):
        assert place.call("bob", "titanic.reply", job) == [b"400"]
        assert place.call("bob", "titanic.close", job) == [b"400"]
    assert place.call("alice", "titanic.reply", job) == [b"200", b"open:private"]
    assert place.call("alice", "titanic.close", job) == [b"200"]
    assert place.call("alice", "titanic.reply", job) == [b"400"]


def test_a_stored_reply_is_not_sent_after_the_right_was_revoked(place: Place, workers: dict[str, Worker]) -> None:
    key = {"idempotency-key": "kept"}
    connections = [place.http("loser") for _ in range(TRIES)]
    for client in connections:
        assert client.post("/v1/call/open", content=b"x", headers=key).text == "open:x"
    place.change('who = ["loser"]\ncall = ["open",', 'who = ["loser"]\ncall = [')
    for client in [*connections, place.http("loser")]:
        assert client.post("/v1/call/open", content=b"x", headers=key).status_code == 403
    place.change('who = ["loser"]\ncall = [', 'who = ["loser"]\ncall = ["open",')


def test_a_login_ends_when_the_credential_is_replaced(place: Place) -> None:
    code = place.ask("login", who="loser")["code"]
    browser = place.http("loser")
    del browser.headers["authorization"]
    # The login is known to one process; a connection to another one is refused from the beginning.
    for _ in range(20):
        if browser.post("/v1/session", content=code).status_code == 204:
            break
        code = place.ask("login", who="loser")["code"]
        browser = place.http("loser")
        del browser.headers["authorization"]
    assert browser.get("/v1/status").status_code == 200
    place.numbers["loser"] = 2
    place.reload()
    cookie = dict(browser.cookies)
    for _ in range(TRIES):
        fresh = place.http("loser", 2)
        del fresh.headers["authorization"]
        fresh.cookies.update(cookie)
        assert fresh.get("/v1/status").status_code == 401
    assert place.http("loser", 2).get("/v1/status").status_code == 200
    assert place.http("loser", 1).get("/v1/status").status_code == 401


def test_topics_are_shown_to_those_who_may_subscribe(place: Place) -> None:
    with place.socket("pool") as pool:
        for topic in (b"public.news", b"private.salaries"):
            pool.send_multipart([b"", b"eMQP/1.0", b"PUBLISH", b"id", topic, b"content"])

        def topics(who: str) -> list[str]:
            return [row["topic"] for row in place.http(who).get("/v1/topics").json()]

        wait_for(lambda: len(topics("boss")) == 2, "both topics")
        for _ in range(TRIES):
            assert topics("reader") == ["public.news"]
            assert topics("loser") == []


def test_refused_calls_are_not_charged(place: Place, workers: dict[str, Worker]) -> None:
    """A client over its rate that tries again ten times a second is served once a second."""
    slow = place.http("slow")
    end = time.monotonic() + 60.0
    served = 0
    while served < 3:
        assert time.monotonic() < end, "the client is not served any more"
        answer = slow.post("/v1/call/open", content=b"x")
        assert answer.status_code in (200, 503)
        served += answer.status_code == 200
        time.sleep(0.1)


def test_submissions_count_against_the_quota(place: Place) -> None:
    slow = place.http("slow")
    found = [slow.post("/v1/call/open", content=b"x", headers=ASYNC).status_code for _ in range(8)]
    assert 503 in found, found


def test_a_job_of_a_principal_that_lost_the_right_ends(place: Place, workers: dict[str, Worker]) -> None:
    place.change('who = ["loser"]\ncall = ["open",', 'who = ["loser"]\ncall = ["later", "open",')
    job = place.http("loser").post("/v1/call/later", content=b"x", headers=ASYNC).json()["job"]
    place.change('call = ["later", "open",', 'call = ["open",')
    later = Worker(place, "later")
    try:
        wait_for(lambda: place.ask("job", {"job": job})["state"] == "dead", "the job ends")
    finally:
        later.close()
    row = place.ask("job", {"job": job})
    assert (row["outcome"], row["attempts"]) == ("denied", 0) and "loser may not call 'later'" in row["reason"]
    assert later.heard == []


def test_a_schedule_of_a_principal_that_lost_the_right_stops(place: Place, workers: dict[str, Worker]) -> None:
    with place.emqp("alice") as alice:
        emqp(alice, "SCHEDULE", b"secret", b"", b"1", b"every second", b"")
        wait_for(lambda: b"every second" in workers["secret"].heard, "a run")
        place.change('call = ["open", "default", "secret",', 'call = ["open", "default",')
        wait_for(lambda: any(row["problem"] for row in place.ask("schedules", {})["schedules"]), "the schedule stops")
        (row,) = place.ask("schedules", {})["schedules"]
        assert row["principal"] == "alice" and row["problem"] == "alice may not call 'secret'"
        place.change('call = ["open", "default",', 'call = ["open", "default", "secret",')
        runs = len(workers["secret"].heard)
        wait_for(lambda: len(workers["secret"].heard) > runs, "it runs again")
        emqp(alice, "UNSCHEDULE", b"secret", b"", b"1", b"every second", b"")
        wait_for(lambda: names_of_schedules(place) == [], "it is removed")


def test_stored_replies_are_removed_by_operators_only(place: Place) -> None:
    order = json.dumps({"op": "rm", "service": "open"}).encode()
    with place.socket("reader") as reader:
        reader.send_multipart([b"", b"MDPC01", b"polydomo.memo", order])
        assert place.denials() >= 0
    assert place.http("reader").post("/v1/call/polydomo.memo", content=order).status_code == 403
    assert place.http("reader").post("/v1/call/polydomo.memo", content=b'{"op": "stats"}').status_code == 200


def test_the_services_of_processes_are_for_processes(place: Place) -> None:
    for name in ("accept", "join"):
        for _ in range(TRIES):
            assert place.http("boss").post(f"/v1/call/polydomo.{name}", content=b"{}").status_code == 403
