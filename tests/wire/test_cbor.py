"""The CBOR of memo01's header: against cbor2 on random input, and the edges by hand."""

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.errors import ProtocolViolation
from polydomo.limits import MAX_SERVICE_NAME, MAX_SERVICES_PER_WORKER, MEMO_MAX_HEADER
from polydomo.wire import cbor

numbers = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**64 - 1]),
)
scalars = st.one_of(st.booleans(), numbers, st.binary(max_size=300), st.text(max_size=100))
headers = st.lists(st.one_of(scalars, st.lists(scalars, max_size=30)), max_size=30)
# what only CBOR at large has: the reader must take none of it
foreign = st.one_of(
    st.none(),
    st.floats(allow_nan=False),
    st.integers(-(2**64), -1),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9)),
)


@given(headers, st.binary(max_size=50), st.binary(max_size=10))
def test_canonical_output_of_cbor2_is_decoded_unchanged(header: list[cbor.Item], payload: bytes, before: bytes) -> None:
    encoded = cbor2.dumps(header, canonical=True)
    data = before + encoded + payload
    assert cbor.read_header(data, len(before), len(data)) == (header, len(before) + len(encoded))


@given(headers)
def test_encoding_equals_canonical_cbor2(header: list[cbor.Item]) -> None:
    encoded = cbor.encode(header)
    assert encoded == cbor2.dumps(header, canonical=True)
    assert repr(cbor2.loads(encoded)) == repr(header)  # repr tells True from 1


def check_any(data: bytes) -> None:
    """A header that cbor2 reads the same and writes back as it was, or ProtocolViolation."""
    try:
        header, payload = cbor.read_header(data, 0, len(data))
    except ProtocolViolation:
        return
    taken = data[:payload]
    assert repr(cbor2.loads(taken)) == repr(header)
    assert cbor2.dumps(header, canonical=True) == taken


@given(st.binary(max_size=60))
def test_any_bytes_give_a_header_or_a_violation(data: bytes) -> None:
    check_any(data)


@given(st.integers(0x80, 0x9F), st.binary(max_size=60))
def test_any_array_gives_a_header_or_a_violation(first: int, rest: bytes) -> None:
    check_any(bytes((first,)) + rest)


@given(headers, st.data())
def test_a_damaged_header_is_read_truly_or_not_at_all(header: list[cbor.Item], data: st.DataObject) -> None:
    encoded = bytearray(cbor.encode(header))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))
    check_any(bytes(encoded))


@given(headers, st.data())
def test_a_header_cut_short_is_a_violation(header: list[cbor.Item], data: st.DataObject) -> None:
    encoded = cbor.encode(header)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolViolation):
        cbor.read_header(encoded, 0, end)  # the rest is there, but it is another message's


@given(headers, foreign, st.data())
def test_items_that_memo01_does_not_use_are_refused(header: list[cbor.Item], item: object, data: st.DataObject) -> None:
    items: list[object] = list(header)
    items.insert(data.draw(st.integers(0, len(items))), item)
    encoded = cbor2.dumps(items, canonical=True)
    with pytest.raises(ProtocolViolation):
        cbor.read_header(encoded, 0, len(encoded))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "not an array"),
        ("40", "not an array"),
        ("a0", "not an array"),
        ("f6", "not an array"),
        ("81", "ends early"),
        ("98", "ends early"),
        ("8118", "ends early"),
        ("8142ff", "ends early"),
        ("9bffffffffffffffff00", "ends early"),
        ("9f00ff", "indefinite"),
        ("815f4101ff", "indefinite"),
        ("817f6161ff", "indefinite"),
        ("819fff", "indefinite"),
        ("811c", "reserved"),
        ("811e", "reserved"),
        ("811800", "shortest"),
        ("811817", "shortest"),
        ("811900ff", "shortest"),
        ("811a0000ffff", "shortest"),
        ("811b00000000ffffffff", "shortest"),
        ("980100", "shortest"),
        ("81780161", "shortest"),
        ("81580100", "shortest"),
        ("8161ff", "UTF-8"),
        ("8163eda080", "UTF-8"),  # a surrogate
        ("8162c080", "UTF-8"),  # an overlong zero
        ("81818100", "nested"),
        ("81818180", "nested"),
        ("8120", "0x20"),  # -1
        ("81a0", "0xa0"),
        ("81c000", "0xc0"),
        ("81f6", "0xf6"),  # null
        ("81f814", "0xf8"),  # false in two bytes
        ("81f90000", "0xf9"),
    ],
)
def test_edges_that_are_refused(data: str, why: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(ProtocolViolation, match=why):
        cbor.read_header(raw, 0, len(raw))


def test_the_documents_example() -> None:
    raw = bytes.fromhex("84 66 6d656d6f3031 01 40 82 63 616464 64 6563686f")
    assert cbor.read_header(raw, 0, len(raw)) == (["memo01", 1, b"", ["add", "echo"]], len(raw))
    assert cbor.encode(["memo01", 1, b"", ["add", "echo"]]) == raw


def test_the_largest_ready_fits_and_nothing_much_larger_does() -> None:
    names: list[cbor.Item] = [f"{i:0{MAX_SERVICE_NAME}}" for i in range(MAX_SERVICES_PER_WORKER)]
    raw = cbor.encode(["memo01", 1, b"", names])
    assert cbor.read_header(raw, 0, len(raw))[1] == len(raw)
    long = cbor.encode(["x" * MEMO_MAX_HEADER])
    with pytest.raises(ProtocolViolation):
        cbor.read_header(long, 0, len(long))
