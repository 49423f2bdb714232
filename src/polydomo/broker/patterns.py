"""The services of the setting ``durable.services``."""

from polydomo.limits import MAX_DURABLE_NAMES
from polydomo.model.name_patterns import compiled


class Patterns:
    """A list of patterns (``model/name_patterns.py``). Answers are cached, because most requests repeat a service name."""

    def __init__(self, patterns: "list[bytes]") -> None:
        self.patterns = patterns
        self._compiled = compiled([pattern.decode("utf-8", "surrogateescape") for pattern in patterns])
        self._known: dict[bytes, bool] = {}

    def covers(self, name: bytes) -> bool:
        if not self.patterns:
            return False
        known = self._known.get(name)
        if known is None:
            known = self._compiled.fullmatch(name.decode("utf-8", "surrogateescape")) is not None
            if len(self._known) < MAX_DURABLE_NAMES:
                self._known[name] = known
        return known
