"""The dashboard behind access control, in a real browser: a principal with some of the rights, and a browser without a session.

Screenshots are written to build/screenshots, to be looked at.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import polydomo
from polydomo import testing
from tests.server.secured import PATIENCE, Place
from tests.server.web.browsing import FAINT, LOOKS, SHOTS, address, new_page, open_browser
from tests.server.web.test_login import code_for

pytestmark = pytest.mark.xdist_group("browser")

TAP = '\n[[allow]]\nwho = ["alice"]\ntap = true\nadmin = true\nsubscribe = ["log.*"]\n'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def broker(place: Place) -> Iterator[testing.Broker]:
    with testing.broker(settings={"access": str(place.access)}) as broker:
        worker = polydomo.Worker(broker.url, **place.keys("pool"))
        worker.add("echo", lambda call: call.body)
        with worker:
            broker.wait_for("echo")
            yield broker


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = new_page(context)
    yield page
    context.close()


def shoot(page: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    for look, (width, height, scheme) in LOOKS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        assert not page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert page.evaluate(FAINT) == []
        page.screenshot(path=str(SHOTS / f"{name}-{look}.png"))


def test_a_principal_with_inspect_only_sees_what_it_may_see(place: Place, broker: testing.Broker, page: Any) -> None:
    sockets: list[str] = []

    def sent(socket: Any) -> None:
        socket.on("framesent", lambda message: sockets.append(str(message)))

    page.on("websocket", sent)
    page.goto(f"{address(broker)}#token={code_for(place, broker)}")
    page.click("#nav >> text=Services")
    page.wait_for_selector("tbody tr >> text=echo")
    page.wait_for_selector("#connection.live >> text=Connected to")
    notice = page.inner_text("#notice")
    assert notice.startswith("Signed in as alice, without tap: requests are not shown as they end")
    assert "admin: actions such as cancel, drain and pause are rejected" in notice and "inspect:" not in notice
    shoot(page, "rights")
    with polydomo.Client(broker.url, **place.keys("alice")) as client:
        client.call("echo", "x", timeout=PATIENCE)
    for view in ("workers", "requests", "logs"):
        page.goto(f"{address(broker)}#/{view}")
        page.wait_for_selector(f'body[data-page="{view}"]')
        page.wait_for_selector("main :is(table, ol, p)", state="attached")
    assert not any("monitor.figures" in message for message in sockets)


def test_a_principal_with_all_rights_is_told_nothing(place: Place, broker: testing.Broker, page: Any) -> None:
    place.write(place.text + TAP)
    with httpx.Client(base_url=address(broker), timeout=PATIENCE) as http:
        http.post("/v1/session", content=code_for(place, broker))
        while not http.get("/v1/session").json()["tap"]:
            pass  # until the broker has read the file
    page.goto(f"{address(broker)}#token={code_for(place, broker)}")
    page.wait_for_selector("#connection.live")
    page.wait_for_selector('body[data-page="overview"]')
    assert page.is_hidden("#notice")


def test_a_principal_without_inspect_learns_which_right_is_missing(
    place: Place, broker: testing.Broker, page: Any
) -> None:
    code = code_for(place, broker)  # before the right is taken away
    place.change("inspect = true", "inspect = false")
    broker.wait_until(lambda server: not server.broker.access.allows("alice", "inspect", "polydomo.figures"))
    page.goto(f"{address(broker)}#token={code}")
    page.wait_for_selector("#notice >> text=inspect")
    assert "services, workers, requests and jobs cannot be shown" in page.inner_text("#notice")
    page.wait_for_selector("#connection >> text=Connected, without the right to see anything")


def test_without_a_session_there_is_a_sign_in_page_and_no_retry(broker: testing.Broker, page: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    page.clock.install()
    page.goto(f"{address(broker)}#/workers")
    page.wait_for_selector("h1 >> text=Sign in")
    text = page.inner_text("main")
    assert f"polydomo open --to {broker.url} --key" in text and "expires after a minute" in text
    assert page.is_hidden("#nav") and page.is_hidden("#pages")
    assert page.inner_text("#connection") == "Not signed in"
    page.clock.run_for(10 * 60 * 1000)  # ten minutes
    page.evaluate("location.hash = '#/services'")
    page.clock.run_for(60 * 1000)
    assert [url for url in asked if "/v1/" in url] == [f"{address(broker)}v1/session"]
    assert "Sign in" in page.inner_text("main")
    shoot(page, "sign-in")


def test_a_code_that_was_used_is_explained(place: Place, broker: testing.Broker, page: Any) -> None:
    page.goto(f"{address(broker)}#token={'0' * 64}")
    page.wait_for_selector("main >> text=The code in the address was used before, or has expired.")
    page.goto("about:blank")
    page.goto(f"{address(broker)}#token={code_for(place, broker)}")
    page.wait_for_selector('body[data-page="overview"]')


def test_a_session_that_ends_leads_to_the_sign_in_page(place: Place, broker: testing.Broker, page: Any) -> None:
    page.goto(f"{address(broker)}#token={code_for(place, broker)}")
    page.wait_for_selector('body[data-page="overview"]')
    page.evaluate("fetch('/v1/session', { method: 'DELETE' })")
    page.context.clear_cookies()
    page.wait_for_selector("h1 >> text=Sign in")


def test_who_a_browser_is(place: Place, broker: testing.Broker) -> None:
    with httpx.Client(base_url=address(broker), timeout=PATIENCE) as http:
        response = http.get("/v1/session")
        assert response.status_code == 401 and "polydomo open" in response.json()["detail"]
        http.post("/v1/session", content=code_for(place, broker))
        rights = {"principal": "alice", "inspect": True, "tap": False, "subscribe": False, "admin": False}
        assert http.get("/v1/session").json() == rights
    with testing.broker() as free:
        found = httpx.get(f"{address(free)}v1/session", timeout=PATIENCE).json()
        assert found == {"principal": "", "inspect": True, "tap": True, "subscribe": True, "admin": True}
