"""The recording levels of the journal."""

from collections.abc import Mapping

from polydomo.journal import schema
from polydomo.journal.schema import REQUESTS


class Levels:
    """The level for all services, and for individual ones."""

    def __init__(self, level: str = REQUESTS, services: Mapping[bytes, str] | None = None) -> None:
        self.level = level
        self.services = dict(services or {})

    def of(self, service: bytes) -> str:
        return self.services.get(service, self.level)

    @property
    def most(self) -> str:
        return max([self.level, *self.services.values()], key=schema.LEVELS.index)
