"""One built-in service: its name, the right it needs, how it is answered, and where. ``registry`` has one entry for each.

The rules of the broker look services up here and name none themselves: ``guard/access`` the right, ``requests/admission`` the answer,
``observe/listings`` the rows, ``cluster/siblings`` the process that answers, the HTTP API the page.
"""

import json
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from polydomo.broker.guard.rules import ADMIN, INSPECT
from polydomo.broker.reserved_names import MMI
from polydomo.limits import MAX_CONTROL
from polydomo.model.records import Request, Service, Session
from polydomo.wire.frames import Body, flat

Row = dict[str, object]

# Rights besides those of the access file.
ITSELF: Final = "-"  # the service checks the right for what the body names, such as the right to call a job's service
PROCESSES: Final = "process"  # only other processes of this broker

# Which process of a broker answers, if none is to merge the answers of all.
EACH: Final = "each"  # the one that was asked, for itself
FIRST: Final = "first"  # process 0, which is asked for its answer
OFFERED: Final = "offered"  # process 0, which offers it to the others as a service

# What the HTTP page of a service takes, as the body of the request to it.
NOTHING: Final = ""
QUERY: Final = "query"  # the query parameters, as a JSON object
NAME: Final = "name"  # the rest of the path


class Asked(NamedTuple):
    """A request to a built-in service. Admission has checked the right that it needs."""

    name: bytes
    session: Session
    body: bytes
    principal: str  # its origin


class Rows(NamedTuple):
    """A list that may be long: its rows are built when they are read."""

    length: int
    rows: Iterator[Row]


Answer = Callable[[Asked], object]  # bytes are sent as they are, anything else as JSON
Merge = Callable[["list[object]"], object]  # the answers of all processes, parsed, that of the asked one first


class BuiltinService:
    """``answer`` and ``rows`` answer at once, ``job`` with the help of the job store, some turns later."""

    __slots__ = (
        "answer",
        "job",
        "merge",
        "name",
        "path",
        "process",
        "right",
        "rows",
        "says",
        "service",
        "takes",
        "units",
        "uses_quota",
        "variant",
        "variant_of",
    )

    def __init__(
        self,
        name: bytes,
        right: str,
        says: str,
        answer: Answer | None = None,
        rows: "Callable[[], Rows] | None" = None,
        job: "Callable[[Request, Body], None] | None" = None,
        merge: Merge | None = None,
        process: str = EACH,
        path: str = "",
        takes: str = NOTHING,
        uses_quota: bool = False,
    ) -> None:
        self.name = name
        self.right = right
        self.says = says  # what it answers, for the documentation
        self.answer = answer  # with ``job``: the answer of a broker without a job store
        self.rows = rows
        self.job = job
        self.merge = merge  # makes one answer of those of all processes
        self.process = process
        self.path = path  # of its page in the HTTP API
        self.takes = takes
        self.service = Service(name)  # of requests to it
        self.uses_quota = uses_quota  # a request to it counts against the principal's quota, as a call does
        self.units: Callable[[Body], int] | None = (
            None  # how many calls a request counts for; one if there is no function
        )
        self.variant: BuiltinService | None = None  # the service for some bodies, such as those that change something
        self.variant_of: Callable[[bytes], bool] | None = None  # whether a body is one of those

    def counted(self, units: "Callable[[Body], int]") -> "BuiltinService":
        """Sets how many calls a request counts for. Returns this one."""
        self.units = units
        return self

    def for_bodies(self, test: "Callable[[bytes], bool]", variant: "BuiltinService") -> "BuiltinService":
        """Sets the service for bodies that pass the test. Returns this one."""
        self.variant = variant
        self.variant_of = test
        return self

    def needs_store(self) -> bool:
        """Whether a broker without a job store does not have it."""
        return self.job is not None and self.answer is None


class BuiltinServices:
    """The built-in services of one broker, by name."""

    def __init__(self, services: "list[BuiltinService]") -> None:
        self.by_name = {service.name: service for service in services}
        assert len(self.by_name) == len(services), "two built-in services have the same name"
        self.offered = frozenset(service.name for service in services if service.process == OFFERED)

    def find(self, name: bytes, body: Body) -> BuiltinService | None:
        """The service that a request asks for."""
        service = self.by_name.get(name)
        if service is None or service.variant_of is None or len(body) > MAX_CONTROL:
            return service
        return service.variant if service.variant_of(flat(body)) else service

    def answer(self, service: BuiltinService | None, asked: Asked) -> bytes:
        """The content of the answer."""
        if service is None or (service.answer is None and service.rows is None):
            return b"501"  # RFC 8: "501 (Not implemented)"
        found = service.answer(asked) if service.answer is not None else None
        if service.rows is not None:
            found = list(service.rows().rows)
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    def right(self, name: bytes, body: Body) -> str:
        """The right that a request needs. A name that is not known needs ADMIN, in the namespace of MMI INSPECT."""
        service = self.find(name, body)
        if service is not None:
            return service.right
        return INSPECT if name.startswith(MMI) else ADMIN
