"""The column of clients' ids: the same texts as Python's own decoder makes of each id."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polydomo.journal.files.id_texts import id_texts
from polydomo.journal.recording.client_ids import ClientIds

NEAR_UTF8 = st.lists(
    st.sampled_from(
        [
            b"a",
            b"\xc3",
            b"\xa9",
            "é".encode(),
            "€".encode(),
            "😀".encode(),
            b"\xf0\x9f",
            b"\xff",
            b"\xc0\x80",
            b"\xed\xa0\x80",
        ]
    )
)
IDENTITIES = st.one_of(
    st.binary(max_size=20), NEAR_UTF8.map(b"".join), st.integers(0, 2**40).map(lambda n: n.to_bytes(8, "big"))
)


@given(st.lists(IDENTITIES, min_size=1))
def test_texts_are_those_of_pythons_decoder(found: list[bytes]) -> None:
    ids = ClientIds()
    for seq, identity in enumerate(found, 5):
        if identity:
            ids.add(seq, identity)
    assert ids.by_seq() == {seq: identity for seq, identity in enumerate(found, 5) if identity}
    if ids:
        seqs = np.arange(4, len(found) + 6)
        wanted = ["", *(identity.decode(errors="backslashreplace") for identity in found), ""]
        assert id_texts(ids, seqs).to_pylist() == wanted
