"""The recording levels of the journal."""

from polydomo.journal import schema
from polydomo.journal.schema import REQUESTS
from polydomo.model.name_patterns import PatternMap


class Levels:
    """The level for all services, and for individual ones."""

    def __init__(self, level: str = REQUESTS, services: "PatternMap[str] | None" = None) -> None:
        self.level = level
        self.services: PatternMap[str] = services if services is not None else PatternMap({})

    def of(self, service: bytes) -> str:
        return self.services.get(service) or self.level

    @property
    def most(self) -> str:
        return max([self.level, *self.services.values.values()], key=schema.LEVELS.index)
