"""The dashboard behind access control: a one-time code, a session cookie, and the right to give orders."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import polydomo
import polydomo.testing
from polydomo.errors import CallFailed
from tests.plain_http import http_client
from tests.server.secured import PATIENCE, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def broker(place: Place) -> Iterator[polydomo.testing.Broker]:
    with polydomo.testing.broker(settings={"access": str(place.access)}) as broker:
        yield broker


def code_for(place: Place, broker: polydomo.testing.Broker, name: str = "alice") -> str:
    with polydomo.Client(broker.url, **place.keys(name)) as client:
        answer: dict[str, str] = client.call("polydomo.login", timeout=PATIENCE).json()
        return answer["code"]


def browser(broker: polydomo.testing.Broker) -> httpx.Client:
    return http_client(broker.url, timeout=PATIENCE)


def test_a_code_is_good_for_one_login(place: Place, broker: polydomo.testing.Broker) -> None:
    with browser(broker) as first:
        assert first.get("/").status_code == 200  # the page itself holds no data
        assert first.get("/v1/services").status_code == 401
        code = code_for(place, broker)
        reply = first.post("/v1/session", content=code)
        assert reply.status_code == 204
        assert "HttpOnly" in reply.headers["set-cookie"] and "SameSite=Strict" in reply.headers["set-cookie"]
        assert first.get("/v1/services").status_code == 200
        with browser(broker) as second:
            assert second.post("/v1/session", content=code).status_code == 401
            assert second.get("/v1/services").status_code == 401
        assert first.delete("/v1/session").status_code == 204
        first.cookies.clear()
        assert first.get("/v1/services", headers={"Connection": "close"}).status_code == 401


def rules(broker: polydomo.testing.Broker) -> object:
    assert broker._server is not None and broker._server.access is not None
    return broker._server.access.file.rules


def test_a_session_has_the_rights_of_its_principal_now(place: Place, broker: polydomo.testing.Broker) -> None:
    with browser(broker) as page:
        page.post("/v1/session", content=code_for(place, broker))
        assert page.get("/v1/services").status_code == 200
        before = rules(broker)
        place.change("inspect = true", "inspect = false")
        broker.wait_until(lambda server: server.access is not None and server.access.file.rules is not before)
        assert page.get("/v1/services").status_code == 403


@pytest.mark.parametrize("code", ["", "0" * 64, "x" * 300])
def test_an_invalid_login_code(broker: polydomo.testing.Broker, code: str) -> None:
    with browser(broker) as page:
        assert page.post("/v1/session", content=code).status_code == 401


def test_orders_need_the_right_admin(place: Place, broker: polydomo.testing.Broker) -> None:
    """To inspect is not enough to pause a service, drain a worker or retry dead letters."""
    with polydomo.Client(broker.url, **place.keys("alice")) as client:
        assert client.call("polydomo.services", timeout=PATIENCE).json() == []
        for order in ("pause", "resume", "drain", "withdraw", "retry", "drop", "schedule", "unschedule", "fire"):
            with pytest.raises(CallFailed, match="needs the right admin"):
                client.call(f"polydomo.{order}", json.dumps({"service": "echo"}), timeout=PATIENCE)
    before = rules(broker)
    place.write(f'{place.text}\n[[allow]]\nwho = ["alice"]\nadmin = true\n')
    broker.wait_until(lambda server: server.access is not None and server.access.file.rules is not before)
    with polydomo.Client(broker.url, **place.keys("alice")) as client:
        assert client.call("polydomo.pause", json.dumps({"service": "echo"}), timeout=PATIENCE).json()["paused"]


def test_the_login_code_is_empty_without_access_control() -> None:
    with polydomo.testing.broker() as broker, polydomo.Client(broker.url) as client:
        assert client.call("polydomo.login", timeout=PATIENCE).json() == {"code": ""}
