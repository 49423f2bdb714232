"""What rules, groups, globs and quotas say."""

import pytest

from polydomo.broker.guard.rules import NO_QUOTA, RIGHTS, AccessRule, AccessRules, Quota
from polydomo.limits import ACCESS_ANSWERS

RULES = AccessRules(
    ["alice", "ci", "render-pool", "idle"],
    [
        AccessRule(1, ["alice", "ci"], {"call": ["resize", "lint.*"]}),
        AccessRule(2, ["render-pool"], {"offer": ["resize"], "publish": ["log.*"]}),
        AccessRule(3, ["alice"], {"admin": ["*"]}),
        AccessRule(4, ["ci"], {"subscribe": ["log.*", "temperature"]}),
    ],
    {"ci": Quota(open_requests=100), "crowd": Quota(connections=1)},
    {"crowd": ["ci", "idle"]},
)


def test_nothing_is_allowed_unless_a_rule_allows_it() -> None:
    assert RULES.allowed_by("ci", "call", "resize") == 1
    assert RULES.allowed_by("ci", "call", "lint.python") == 1
    for who, right, name in (
        ("ci", "call", "lint"),
        ("ci", "call", "resize2"),
        ("ci", "offer", "resize"),
        ("render-pool", "call", "resize"),
        ("idle", "call", "resize"),
        ("nobody", "call", "resize"),
        ("", "call", "resize"),
    ):
        assert RULES.allowed_by(who, right, name) == 0 and not RULES.allows(who, right, name)


@pytest.mark.parametrize("right", RIGHTS)
def test_admin_is_every_right(right: str) -> None:
    assert RULES.allows("alice", right, "anything at all") and not RULES.allows("idle", right, "anything at all")


def test_a_prefix_is_covered_only_if_every_topic_under_it_is() -> None:
    assert RULES.covers_prefix("ci", "subscribe", "log.") and RULES.covers_prefix("ci", "subscribe", "log.web.")
    for prefix in ("", "l", "log", "temperature"):
        assert not RULES.covers_prefix("ci", "subscribe", prefix)
    assert RULES.allows("ci", "subscribe", "temperature")
    assert RULES.covers_prefix("alice", "subscribe", "")


def test_quotas_of_a_principal_or_its_group() -> None:
    assert RULES.quota("ci").open_requests == 100
    assert RULES.quota("idle").connections == 1
    assert RULES.quota("alice") is NO_QUOTA


def test_cached_decisions_are_bounded() -> None:
    rules = AccessRules(["a"], [AccessRule(1, ["a"], {"call": ["x*"]})])
    for i in range(ACCESS_ANSWERS + 10):
        assert rules.allows("a", "call", f"x{i}") and not rules.allows("a", "call", f"y{i}")
    assert len(rules._answers) <= ACCESS_ANSWERS and len(rules._own) == 1
    for i in range(10):
        rules.allowed_by(f"stranger {i}", "call", "x")
    assert len(rules._own) == 1
