"""A flow as a program describes it, and as the broker reads it."""

import json

import pytest

from polydomo import Backoff, Flow, SettingError
from polydomo.limits import FLOW_PART, MAX_BODY_FRAMES
from polydomo.model.flows.flow_file import read_flow, write_flow
from polydomo.model.flows.growth import growth_of, read_stored_flow, write_growth
from polydomo.model.flows.messages import NodeSpec, Template
from polydomo.wire.frames import frame, split


def test_arguments_become_frames() -> None:
    flow = Flow("f")
    a = flow.call("one", "text", b"\x00\xff", {"a": 1}, 7, None, "x" * 5000)
    spec = NodeSpec(0, a.row, list(reversed(a.frames)))
    assert split(spec.body()) == [b"text", b"\x00\xff", b'{"a":1}', b"7", b"null", b"x" * 5000]
    b = flow.call("two", a, "!", [a, a])
    spec = NodeSpec(1, b.row, list(reversed(b.frames)))
    template = Template(spec.body())
    assert template.nodes() == [0, 0, 0]
    assert split(template.fill({0: b"r"})) == [b"r", b"!", b"r", b"r"]


def test_a_list_without_nodes_is_no_frame() -> None:
    flow = Flow("f")
    a = flow.call("one", [], "x", [])
    spec = NodeSpec(0, a.row, list(reversed(a.frames)))
    assert not spec.template and split(spec.body()) == [b"x"]
    b = flow.call("two", [], by_reference=True)
    spec = NodeSpec(1, b.row, [])
    assert spec.template and split(Template(spec.body()).fill({})) == [b"[]"]


def test_arguments_by_name_become_an_object() -> None:
    flow = Flow("f")
    a = flow.call("one", text="5", number=5, many=[{"x": 1}])
    spec = NodeSpec(0, a.row, list(reversed(a.frames)))
    assert split(Template(spec.body()).fill({})) == [b'{"text":"5","number":5,"many":[{"x":1}]}']
    b = flow.call("two", a=a, list=[a, a], options="!", by_reference=True)
    template = Template(NodeSpec(1, b.row, list(reversed(b.frames))).body())
    assert split(template.fill({0: b"01K"})) == [b'{"a":"01K","list":["01K","01K"],"options":"!"}']


def test_a_flow_is_written_as_a_file() -> None:
    flow = Flow("f", on_failure="cancel", reuse=True)
    many = flow.map("ocr", ["a", b"\xff", {"node": "x"}, "t" * 5000], retries=Backoff(attempts=3), run_timeout=1.5)
    last = flow.call("join", many, many[0], 7, priority=2, allow_failure=True, by_reference=True, reuse=False)
    flow.call("mail", text={"base64": "x"}, of=last, all=many, after=[many[0], many[1], many[2]], name="mail")
    again = read_flow(json.loads(json.dumps(write_flow(flow))))
    assert again.fingerprint() == flow.fingerprint()
    assert [node.name for node in again.nodes] == [node.name for node in flow.nodes]
    growth = write_growth("01KDVDNA000000000000000000", flow)
    text = growth_of(frame(growth, False), "01KDVDNA000000000000000000")
    assert text is not None and read_stored_flow(text).fingerprint() == flow.fingerprint()
    assert growth_of(frame(growth, False), "01KDVDNA000000000000000001") is None
    assert growth_of(frame(b"polydomo-the", False), "01KDVDNA000000000000000000") is None


def test_a_name_may_not_be_that_of_an_added_node() -> None:
    with pytest.raises(SettingError, match="node '7/x': name: NUMBER/NAME"):
        Flow("f").call("x", name="7/x")
    Flow("f").call("x", name="pages/7")


def test_names_are_generated_and_unique() -> None:
    flow = Flow("f")
    assert [node.name for node in flow.map("ocr", "abc")] == ["ocr", "ocr-2", "ocr-3"]
    flow.call("x", name="ocr-4")
    assert flow.call("ocr").name == "ocr-5"
    with pytest.raises(SettingError, match="node 'ocr-2': the flow has another node with this name"):
        flow.call("y", name="ocr-2")


def test_a_node_of_another_flow_is_refused() -> None:
    other = Flow("other").call("x")
    flow = Flow("f")
    with pytest.raises(SettingError, match=r"node 'y': .* is not a node of this flow"):
        flow.call("y", other)
    with pytest.raises(SettingError, match=r"node 'y': .* is not a node of this flow"):
        flow.call("y", after=[other])
    assert len(flow) == 0


def test_settings_of_a_node() -> None:
    flow = Flow("f", reuse=True)
    node = flow.call("x", retries=Backoff(attempts=3), run_timeout=1.5, priority=2, allow_failure=True)
    spec = NodeSpec(0, node.row, [])
    assert spec.backoff is not None
    assert (spec.backoff.attempts, spec.run, spec.priority, spec.allow_failure, spec.reuse) == (3, 1.5, 2, True, True)
    assert not NodeSpec(1, flow.call("x", reuse=False).row, []).reuse


def test_a_node_beyond_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.model.flows.flow.MAX_FLOW_NODES", 2)
    flow = Flow("f")
    flow.map("one", ["a", "b"])
    with pytest.raises(SettingError, match="node 'one-3': the flow has more than 2 nodes"):
        flow.call("one", "c")


def test_a_large_flow_is_sent_in_parts() -> None:
    flow = Flow("f")
    many = flow.map("x", range(3 * FLOW_PART))
    flow.call("y", after=many)
    parts = list(flow.parts())
    assert [part.first for part in parts] == [0, FLOW_PART, 2 * FLOW_PART, 3 * FLOW_PART]
    assert sum(len(part.nodes) for part in parts) == len(flow)
    assert parts[-1].nodes[0]["after"] == [[0, 3 * FLOW_PART - 1]]


def test_more_frames_than_a_message_has_are_refused() -> None:
    flow = Flow("f")
    many = flow.map("x", range(MAX_BODY_FRAMES))
    with pytest.raises(SettingError, match=r"node 'join': args: 16,361 frames; the limit is 16,360"):
        flow.call("join", "first", many)
    flow.call("join", "first", many, by_reference=True)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (7, "node 5: must be a JSON object"),
        ({"name": "n"}, "node 'n': service: the name of the service is missing"),
        ({"service": "x", "args": [5]}, "node '5': args: 5 is not the number of a node before it"),
        ({"service": "x", "args": [[1, -1]]}, "args: -1 is not the number of a node before it"),
        ({"service": "x", "after": [6]}, "after: 6 is not"),
        ({"service": "x", "args": [True]}, "args: True must be"),
        ({"service": "x", "args": [None]}, "too few frames"),
        ({"service": "x", "reuse": 1}, "reuse: must be true or false"),
        ({"service": "x", "colour": 1}, "unknown field 'colour'"),
        ({"service": "x", "priority": 1.5}, "priority"),
    ],
)
def test_a_node_that_cannot_be_read_names_itself(row: object, why: str) -> None:
    with pytest.raises(SettingError) as raised:
        NodeSpec(5, row, [])
    assert why in str(raised.value)


def test_equal_flows_have_equal_fingerprints() -> None:
    def made(text: str) -> Flow:
        flow = Flow("f")
        flow.call("x", text, b"1")
        return flow

    assert made("a").fingerprint() == made("a").fingerprint()
    assert made("a").fingerprint() != made("b").fingerprint()


def test_a_list_of_references_in_a_flow_file_is_not_sent_as_json() -> None:
    nodes: list[dict[str, object]] = [
        {"name": "a", "service": "x"},
        {"name": "b", "service": "x", "args": [[{"node": "a"}]]},
    ]
    with pytest.raises(SettingError, match=r"node 'b': args: a list of nodes is \{nodes = \[NAME, ...\]\}"):
        read_flow({"name": "f", "node": nodes})
    nodes[1]["args"] = [{"json": '[{"node": "a"}]'}]
    assert read_flow({"name": "f", "node": nodes})["b"].frames == [b'[{"node":"a"}]']
