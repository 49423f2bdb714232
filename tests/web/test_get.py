"""``GET /v1/call/SERVICE``: only for services that say they change nothing; content negotiation; a page that can do no harm."""

from collections.abc import Iterator

import httpx
import pytest

import polydomo
from polydomo import testing
from polydomo.model.service_schema import read_schema
from tests.plain_http import http_client

MEDIA = ["application/x-ndjson", "text/html; charset=utf-8"]
SCHEMA = {
    "description": "Shows a thing.",
    "input": {"type": "object"},
    "encoding": "text",
    "streams": True,
    "media": MEDIA,
}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)

        def show(call: polydomo.Call) -> Iterator[str]:
            given = call.json()
            if given.get("q") == "bad":
                raise polydomo.CallFailed("bad-query", "no such thing")
            yield "first\n"
            yield call.text

        worker.add("show", show, schema=SCHEMA)
        worker.add("plain", lambda call: call.body)
        with worker, http_client(broker.url, timeout=30.0) as client:
            broker.wait_for("plain")
            broker.wait_until(lambda server: bool(server.broker.schemas.media_of(b"show")))
            yield client


def test_the_parameters_and_the_chosen_type_are_the_request(http: httpx.Client) -> None:
    found = http.get("/v1/call/show", params={"q": "a b&c", "low": "1"})
    assert found.status_code == 200 and found.headers["content-type"] == "application/x-ndjson"
    assert found.text == 'first\n{"q":"a b&c","low":"1","accept":"application/x-ndjson"}'
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    page = http.get("/v1/call/show?q=x", headers={"accept": browser})
    assert page.headers["content-type"] == "text/html; charset=utf-8" and '"accept":"text/html"' in page.text
    policy = page.headers["content-security-policy"]
    assert "sandbox allow-forms;" in policy and "default-src 'none'" in policy and "allow-scripts" not in policy
    assert page.headers["x-content-type-options"] == "nosniff" and page.headers["vary"] == "Accept"


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-origin", 200), ("same-site", 200), ("none", 200)]
)
def test_pages_of_other_sites_cannot_call_a_service_by_a_link_or_an_image(
    http: httpx.Client, site: str, status: int
) -> None:
    found = http.get("/v1/call/show?q=x", headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"})
    assert found.status_code == status
    if status == 403:
        assert "http.origins" in found.json()["detail"]


def test_a_listed_origin_may_call_from_another_site() -> None:
    settings = {"http.origins": ["https://app.example"]}
    with testing.broker(settings=settings) as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("show", lambda call: call.text, schema=SCHEMA)
        with worker, http_client(broker.url, timeout=30.0) as client:
            broker.wait_until(lambda server: bool(server.broker.schemas.media_of(b"show")))
            site = {"sec-fetch-site": "cross-site"}
            assert client.get("/v1/call/show?q=x", headers=site).status_code == 403
            listed = site | {"origin": "https://app.example"}
            assert client.get("/v1/call/show?q=x", headers=listed).status_code == 200


def test_requests_that_are_refused(http: httpx.Client) -> None:
    assert http.get("/v1/call/plain?q=x").status_code == 405
    assert http.get("/v1/call/nothing?q=x").status_code == 405
    refused = http.get("/v1/call/show?q=x", headers={"accept": "image/png"})
    assert refused.status_code == 406 and "text/html" in refused.json()["detail"]
    failed = http.get("/v1/call/show?q=bad")
    assert failed.status_code == 502 and failed.json()["code"] == "bad-query"
    assert http.get("/v1/schema/show").json()["media"] == MEDIA


@pytest.mark.parametrize("media", ["text/html", [1], ["text/html\r\nX: y"], ["TEXT"], ["a/b"] * 11])
def test_media_types_are_checked(media: object) -> None:
    with pytest.raises(ValueError, match="media must be"):
        read_schema({**SCHEMA, "media": media}, 100)
