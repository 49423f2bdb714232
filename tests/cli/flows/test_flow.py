"""`polydomo flow`, as a command."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import polydomo.testing
from polydomo import Client, Worker
from polydomo.cli.main import app
from polydomo.testing import Broker

FLOW = """
name = "nightly"

[[node]]
name = "mail"
service = "join"
args = ["ops", {node = "pages"}]

[[node]]
name = "pages"
service = "ocr"
map = ["a", "b", "c", "d", "e", "f", "g"]
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with polydomo.testing.broker(jobs=True) as broker:
        worker = Worker(broker.url)
        worker.add("ocr", lambda call: call.text.upper())
        worker.add("join", lambda call: b" ".join(call.frames))
        with worker:
            yield broker


def run(broker: Broker, *arguments: str, status: int = 0, given: str = "") -> str:
    found = CliRunner().invoke(app, ["flow", *arguments, "--to", broker.url], input=given)
    assert found.exit_code == status, found.output
    return found.output


def test_a_flow_from_a_file(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(FLOW)
    id = run(broker, "start", str(path), "--idempotency-key", "k").strip()
    assert re.fullmatch("[0-9A-Z]{26}", id)
    watched = run(broker, "watch", id).splitlines()
    assert watched[-1] == "8/8 done mail"
    assert run(broker, "start", str(path), "--idempotency-key", "k").strip() == id
    assert run(broker, "result", id, "--wait", "30").strip() == "ops A B C D E F G"
    assert run(broker, "result", id, "pages-2").strip() == "B"
    assert id in run(broker, "ls")
    shown = run(broker, "show", id)
    assert "pages-1" in shown
    assert "8/8" in shown
    assert json.loads(run(broker, "show", id, "--json"))["state"] == "done"
    assert "n0 --> n7" in run(broker, "graph", id)
    assert "n0 -> n7;" in run(broker, "graph", id, "--format", "dot")
    assert run(broker, "graph", id, "--format", "svg").startswith("<svg")
    assert "retry" not in run(broker, "rm", id)
    run(broker, "show", id, status=4)


def test_standard_input_and_a_flow_that_is_cancelled(broker: Broker) -> None:
    given = json.dumps(
        {"name": "f", "node": [{"service": "nobody", "name": "a"}, {"service": "join", "args": [{"node": "a"}]}]}
    )
    id = run(broker, "start", "-", given=given).strip()
    run(broker, "result", id, status=3)
    assert run(broker, "cancel", id).startswith("cancel")
    run(broker, "watch", id, status=1)
    assert run(broker, "retry", id).startswith("retrying")
    with Client(broker.url) as client:
        client.flow(id).cancel()


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ([{"name": "a", "service": "x", "args": [{"node": "b"}]}], "node 'a': it needs 'b', which is not a node"),
        (
            [
                {"name": "a", "service": "x", "after": ["b"]},
                {"name": "b", "service": "x", "args": [{"nodes": ["a"]}]},
                {"name": "c", "service": "x", "after": ["b"]},
            ],
            "it needs itself, through other nodes",
        ),
        ([{"name": "a"}], "node 'a': the service is missing"),
        ([{"name": "a", "service": "x", "colour": 1}], "node 'a': unknown field 'colour'"),
        ([{"name": "a", "service": "x"}, {"name": "a", "service": "x"}], "another node with this name"),
        ([], "it has no nodes"),
    ],
)
def test_a_flow_that_cannot_run_is_refused_with_the_name_of_the_node(broker: Broker, node: object, why: str) -> None:
    assert why in run(broker, "start", "-", status=2, given=json.dumps({"name": "f", "node": node})).replace("\n", " ")


def test_a_schedule_starts_a_flow_of_a_file(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(FLOW)

    def schedule(*arguments: str, status: int = 0) -> str:
        found = CliRunner().invoke(app, ["schedule", *arguments, "--to", broker.url])
        assert found.exit_code == status, found.output
        return found.output

    assert "nightly: next at" in schedule("add", "nightly", "0 0 1 1 *", "--flow", str(path))
    assert "(flow)" in schedule("ls")
    schedule("run", "nightly")
    with Client(broker.url) as client:
        newest = client.flows()[0]
        assert (newest["name"], newest["key"]) == ("nightly", "")
        assert client.flow(newest["flow"]).result("mail", 30).text == "ops A B C D E F G"
    assert "own options" in schedule("add", "n", "@daily", "--flow", str(path), "--priority", "3", status=2)
    assert "not both" in schedule("add", "n", "@daily", "ocr", "--flow", str(path), status=2)
    schedule("rm", "nightly")
