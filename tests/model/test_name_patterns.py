"""The language of name patterns is the same wherever a name may be a pattern."""

import fnmatch
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.guard.rules import AccessRule
from polydomo.limits import MAX_PATTERN_NAMES
from polydomo.model.name_patterns import PatternMap, compiled, is_pattern, matches, precision
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


@given(st.dictionaries(PATTERNS, st.integers(0, 3), max_size=5), st.lists(NAMES, max_size=4))
def test_a_name_has_the_value_of_the_most_specific_pattern(values: dict[str, int], names: list[str]) -> None:
    table = PatternMap(values)
    for name in [*names, *names]:  # the second time, answers come from the cache
        found = [pattern for pattern in values if matches(pattern, name)]
        wanted = values[max(reversed(found), key=precision)] if found else None
        assert table.get(name.encode()) == wanted


def test_the_cache_of_answers_is_bounded() -> None:
    table = PatternMap({"a*": 1})
    for number in range(MAX_PATTERN_NAMES + 10):
        assert table.get(b"a%d" % number) == 1 and table.get(b"b%d" % number) is None
    assert len(table._known) <= MAX_PATTERN_NAMES
