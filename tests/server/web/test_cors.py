"""A page of another origin, listed in ``http.origins``, uses the broker: in a real browser, and every response one by one."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import polydomo
from polydomo import testing
from polydomo.server.server import BrokerServer
from tests.plain_http import http_client
from tests.server.web.browsing import new_page, open_browser

pytestmark = pytest.mark.xdist_group("browser")

WAIT = 60.0
ALLOW = "access-control-allow-origin"

SCRIPT = """
async (url) => {
  const { connect } = await import(`${url}/v1/polydomo.js`);
  const broker = await connect(); // the broker that the module came from
  const found = { text: (await broker.call("upper", "hello")).text };
  broker.close();
  const call = await fetch(`${url}/v1/call/upper`, { method: "POST", body: "by fetch" });
  found.fetched = [await call.text(), call.headers.get("Polydomo-Request").length];
  const missing = await fetch(`${url}/v1/call/nobody`, { method: "POST" });
  found.missing = (await missing.json()).type;
  found.work = (await fetch(`${url}/v1/work/idle?wait=0`, { method: "POST" })).status; // 204: no body
  const json = { "Content-Type": "application/json" }; // the browser asks with OPTIONS first
  found.stored = (await fetch(`${url}/cid`, { method: "POST", body: "[1]", headers: json })).headers.get("Location");
  found.again = (await fetch(`${url}/v1/polydomo.js`)).status; // from the cache, after a 304
  return found;
}
"""


class Blank(http.server.BaseHTTPRequestHandler):
    """The web server of another origin: one empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another origin</title>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """The origin of the page."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module", params=["listed", "any"])
def broker(request: pytest.FixtureRequest, other: str) -> Iterator[testing.Broker]:
    origins = {"listed": [other], "any": ["*"]}[request.param]
    with testing.broker(settings={"http.origins": origins}) as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        with worker:
            broker.wait_for("upper")
            yield broker


def test_a_page_of_another_origin_imports_the_module_and_calls_a_service(broker: testing.Broker, other: str) -> None:
    with open_browser() as browser:
        page = new_page(browser)
        page.goto(other)
        found = page.evaluate(SCRIPT, broker.url.replace("tcp", "http"))
    assert found == {
        "text": "HELLO",
        "fetched": ["BY FETCH", 26],
        "missing": "urn:polydomo:no-worker",
        "work": 204,
        "stored": "/cid/uAXEAAoEB",
        "again": 200,
    }


def test_every_response_names_the_origin_once(broker: testing.Broker, other: str) -> None:
    paths: list[str] = []

    def found(server: BrokerServer) -> bool:
        paths.extend("/" + "/".join(path) for path in server.site.endpoints)
        return True

    broker.wait_until(found)
    assert "/v1/polydomo.js" in paths and "/v1/session" in paths
    with http_client(broker.url, timeout=WAIT) as client:
        for path in paths:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
                below = "/upper?wait=0" if path in ("/v1/call", "/v1/work") else "?wait=0"
                response = client.request(method, path + below, headers={"origin": other})
                assert response.headers.get_list(ALLOW) == [other], (method, path, response.status_code)
                assert "origin" in response.headers["vary"].lower()
        response = client.get("/v1/polydomo.js", headers={"origin": other})
        again = {"origin": other, "if-none-match": response.headers["etag"]}
        response = client.get("/v1/polydomo.js", headers=again)
        assert (response.status_code, response.headers.get_list(ALLOW)) == (304, [other])
        response = client.get("/v1/polydomo.js")
        assert ALLOW not in response.headers
