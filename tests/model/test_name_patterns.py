"""The language of name patterns is the same wherever a name may be a pattern."""

import fnmatch
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.guard.rules import AccessRule
from polydomo.model.name_patterns import compiled, is_pattern, matches, precision
from polydomo.stores.memo import FILE, MemoStore

PATTERNS = st.text("ab.*?[]", max_size=6)
NAMES = st.text("ab.[]\n", max_size=8)


@given(PATTERNS, NAMES)
def test_patterns_are_globs_without_sets(pattern: str, name: str) -> None:
    assert matches(pattern, name) == fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


@given(st.lists(PATTERNS, min_size=1, max_size=3), NAMES)
def test_a_list_of_patterns_matches_what_one_of_them_matches(patterns: list[str], name: str) -> None:
    wanted = any(matches(pattern, name) for pattern in patterns)
    assert (compiled(patterns).fullmatch(name) is not None) == wanted
    assert AccessRule(1, ["ci"], {"call": patterns}).allows("call", name) == wanted


def test_stored_replies_are_removed_by_the_same_patterns(tmp_path: Path) -> None:
    names = ["lint", "lint.py", "lint.a[b]", "lint.ab", "LINT.py"]
    for pattern in ("lint", "lint.*", "*.py", "l?nt", "lint.a[b]", "lint.a[*", "*"):
        store = MemoStore(tmp_path / FILE, lambda: 1000.0)
        for number, name in enumerate(names):
            store.put_reply(b"%032d" % number, name, "", b"reply")
        store.remove_replies(pattern)
        left = {row["service"] for row in store.replies()}
        store.remove_replies("*")
        store.close()
        assert left == {name for name in names if not matches(pattern, name)}, pattern


def test_the_most_specific_pattern() -> None:
    ordered = ["billing.eu", "billing.??", "billing.*", "bill*", "*", ""]
    assert sorted(ordered[:-1], key=precision, reverse=True) == ordered[:-1]
    assert not is_pattern("billing.eu") and is_pattern("billing.*") and is_pattern("billing.e?")
