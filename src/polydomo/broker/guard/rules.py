"""The contents of the access file: rules, groups and quotas, as immutable values.

A reload creates a new ``AccessRules``. Decisions are cached only inside it, so a cached decision never outlives its rules.
Everything is denied unless a rule allows it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from polydomo.limits import ACCESS_ANSWERS
from polydomo.model.name_patterns import compiled, matches

CALL: Final = "call"
OFFER: Final = "offer"
PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
REGISTER: Final = "register"
INSPECT: Final = "inspect"
TAP: Final = "tap"
BRIDGE: Final = "bridge"
ADMIN: Final = "admin"
RIGHTS = (CALL, OFFER, PUBLISH, SUBSCRIBE, REGISTER, INSPECT, TAP, BRIDGE, ADMIN)

ANYTHING = ("*",)  # the meaning of ``true`` in a rule


class Quota:
    """The limits of one principal over all its connections. 0: no limit."""

    def __init__(
        self, connections: int = 0, open_requests: int = 0, held_bytes: int = 0, requests_per_second: float = 0.0
    ) -> None:
        self.connections = connections
        self.open_requests = open_requests
        self.held_bytes = held_bytes
        self.requests_per_second = requests_per_second


NO_QUOTA = Quota()


class AccessRule:
    """One ``[[allow]]`` of the file. ``number`` counts from 1."""

    def __init__(self, number: int, who: Iterable[str], rights: Mapping[str, Iterable[str]]) -> None:
        self.number = number
        self.who = frozenset(who)
        self.rights = {right: tuple(globs) for right, globs in rights.items()}
        self._patterns = {right: compiled(globs) for right, globs in self.rights.items()}

    def allows(self, right: str, name: str) -> bool:
        if ADMIN in self._patterns:
            return True
        pattern = self._patterns.get(right)
        if right == BRIDGE and not name:
            return pattern is not None  # to join; the names are services and topics that it may carry
        return pattern is not None and pattern.fullmatch(name) is not None

    def covers_prefix(self, right: str, prefix: str) -> bool:
        """Whether every name that begins with ``prefix`` is allowed, not only ``prefix`` itself."""
        if ADMIN in self._patterns:
            return True
        return any(glob.endswith("*") and matches(glob, prefix) for glob in self.rights.get(right, ()))


class AccessRules:
    """All rules of an access file. ``allowed_by`` returns the rule; ``allows`` returns only a boolean, and caches it."""

    def __init__(
        self,
        principals: Iterable[str],
        rules: Iterable[AccessRule],
        quotas: Mapping[str, Quota] | None = None,
        groups: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self.principals = frozenset(principals)
        self.rules = tuple(rules)
        self.quotas = dict(quotas or {})
        self.groups = {name: frozenset(members) for name, members in (groups or {}).items()}
        self._own: dict[str, tuple[AccessRule, ...]] = {}  # principal -> its rules
        self._answers: dict[tuple[str, str, str], bool] = {}

    def allowed_by(self, principal: str, right: str, name: str) -> int:
        """The number of the first rule that allows it; 0 if none does."""
        for rule in self._rules_of(principal):
            if rule.allows(right, name):
                return rule.number
        return 0

    def allows(self, principal: str, right: str, name: str) -> bool:
        key = (principal, right, name)
        answer = self._answers.get(key)
        if answer is None:
            answer = self.allowed_by(principal, right, name) > 0
            if len(self._answers) >= ACCESS_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def covers_prefix(self, principal: str, right: str, prefix: str) -> bool:
        return any(rule.covers_prefix(right, prefix) for rule in self._rules_of(principal))

    def quota(self, principal: str) -> Quota:
        """The principal's own quota, otherwise that of its first group, otherwise none."""
        own = self.quotas.get(principal)
        if own is not None:
            return own
        for group, members in self.groups.items():
            if principal in members and group in self.quotas:
                return self.quotas[group]
        return NO_QUOTA

    def _rules_of(self, principal: str) -> tuple[AccessRule, ...]:
        found = self._own.get(principal)
        if found is None:
            found = tuple(rule for rule in self.rules if principal in rule.who)
            if principal in self.principals:
                self._own[principal] = found
        return found
