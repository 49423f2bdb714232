"""The trie against a plain dictionary that is searched from end to end."""

from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.topics.trie import Trie

KEYS = st.binary(max_size=6) | st.text("ab.", max_size=8).map(str.encode)


@st.composite
def filled(draw: st.DrawFn) -> tuple[Trie[str], dict[bytes, str]]:
    trie: Trie[str] = Trie()
    plain: dict[bytes, str] = {}
    for key, keep in draw(st.lists(st.tuples(KEYS, st.booleans()), max_size=60)):
        if keep:
            plain[key] = f"value of {key!r}, number {len(plain)}"
            trie.set(key, plain[key])
        else:
            plain.pop(key, None)
            trie.remove(key)
        trie.check_invariants()
    return trie, plain


@given(filled(), KEYS)
def test_get(both: tuple[Trie[str], dict[bytes, str]], key: bytes) -> None:
    trie, plain = both
    assert trie.get(key) == plain.get(key)
    for known, value in plain.items():
        assert trie.get(known) == value


@given(filled(), KEYS)
def test_along_finds_every_key_that_the_text_begins_with(both: tuple[Trie[str], dict[bytes, str]], text: bytes) -> None:
    trie, plain = both
    along = [key for key in sorted(plain) if text.startswith(key)]
    assert trie.along(text) == [plain[key] for key in along]
    assert trie.along(text, 2) == [plain[key] for key in along if len(key) >= 2]


@given(filled(), KEYS)
def test_under_finds_every_key_that_begins_with_the_prefix_in_order(
    both: tuple[Trie[str], dict[bytes, str]], prefix: bytes
) -> None:
    trie, plain = both
    assert list(trie.under(prefix)) == [plain[key] for key in sorted(plain) if key.startswith(prefix)]


@given(filled(), KEYS, KEYS)
def test_under_continues_after_any_key(both: tuple[Trie[str], dict[bytes, str]], prefix: bytes, after: bytes) -> None:
    trie, plain = both
    expected = [plain[key] for key in sorted(plain) if key.startswith(prefix) and key > after]
    assert list(trie.under(prefix, after)) == expected


def test_removing_everything_leaves_nothing() -> None:
    trie: Trie[int] = Trie()
    keys = [b"", b"a", b"ab", b"abc", b"abd", b"b"]
    for number, key in enumerate(keys):
        trie.set(key, number)
    for key in keys:
        trie.remove(key)
        trie.remove(key)
        trie.check_invariants()
    assert list(trie.under(b"")) == [] and trie._root.children is None
