"""The dashboard for Grafana and the rules for Prometheus: every metric and label that they name is in /metrics of a broker under load,
every alert has a section of the runbook, and the rules pass their tests."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polydomo import CallFailed, Client
from tests.cli.shell import PATIENCE, run, script
from tests.server.harness import Broker

ROOT = Path(__file__).parents[2]
BOARD = ROOT / "packaging" / "grafana" / "polydomo.json"
RULES = ROOT / "packaging" / "prometheus" / "rules.yml"
TESTS = RULES.with_name("tests.yml")
RUNBOOK = ROOT / "docs" / "runbook.md"

METRIC = re.compile(r"\b((?:polydomo|process)_[a-z_]+)\b(?:\{([^}]*)\})?")
RECORDED = re.compile(r"\b(polydomo:[a-z_]+:[a-z0-9_]+)\b")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
SCRAPED = {"job", "instance", "le"}  # labels that Prometheus or a histogram adds


def texts(found: Any) -> Iterator[str]:
    """Every expression of the dashboard, and every query of its variables."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            yield from texts(value)
    elif isinstance(found, list):
        for value in found:
            yield from texts(value)


def expressions() -> list[str]:
    rules = [line.partition("expr:")[2] for line in RULES.read_text().splitlines() if "expr:" in line]
    board = list(texts(json.loads(BOARD.read_text())))
    assert len(rules) > 15 and len(board) > 40
    return rules + board


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The metrics of a broker that has answered, failed and queued requests and jobs: name -> its labels."""
    data = tmp_path_factory.mktemp("metrics") / "data"
    with (
        Broker(data, "--journal=requests", "--service", "echo.objective=99% in 250ms") as broker,
        broker.worker("echo", "--echo"),
        broker.worker("broken", *script("exit 3")),
    ):
        with Client(broker.url, timeout=PATIENCE) as client:
            client.call("echo", "x")
            with pytest.raises(CallFailed):
                client.call("broken", "x")
        job = run("submit", "echo", "a job", "--to", broker.url).stdout.decode().strip()
        assert run("result", job, "--wait", "60", "--to", broker.url).returncode == 0
        with urllib.request.urlopen(broker.url.replace("tcp", "http") + "/metrics", timeout=PATIENCE) as response:
            lines = response.read().decode().splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("# TYPE "):
            found.setdefault(line.split()[2], set())
        elif not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels = set(re.findall(r'([a-z_]+)="', rest))
            found.setdefault(name.partition(" ")[0], set()).update(labels)
    return found


def test_every_metric_and_label_exists_at_a_broker_under_load(page: dict[str, set[str]]) -> None:
    named: set[str] = set()
    for expression in expressions():
        for name, selector in METRIC.findall(expression):
            named.add(name)
            assert name in page, f"{name} of {expression!r} is not in /metrics"
            unknown = set(LABEL.findall(selector)) - page[name] - SCRAPED
            assert not unknown, f"{name} has no label {unknown}"
    assert len(named) > 30


def test_every_recorded_series_that_is_named_is_recorded() -> None:
    recorded = set(re.findall(r"- record: (\S+)", RULES.read_text()))
    named = {name for text in [*expressions(), RUNBOOK.read_text()] for name in RECORDED.findall(text)}
    assert named <= recorded and recorded <= named


def test_every_alert_has_a_section_of_the_runbook_and_a_test() -> None:
    alerts = re.findall(r"- alert: (\S+)", RULES.read_text())
    sections = re.findall(r"^## (\S+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert alerts == [section for section in sections if section.startswith("Polydomo")]
    links = re.findall(r"runbook: docs/runbook.md#(\S+)", RULES.read_text())
    assert links == [alert.lower() for alert in alerts]
    assert all(alert in TESTS.read_text() for alert in alerts)


def test_panels_have_places_of_their_own() -> None:
    board = json.loads(BOARD.read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells


def test_panels_use_only_variables_that_exist_and_name_what_they_show() -> None:
    board = json.loads(BOARD.read_text())
    known = {one["name"] for one in board["templating"]["list"]} | {"__rate_interval", "__range", "__interval"}
    for text in texts(board):
        assert set(re.findall(r"\$\{?(\w+)", text)) <= known, text
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in board["panels"]:
        if panel["type"] == "row":
            continue
        targets = panel["targets"]
        assert panel["title"] and panel["datasource"] == source and panel["fieldConfig"]["defaults"]["unit"], panel
        assert len({one["refId"] for one in targets}) == len(targets) > 0, panel["title"]
        assert all(one["datasource"] == source for one in targets), panel["title"]
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["showLegend"] is True, panel["title"]


def test_the_rules_fire_when_they_should_and_only_then() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(TESTS)]):
        result = subprocess.run([promtool, *words], capture_output=True, text=True, timeout=PATIENCE)
        assert result.returncode == 0, result.stdout + result.stderr
