"""A real browser for the tests of the dashboard, and a page that fails its test if something is wrong with it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from polydomo import testing

ROOT = Path(__file__).parents[3]
SHOTS = ROOT / "build" / "screenshots"
LOOKS = {
    "light": (1440, 900, "light"),
    "dark": (1440, 900, "dark"),
    "small": (1024, 768, "light"),
    "phone": (390, 840, "light"),
    "phone-dark": (390, 840, "dark"),
}
QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
WAIT = 60_000  # milliseconds

# Texts whose contrast with their ground is below 4.5:1.
FAINT = """() => {
  const parse = (color) => { const found = color.match(/[\\d.]+/g).map(Number); return found.length < 4 ? [...found, 1] : found; };
  const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) => 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  const over = (top, under) => [...[0, 1, 2].map((at) => top[at] * top[3] + under[at] * (1 - top[3])), 1];
  const ancestors = (element) => { const found = []; for (let one = element; one; one = one.parentElement) found.push(one); return found; };
  const layers = (element) => ancestors(element).map((one) => parse(getComputedStyle(one).backgroundColor)).reverse();
  const ground = (element) => layers(element).reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.nodeValue.trim();
    const seen = element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
    if (!text || !seen || element.closest(".hidden, .skip, option, noscript, :disabled")) continue;
    if (element.ownerSVGElement && element.tagName !== "text") continue;
    const style = getComputedStyle(element);
    const color = parse(element.ownerSVGElement ? style.fill : style.color);
    const opacity = ancestors(element).reduce((product, one) => product * Number(getComputedStyle(one).opacity), 1);
    const under = ground(element);
    const [high, low] = [light(over([color[0], color[1], color[2], color[3] * opacity], under)), light(under)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) found.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no chromium is installed (on Debian: apt install chromium)")


@contextmanager
def open_browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = chromium()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=QUIET, timeout=5 * WAIT)
        yield browser
        browser.close()


def new_page(browser: Any) -> Any:
    """A page of a browser or of a context."""
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    return page


def address(broker: testing.Broker) -> str:
    return broker.url.replace("tcp://", "http://") + "/"


class Page:
    """One page, which fails its test if the browser reports an error or asks another host for anything."""

    def __init__(self, browser: Any, broker: testing.Broker, look: str = "light") -> None:
        width, height, scheme = LOOKS[look]
        self.look = look
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
        self.page = new_page(self.context)
        self.home = address(broker)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: object) -> None:
        text = str(getattr(message, "text", ""))
        # A service without a schema, a part that is off.
        if getattr(message, "type", "") == "error" and "404" not in text:
            self.errors.append(text)

    def _request(self, request: object) -> None:
        url = str(getattr(request, "url", ""))
        if not url.startswith((self.home, self.home.replace("http", "ws"))):
            self.errors.append(f"asked for {url}")

    def open(self, view: str) -> None:
        """Opens a page by its address after ``#/`` and waits until it has something to show."""
        self.page.goto(f"{self.home}#/{view}")
        self.page.wait_for_selector("#connection.live")
        name = view.partition("?")[0].partition("/")[0]
        self.page.wait_for_selector(f'body[data-page="{name}"]')
        self.page.wait_for_selector("main :is(table, figure, p, ol, form, dl, ul)", state="attached")

    def check(self, name: str) -> None:
        """It fits the width of the screen, and every text can be read. Keeps a screenshot."""
        width = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        scroll, client = self.page.evaluate(width)
        assert scroll <= client, f"{name} does not fit the width of the screen"
        assert self.page.evaluate(FAINT) == [], name
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SHOTS / f"{name}-{self.look}.png"))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition that is not one of the page's elements."""
        for _ in range(WAIT // 50):
            if condition():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"not in time: {what}")

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.errors == []
