"""A page with the schemas of many services, built over several turns."""

from collections.abc import Callable

from polydomo.limits import SCHEMAS_AT_ONCE
from polydomo.model.service_schema import ServiceSchema
from polydomo.web.content import JSON
from polydomo.web.session import HttpSession
from polydomo.wire.steps import Steps


class SchemaPage(Steps):
    """Answers a request with ``beginning``, the entries of all schemas by name, and ``ending``."""

    def __init__(
        self,
        session: HttpSession,
        schemas: "dict[str, ServiceSchema]",
        beginning: str,
        entry: "Callable[[str, ServiceSchema], str]",
        ending: str,
    ) -> None:
        self.session = session
        self.schemas = schemas
        self.names = sorted(schemas, reverse=True)  # the next one is last
        self.beginning = beginning
        self.entry = entry
        self.ending = ending
        self.entries: list[str] = []

    def step(self) -> bool:
        for _ in range(SCHEMAS_AT_ONCE):
            if not self.names:
                text = f"{self.beginning}{','.join(self.entries)}{self.ending}"
                self.session.reply(200, JSON, text.encode("utf-8", "surrogatepass"), b"Cache-Control: no-store\r\n")
                return True
            name = self.names.pop()
            schema = self.schemas[name]
            size = schema.memory()
            self.entries.append(self.entry(name, schema))
            if schema.memory() != size:
                break  # it was built now, which takes some milliseconds for a large one
        return False
