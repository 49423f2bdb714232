"""Large Nodes, read in steps: the same CIDs and errors as if they were read at once."""

import json

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.limits import MAX_NODE_DEPTH, MAX_STRING_PIECES, STEP_BYTES, STEP_TOKENS
from polydomo.protocols.memo.cid import Cid
from polydomo.protocols.memo.node import Node, NodeError, decode, encode, node_cid
from polydomo.protocols.memo.node_json import from_json, to_json
from polydomo.web.memodb.reader import CborReader, JsonReader, NodeReader, OctetsReader
from tests.protocols.memo.test_nodes import NODES


def read(reader: NodeReader) -> "tuple[Cid, bytes]":
    while not reader.step():
        pass
    assert reader.cid is not None
    return reader.cid, reader.data


@given(NODES)
def test_json_in_steps(node: Node) -> None:
    assert read(JsonReader(to_json(node).encode())) == node_cid(node)


@given(NODES)
def test_cbor_in_steps(node: Node) -> None:
    assert read(CborReader(encode(node))) == node_cid(node)


@given(st.binary(max_size=200))
def test_octets_in_steps(data: bytes) -> None:
    assert read(OctetsReader(data)) == node_cid(data)


@pytest.mark.parametrize("canonical", [True, False])
def test_cbor_of_another_encoder(canonical: bool) -> None:
    value: dict[str, Node] = {"bb": [1, 2.5, None, True, b"x", "ü"], "a": {"z": -5}, "c": []}
    assert read(CborReader(cbor2.dumps(value, canonical=canonical))) == node_cid(value)
    indefinite = bytes.fromhex("bf 6162 9f 01 7f 6161 6162 ff ff 6161 5f 4101 4102 ff ff")
    assert read(CborReader(indefinite)) == node_cid({"b": [1, "ab"], "a": b"\1\2"})


def outcome(work: "object") -> object:
    try:
        return work() if callable(work) else None
    except NodeError:
        return NodeError


@given(st.text(st.sampled_from('[]{},:"\\u0019-.eE tfnmapcidbase64 \n'), max_size=40) | NODES.map(to_json))
def test_any_json_is_accepted_or_rejected_alike(text: str) -> None:
    data = text.encode()
    assert outcome(lambda: read(JsonReader(data))) == outcome(lambda: node_cid(from_json(data)))


@given(st.binary(min_size=1, max_size=60))
def test_any_cbor_is_accepted_or_rejected_alike(data: bytes) -> None:
    assert outcome(lambda: read(CborReader(data))) == outcome(lambda: node_cid(decode(data)))


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '"\\udc00x"',
        '"\\ud83d\\ude00 \\n\\u00e9"',
        '"\\x"',
        '"\\u12"',
        '"\t"',
        '"open',
        "1.5",
        "01",
        "-",
        "NaN",
    ],
)
def test_escapes_and_numbers(text: str) -> None:
    data = text.encode()
    assert outcome(lambda: read(JsonReader(data))) == outcome(lambda: node_cid(from_json(data)))


def test_bytes_that_are_not_utf_8() -> None:
    for data in (b'"\xff"', b'"\xc3"', b'"\xc3\\n"', b"\xff"):
        with pytest.raises(NodeError):
            read(JsonReader(data))
    with pytest.raises(NodeError):
        read(CborReader(b"\x61\xff"))


def test_a_step_is_small() -> None:
    """However the input is made up: many values, or a few long ones."""
    lists = JsonReader(b"[" + b"[]," * 50_000 + b"0]")
    steps = 0
    while not lists.step():
        steps += 1
    assert steps >= 100_000 / STEP_TOKENS
    long = "x" * (10 * STEP_BYTES)
    text = JsonReader(json.dumps(long).encode())
    steps = 0
    while not text.step():
        steps += 1
    assert steps >= 20, "it is read and hashed in pieces"
    assert text.cid == node_cid(long)[0]
    escapes = JsonReader(b'"' + b"\\n" * 10_000 + b'"')
    steps = 0
    while not escapes.step():
        steps += 1
    assert steps >= 50


def test_long_strings_with_characters_across_the_pieces() -> None:
    for text in ("ü" * STEP_BYTES, "x" + "€😀" * (STEP_BYTES // 7), "a\\nü" * 1000):
        assert read(JsonReader(json.dumps(text, ensure_ascii=False).encode())) == node_cid(text)
        assert read(CborReader(encode(text))) == node_cid(text)


def test_limits() -> None:
    deep = b"[" * (MAX_NODE_DEPTH + 2) + b"]" * (MAX_NODE_DEPTH + 2)
    with pytest.raises(NodeError, match="nested"):
        read(JsonReader(deep))
    with pytest.raises(NodeError, match="nested"):
        read(CborReader(b"\x81" * (MAX_NODE_DEPTH + 2) + b"\x80"))
    with pytest.raises(NodeError, match="pieces"):
        read(CborReader(b"\x7f" + b"\x60" * (MAX_STRING_PIECES + 1) + b"\xff"))


def test_what_it_holds_is_counted() -> None:
    reader = JsonReader(json.dumps(["x" * 100_000] * 3).encode())
    held = [reader.held()]
    while not reader.step():
        held.append(reader.held())
    assert held[0] >= 300_000 and max(held) >= 600_000
