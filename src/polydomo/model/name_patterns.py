"""Patterns of names: one language for services, topics and registrations, wherever a name may be a pattern.

``*`` matches any text, also none and also dots; ``?`` matches one character; every other character matches itself. Case counts. A pattern
matches a whole name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from polydomo.limits import MAX_PATTERN_NAMES

T = TypeVar("T")

_STARS = re.compile(r"\*+")


def matches(pattern: str, name: str) -> bool:
    """
    >>> matches("billing.*", "billing.eu.de"), matches("render", "render2"), matches("v?", "v1"), matches("[a]", "a")
    (True, False, True, False)
    """
    return re.fullmatch(regular_expression(pattern), name, re.DOTALL) is not None


def compiled(patterns: Iterable[str]) -> "re.Pattern[str]":
    """An expression whose ``fullmatch`` finds names that any of the patterns matches."""
    return re.compile("|".join(f"(?:{regular_expression(pattern)})" for pattern in patterns), re.DOTALL)


def regular_expression(pattern: str) -> str:
    """The pattern in the syntax that Python and Java share. It must match the whole name, with dots that match line breaks."""
    pieces = []
    for character in _STARS.sub("*", pattern):
        pieces.append(".*" if character == "*" else "." if character == "?" else re.escape(character))
    return "".join(pieces)


def is_pattern(text: str) -> bool:
    """Whether the text has a ``*`` or a ``?``; otherwise it is a name, which matches only itself."""
    return "*" in text or "?" in text


def precision(pattern: str) -> "tuple[bool, int, int]":
    """A key to sort patterns by: of several that match a name, the one with the greatest key is the most specific. A name without
    ``*`` and ``?`` comes before all patterns, then the number of characters that match themselves decides, then the number of ``?``.

    >>> sorted(["billing.eu", "*", "billing.*", "billing.??"], key=precision, reverse=True)
    ['billing.eu', 'billing.??', 'billing.*', '*']
    """
    wild = pattern.count("*") + pattern.count("?")
    return wild == 0, len(pattern) - wild, pattern.count("?")


class PatternMap(Generic[T]):
    """Values by pattern. A name gets the value of the most specific pattern that matches it (``precision``); of two equal ones, the
    later counts. Answers are cached, because most requests repeat a service name.

    >>> attempts = PatternMap({"*": 3, "billing.*": 5, "billing.eu": 1})
    >>> [attempts.get(name) for name in (b"billing.eu", b"billing.us", b"render")]
    [1, 5, 3]
    """

    def __init__(self, values: "Mapping[str, T]") -> None:
        self.values = dict(values)
        self._names: dict[bytes, T] = {}
        ordered = []
        for pattern, value in self.values.items():
            if is_pattern(pattern):
                ordered.append(pattern)
            else:
                self._names[pattern.encode("utf-8", "surrogateescape")] = value
        ordered.reverse()
        ordered.sort(key=precision, reverse=True)  # keeps the order of equal ones
        self._patterns = [(compiled([pattern]), self.values[pattern]) for pattern in ordered]
        self._known: dict[bytes, T | None] = {}

    def __bool__(self) -> bool:
        return bool(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatternMap) and self.values == other.values

    def __hash__(self) -> int:
        return hash(tuple(self.values))

    def get(self, name: bytes) -> "T | None":
        """None if no pattern matches."""
        found = self._names.get(name)
        if found is not None or not self._patterns:
            return found
        if name in self._known:
            return self._known[name]
        text = name.decode("utf-8", "surrogateescape")
        for pattern, value in self._patterns:
            if pattern.fullmatch(text) is not None:
                found = value
                break
        if len(self._known) >= MAX_PATTERN_NAMES:
            self._known.clear()
        self._known[name] = found
        return found


def chosen(patterns: Iterable[str]) -> "PatternMap[bool]":
    """True for the names that one of the patterns matches."""
    return PatternMap(dict.fromkeys(patterns, True))
