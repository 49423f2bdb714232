"""Nodes as JSON text, written in steps: the same as if they were written at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.limits import MAX_NODE_TEXT, STEP_BYTES, STEP_TOKENS
from polydomo.protocols.memo.cid import DAG_CBOR, Cid, cid_of
from polydomo.protocols.memo.node import Node, NodeError, node_cid, node_from
from polydomo.protocols.memo.node_json import to_json
from polydomo.web.memodb.writer import NodeText
from tests.protocols.memo.test_nodes import NODES


class Store:
    def __init__(self) -> None:
        self.nodes: dict[Cid, bytes] = {}

    def put(self, node: Node) -> Cid:
        cid, data = node_cid(node)
        self.nodes[cid] = data
        return cid

    def fetch(self, cid: Cid) -> bytes | None:
        content = cid.content()
        return content if content is not None else self.nodes.get(cid)

    def expand(self, cid: Cid) -> "tuple[bool, Node]":
        data = self.fetch(cid)
        try:
            return (False, None) if data is None else (True, node_from(cid, data))
        except NodeError:
            return False, None

    def text(self, cid: Cid, depth: int) -> "tuple[str, int]":
        """The text, and the number of steps."""
        data = self.fetch(cid)
        assert data is not None
        writer = NodeText(cid.content_type, data, self.fetch, depth)
        steps = 1
        while not writer.step():
            steps += 1
        return writer.out.decode(), steps


@given(NODES, st.integers(0, 3))
def test_any_node(node: Node, depth: int) -> None:
    store = Store()
    assert store.text(store.put(node), depth)[0] == to_json(node, store.expand, depth)


@given(st.lists(NODES, min_size=2, max_size=5), st.integers(0, 5))
def test_linked_nodes(nodes: "list[Node]", depth: int) -> None:
    store = Store()
    cid = store.put("leaf")
    for node in nodes:
        cid = store.put([node, {"next": cid, "again": [cid]}, cid])
    assert store.text(cid, depth)[0] == to_json(cid, store.expand, depth + 1)[8:-1]


def test_bytes_that_are_no_node_stay_a_link() -> None:
    store = Store()
    wrong = cid_of(DAG_CBOR, b"\xff")
    assert store.text(store.put([wrong]), 1)[0] == f'[{{"cid":"{wrong.text()}"}}]'


@pytest.mark.parametrize("size", [0, 1, 2, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES + 2])
def test_long_strings_are_written_in_steps(size: int) -> None:
    store = Store()
    values: list[Node] = [b"\0" * size, "\u20ac\n" * (size // 2), {"x": b"y" * size}]
    for node in (*values, values):
        for cid in (store.put(node), store.put([store.put(node)])):
            text, steps = store.text(cid, 2)
            assert text == to_json(node_from(cid, store.fetch(cid) or b""), store.expand, 2)
            assert steps >= size // STEP_BYTES


def test_many_values_are_written_in_steps() -> None:
    store = Store()
    text, steps = store.text(store.put([[] for _ in range(10_000)]), 0)
    assert len(text) == 3 * 10_000 + 1 and steps >= 10_000 / STEP_TOKENS


def test_a_graph_that_grows_without_end_is_refused() -> None:
    store = Store()
    cid = store.put(["bottom" * 1000])
    for _ in range(30):
        cid = store.put([cid, cid])
    writer = NodeText(cid.content_type, store.nodes[cid], store.fetch, 100)
    largest = 0

    def write() -> None:
        nonlocal largest
        while not writer.step():
            largest = max(largest, writer.held())

    with pytest.raises(NodeError, match="MAX_NODE_TEXT"):
        write()
    assert largest <= MAX_NODE_TEXT + 4 * STEP_BYTES
