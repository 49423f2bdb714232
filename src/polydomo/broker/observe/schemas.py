"""The schemas of typed services: arguments and results as described by workers, or by settings for workers that cannot."""

import json

from polydomo.broker.guard.access import Access
from polydomo.broker.guard.rules import OFFER
from polydomo.broker.service_table import has_worker
from polydomo.broker.state import State
from polydomo.limits import MAX_SCHEMA_BYTES
from polydomo.model.records import Session
from polydomo.model.service_schema import Row, ServiceSchema, described, read_schema


class Schemas:
    """Schemas by service. A worker's schema is valid while a worker offers the service; one from settings is always valid."""

    __slots__ = ("_access", "_learned", "_said", "_sizes", "_state", "_total", "declared")

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access
        self.declared: dict[bytes, ServiceSchema] = {}
        self._learned: dict[bytes, ServiceSchema] = {}
        self._sizes: dict[bytes, int] = {}
        self._total = 0  # of these sizes
        self._said: dict[bytes, bytes] = {}  # the message that a schema came in

    def declare(self, descriptions: "dict[str, str]") -> None:
        """Adds services described in the settings."""
        self.declared = {name.encode(): described(text) for name, text in descriptions.items()}

    def learn(self, name: bytes, row: object, size: int) -> None:
        """Stores the schema that a worker sent. Raises ValueError with a reason."""
        if not has_worker(self._state, name):
            raise ValueError("no worker offers the service")
        schema = read_schema(row, size)
        self._forget_unused()
        total = self._total - self._sizes.get(name, 0) + size
        if total > MAX_SCHEMA_BYTES:
            raise ValueError(f"the schemas of all services exceed {MAX_SCHEMA_BYTES} bytes")
        self._total = total
        self._learned[name] = schema
        self._sizes[name] = size

    def find(self, name: bytes) -> ServiceSchema | None:
        """The schema of a service that a worker currently offers."""
        if not has_worker(self._state, name):
            return None
        return self._learned.get(name) or self.declared.get(name)

    def encoding_of(self, name: bytes) -> str:
        """The encoding of the service's single reply; "" if unknown, or if it sends several."""
        schema = self._learned.get(name) or self.declared.get(name)
        return schema.encoding if schema is not None and not schema.streams else ""

    def media_of(self, name: bytes) -> "tuple[str, ...]":
        """The media types of a service that may be called with GET; none if it may not."""
        schema = self._learned.get(name) or self.declared.get(name)
        return schema.media if schema is not None else ()

    def all(self) -> "dict[str, ServiceSchema]":
        """Schemas of all services that a worker currently offers, by name; names that are not UTF-8 are left out."""
        found: dict[str, ServiceSchema] = {}
        for name, schema in {**self.declared, **self._learned}.items():
            if has_worker(self._state, name):
                try:
                    found[name.decode()] = schema
                except UnicodeDecodeError:
                    pass
        return found

    def memory(self) -> int:
        """Bytes of the schemas that workers sent: each as it came, as text of its parts, and as a part of the OpenAPI document."""
        return 3 * self._total

    def rows(self) -> "list[bytes]":
        """The schemas as the workers sent them."""
        self._forget_unused()
        return list(self._said.values())

    def _forget_unused(self) -> None:
        for name in [name for name in self._learned if not has_worker(self._state, name)]:
            del self._learned[name]
            self._total -= self._sizes.pop(name)
            self._said.pop(name, None)

    # --- polydomo.schema

    def answer(self, session: Session, asked: bytes, principal: str) -> str:
        """As JSON. Empty body: returns all schemas by name. A name: returns its schema, or null. An object with service and schema: stores
        a worker's."""
        if not asked:
            rows = [f"{json.dumps(name)}: {schema.text(name)}" for name, schema in sorted(self.all().items())]
            return f"{{{', '.join(rows)}}}"
        if not asked.startswith(b"{"):
            schema = self.find(asked)
            return schema.text(asked.decode("utf-8", "replace")) if schema is not None else "null"
        answer: Row
        try:
            row = json.loads(asked)
            name = row.get("service")
            if not isinstance(name, str):
                raise ValueError("service must be a text")
            why = self._access.denial_as(principal, session, OFFER, name)
            if why:
                return json.dumps({"registered": False, "reason": why, "denied": True})
            self.learn(name.encode(), row.get("schema"), len(asked))
            self._said[name.encode()] = asked
            answer = {"service": name, "registered": True}
        except (ValueError, RecursionError) as error:
            answer = {"registered": False, "reason": str(error)}
        return json.dumps(answer)
