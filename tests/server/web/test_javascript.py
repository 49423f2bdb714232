"""The JavaScript module in a real browser: calls, streams, subscriptions and a worker from a page, and a plain fetch."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polydomo
from polydomo import testing
from tests.server.web.browsing import new_page, open_browser

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
  found.own = (await broker.call("reverse", "abc", { wait: 60 })).text;
  try { await broker.call("reverse", "", { wait: 60 }); } catch (error) { found.failure = [error.outcome, error.code]; }
  const stopping = new AbortController();
  const told = new Promise((resolve) => broker.work("forever", (call) => new Promise((end) => {
    call.signal.addEventListener("abort", () => { resolve(call.timeout > 100); end(); });
    stopping.abort(); // it runs, and its caller does not wait any more
  })));
  const left = broker.call("forever", "x", { wait: 60, timeout: 200, signal: stopping.signal }).catch((error) => error.name);
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
    with open_browser() as browser:
        page = new_page(browser)
        page.goto(broker.url.replace("tcp", "http") + "/healthz")
        found: dict[str, Any] = page.evaluate(SCRIPT)
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


# --- Node.js ------------------------------------------------------------------------------------------------------------------

NODE = shutil.which("node")


def in_node(broker: testing.Broker, directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    module = Path(polydomo.__file__).parent / "server" / "web" / "polydomo.js"
    shutil.copy(module, directory / "polydomo.mjs")
    script = directory / "script.mjs"
    script.write_text(
        'import { connect } from "./polydomo.mjs";\n'
        f"const broker = await connect({json.dumps(broker.url.replace('tcp', 'http'))});\n"
        'console.log((await broker.call("upper", "hello")).text);\n'
        "broker.close();\n"
    )
    return subprocess.run([NODE, *flags, str(script)], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_the_module_in_node(broker: testing.Broker, tmp_path: Path) -> None:
    """As the page says: Node.js 22 has a WebSocket, Node.js 20 with a flag, and otherwise the error says what to do."""
    version = subprocess.run([str(NODE), "--version"], capture_output=True, text=True, timeout=120, check=True).stdout
    release = int(version.strip().removeprefix("v").partition(".")[0])
    if release < 22:
        result = in_node(broker, tmp_path)
        assert result.returncode != 0 and "use Node.js 22 or newer, start Node.js 20 with" in result.stderr
    if release >= 20:
        result = in_node(broker, tmp_path, *(["--experimental-websocket"] if release < 22 else []))
        assert (result.returncode, result.stdout) == (0, "HELLO\n"), result.stderr
