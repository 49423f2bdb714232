"""Patterns of service names, such as those of the setting ``durable.services``."""

from polydomo.limits import MAX_DURABLE_NAMES


def matches(pattern: bytes, name: bytes) -> bool:
    """A pattern is a name, or a prefix followed by a star.

    >>> matches(b"billing.*", b"billing.eu"), matches(b"render", b"render2"), matches(b"*", b"any")
    (True, False, True)
    """
    return name.startswith(pattern[:-1]) if pattern.endswith(b"*") else name == pattern


class Patterns:
    """A list of patterns. Answers are cached, because most requests repeat a service name."""

    def __init__(self, patterns: "list[bytes]") -> None:
        self.patterns = patterns
        self._known: dict[bytes, bool] = {}

    def covers(self, name: bytes) -> bool:
        if not self.patterns:
            return False
        known = self._known.get(name)
        if known is None:
            known = any(matches(pattern, name) for pattern in self.patterns)
            if len(self._known) < MAX_DURABLE_NAMES:
                self._known[name] = known
        return known
