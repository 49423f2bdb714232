"""Patterns of names: one language for services, topics and registrations, wherever a name may be a pattern.

``*`` matches any text, also none and also dots; ``?`` matches one character; every other character matches itself. Case counts. A pattern
matches a whole name.
"""

import re
from collections.abc import Iterable

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
