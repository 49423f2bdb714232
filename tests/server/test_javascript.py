"""The JavaScript module in a real browser: calls, streams, subscriptions and a worker from a page, and a plain fetch."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import polydomo
from polydomo import testing
from tests.server.test_dashboard import QUIET, chromium

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.xdist_group("browser")

SCRIPT = """
async () => {
  const { connect, CallError, Failure } = await import("/v1/polydomo.js");
  const broker = await connect();
  const found = {};
  found.text = (await broker.call("upper", "hello")).text;
  found.parts = [];
  for await (const part of broker.stream("count", "3")) found.parts.push(part.text);
  found.bytes = [...(await broker.call("same", new Uint8Array([0, 255, 1]))).bytes];
  found.frames = (await broker.call("same", ["a", "b"])).frames;
  try { await broker.call("nobody", "x"); } catch (error) { found.missing = [error instanceof CallError, error.outcome]; }
  try { await broker.call("nobody", "x", { wait: 5, timeout: 0.05 }); } catch (error) { found.late = error.outcome; }
  const controller = new AbortController();
  const cancelled = broker.call("nobody", "x", { wait: 60, signal: controller.signal }).catch((error) => error.name);
  controller.abort();
  found.cancelled = await cancelled;
  broker.publish("weather.oslo", "-3");
  found.weather = await new Promise((resolve) => broker.subscribe("weather.", (topic, message) => resolve([topic, message.text])));
  broker.work("reverse", (call) => {
    if (!call.text) throw new Failure("empty", "nothing to reverse");
    return [...call.text].reverse().join("");
  });
  found.own = (await broker.call("reverse", "abc", { wait: 5 })).text;
  try { await broker.call("reverse", "", { wait: 5 }); } catch (error) { found.failure = [error.outcome, error.code]; }
  const stopping = new AbortController();
  const told = new Promise((resolve) => broker.work("forever", (call) => new Promise((end) => {
    call.signal.addEventListener("abort", () => { resolve(call.timeout > 100); end(); });
    stopping.abort(); // it runs, and its caller does not wait any more
  })));
  const left = broker.call("forever", "x", { wait: 5, timeout: 200, signal: stopping.signal }).catch((error) => error.name);
  found.told = [await left, await told];
  const response = await fetch("/v1/call/upper", { method: "POST", body: "by fetch" });
  found.fetched = [response.status, await response.text()];
  broker.close();
  return found;
}
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        worker = polydomo.Worker(broker.url)
        worker.add("upper", lambda call: call.text.upper())
        worker.add("same", lambda call: list(call))

        @worker.service("count")
        def count(call: polydomo.Call) -> Iterator[str]:
            yield from map(str, range(int(call.text)))

        with worker:
            yield broker


def test_the_module_in_a_browser(broker: testing.Broker) -> None:
    program = chromium()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=QUIET)
        try:
            page = browser.new_page()
            page.goto(broker.url.replace("tcp", "http") + "/healthz")
            found: dict[str, Any] = page.evaluate(SCRIPT)
        finally:
            browser.close()
    assert found == {
        "text": "HELLO",
        "parts": ["0", "1", "2"],
        "bytes": [0, 255, 1],
        "frames": ["a", "b"],
        "missing": [True, "no-worker"],
        "late": "timeout",
        "cancelled": "AbortError",
        "weather": ["weather.oslo", "-3"],
        "own": "cba",
        "failure": ["failed", "empty"],
        "told": ["AbortError", True],
        "fetched": [200, "BY FETCH"],
    }, json.dumps(found)
