"""MemoDB's data model: Nodes, their CBOR and JSON, and CIDs; the examples are those of its documents."""

import json
import math

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.limits import MAX_NODE_DEPTH
from polydomo.protocols.memo.cid import (
    BLAKE2B_256,
    DAG_CBOR,
    DAG_CBOR_UNRESTRICTED,
    IDENTITY,
    MULTIBASES,
    RAW,
    Cid,
    CidError,
    cid_of,
    parse_cid,
    read_cid,
)
from polydomo.protocols.memo.node import Node, NodeError, decode, encode, node_cid
from polydomo.protocols.memo.node_json import from_json, to_json

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CIDS = st.builds(cid_of, st.sampled_from([RAW, DAG_CBOR, DAG_CBOR_UNRESTRICTED]), st.binary(max_size=60))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    TEXTS,
    st.binary(max_size=50),
    CIDS,
)
NODES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


def same(left: Node, right: Node) -> bool:
    """Equal, and of the same kind: 1, 1.0 and True are three Nodes."""
    return type(left) is type(right) and encode(left) == encode(right)


@given(NODES)
def test_nodes_survive_cbor_and_json(node: Node) -> None:
    assert same(decode(encode(node)), node)
    assert same(from_json(to_json(node).encode()), node)
    assert encode(decode(encode(node))) == encode(node)


@given(NODES)
def test_cbor_agrees_with_cbor2(node: Node) -> None:
    def plain(value: Node) -> object:
        if isinstance(value, Cid):
            return cbor2.CBORTag(42, b"\0" + value.raw)
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value

    assert cbor2.loads(encode(node)) == plain(node)
    assert same(decode(cbor2.dumps(plain(node))), node)  # in whatever form another encoder chooses


@pytest.mark.parametrize(
    ("node", "hexadecimal"),
    [
        (None, "f6"), (True, "f5"), (False, "f4"), (0, "00"), (23, "17"), (24, "1818"), (-1, "20"),
        (2**64 - 1, "1bffffffffffffffff"), (-(2**63), "3b7fffffffffffffff"), (1.0, "fb3ff0000000000000"),
        (math.nan, "fb7ff8000000000000"), (-math.inf, "fbfff0000000000000"), ("ü", "62c3bc"), (b"\x01", "4101"),
        ([1, [2]], "82018102"), ({"b": 1, "a": 2, "aa": 3}, "a3616102616201626161" + "03"),
    ],
)  # fmt: skip
def test_deterministic_encoding(node: Node, hexadecimal: str) -> None:
    assert encode(node).hex() == hexadecimal


@pytest.mark.parametrize(
    ("data", "node"),
    [
        ("1900ff", 255), ("1b0000000000000001", 1), ("f93c00", 1.0), ("fa7f800000", math.inf), ("5f41014102ff", b"\1\2"),
        ("7f61616162ff", "ab"), ("9f0102ff", [1, 2]), ("bf616101ff", {"a": 1}), ("a2616201616102", {"a": 2, "b": 1}),
    ],
)  # fmt: skip
def test_other_encodings_are_accepted(data: str, node: Node) -> None:
    assert same(decode(bytes.fromhex(data)), node)


@pytest.mark.parametrize(
    "data",
    [
        "", "18", "1c", "1f", "f7", "f0", "f8ff", "ff", "c100", "d82a00", "d82a4100", "d82a420001", "3bffffffffffffffff", "61ff",
        "a10102", "a2616101616102", "82", "9bffffffffffffffff", "bbffffffffffffffff", "5bffffffffffffffff", "5f6161ff", "5f5f4101ffff",
        "9f01", "0000", "81" * (MAX_NODE_DEPTH + 2) + "00", "fc", "fe",
    ],
)  # fmt: skip
def test_malformed_cbor_is_rejected(data: str) -> None:
    with pytest.raises(NodeError):
        decode(bytes.fromhex(data))


def test_nan_is_one_value() -> None:
    for data in ("f97e00", "fa7fc00000", "fb7ff8000000000001", "fbfff8000000000000"):
        assert encode(decode(bytes.fromhex(data))).hex() == "fb7ff8000000000000"


# --- the documents' examples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("uAXEAAfY", None),
        ("uAXEAAQI", 2),
        ("uAXEABYIYfBiF", [124, 133]),
        ("uAXEACdgqRgABcQABAg", parse_cid("uAXEAAQI")),
    ],
)
def test_cids_of_the_documents(text: str, node: Node) -> None:
    cid, data = node_cid(node)
    assert cid.text() == text
    assert cid.content() == data
    assert cid.content_type == DAG_CBOR and cid.hash_type == IDENTITY


def test_json_of_the_documents() -> None:
    node: Node = {"foo": parse_cid("uAXEAAfY"), "bar": 1.0, "baz": b"\x55\xaa"}
    written = '{"map":{"bar":{"float":"1"},"baz":{"base64":"Vao="},"foo":{"cid":"uAXEAAfY"}}}'
    assert to_json(node) == written
    assert from_json(written.encode()) == node
    exponent = "-1.00000000000000065042509409911827826032367803636410424129692898e-308"
    assert from_json(json.dumps({"float": exponent}).encode()) == float(exponent)
    for text in ("1234", "-9223372036854775808", "18446744073709551615", "null", "true", '""', '["foo",false]', "[]",
                 '{"map":{}}', '{"base64":"YXNjaWk="}', '{"base64":""}', '{"float":"3.142"}', '{"float":"-0"}',
                 '{"float":"NaN"}', '{"float":"Infinity"}', '{"float":"-Infinity"}'):  # fmt: skip
        assert to_json(from_json(text.encode())) == text
    assert from_json(b'"\\uD83D\\uDE10\\u0000"') == "\U0001f610\0"


def test_links_are_expanded_to_a_depth() -> None:
    link = parse_cid("uAXEACdgqRgABcQABAg")
    known: dict[Cid, Node] = {link: parse_cid("uAXEAAQI"), parse_cid("uAXEAAQI"): 2}

    def expand(cid: Cid) -> tuple[bool, Node]:
        return cid in known, known.get(cid)

    assert to_json(link, expand, 0) == '{"cid":"uAXEACdgqRgABcQABAg"}'
    assert to_json(link, expand, 1) == '{"node":{"cid":"uAXEAAQI"}}'
    assert to_json([link], expand, 2) == '[{"node":{"node":2}}]'
    assert to_json(parse_cid("uAXEAAfY"), expand, 5) == '{"cid":"uAXEAAfY"}'


@pytest.mark.parametrize(
    "text",
    [
        "", "1.0", "1e3", "NaN", "18446744073709551616", "-9223372036854775809", "{}", '{"a":1}', '{"map":[]}', '{"map":{"a":1,"a":2}}',
        '{"float":1}', '{"float":"1_0"}', '{"float":"0x1"}', '{"float":"nan"}', '{"float":"01"}', '{"float":""}', '{"base64":"YQ"}',
        '{"base64":"Y Q="}', '{"cid":"bafy"}', '{"cid":"fAA"}', '{"cid":"u"}', '{"cid":1}', '{"map":{},"cid":"uAXEAAfY"}', '"\\ud800"',
        "[" * 200 + "]" * 200, "[" * 100_000, "1" * 5000, '{"node":1}',
    ],
)  # fmt: skip
def test_malformed_json_is_rejected(text: str) -> None:
    with pytest.raises(NodeError):
        from_json(text.encode())


# --- CIDs ---------------------------------------------------------------------------------------------------------------------


@given(CIDS, st.sampled_from(sorted(MULTIBASES)))
def test_cids_survive_every_multibase(cid: Cid, base: str) -> None:
    assert parse_cid(cid.text(base)) == cid
    assert read_cid(cid.raw) == cid


def test_short_data_is_in_the_cid_and_long_data_is_hashed() -> None:
    short, long = cid_of(RAW, b"x" * 34), cid_of(RAW, b"x" * 35)
    assert (short.hash_type, long.hash_type) == (IDENTITY, BLAKE2B_256)
    assert len(short.raw) == len(long.raw)  # "the same length or shorter"
    assert long.raw[:6].hex() == "0155a0e40220"
    assert short.content() == b"x" * 34 and long.content() is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{}", "an empty object"),
        ('{"a": 1}', "an object with the key 'a'"),
        ('{"map": {}, "x": 1}', "an object with the keys 'map', 'x'"),
    ],
)
def test_an_object_of_plain_json_gets_an_example_of_a_map(text: str, what: str) -> None:
    with pytest.raises(NodeError) as caught:
        from_json(text.encode())
    assert str(caught.value).startswith(f'{what} is not MemoDB JSON; write a map as {{"map": ')


@pytest.mark.parametrize(
    ("node", "content_type"),
    [
        (b"bytes", RAW), ([b"bytes"], DAG_CBOR), (1.5, DAG_CBOR), (2**63 - 1, DAG_CBOR), (2**63, DAG_CBOR_UNRESTRICTED),
        ({"a": [math.nan]}, DAG_CBOR_UNRESTRICTED), (math.inf, DAG_CBOR_UNRESTRICTED),
    ],
)  # fmt: skip
def test_content_types(node: Node, content_type: int) -> None:
    assert node_cid(node)[0].content_type == content_type


@pytest.mark.parametrize(
    "text",
    [
        "", "u", "zAXEAAfY", "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPkdG", "uAXEAAfZ" + "A" * 300, "uAXEAAfY=", "UAXEAAfY",
        "u!!!!", "uAHEAAfY", "uAXAAAfY", "uAXESAfY", "uAXEAAvY", "uAfEAAQI", "fzz", "f0171000", "F0171000102FF", "u\u00fc",
        "f01f10000", "f8100710001f6", "uAXEAAff",
    ],
)  # fmt: skip
def test_invalid_cids_are_rejected(text: str) -> None:
    with pytest.raises(CidError):
        parse_cid(text)
