"""Finds the trace context of a request: in its headers, over a bridge, in its job, or in a part of its body.

Requests are searched only while peers that can send a context are connected.
"""

from polydomo.broker.jobs.job import Job
from polydomo.journal import context
from polydomo.model.records import Request, Session
from polydomo.protocols.bridge.session import bridge_trace_of

HEADERS = ("emqp", "http")  # protocols whose requests have headers


class TraceOrigin:
    def __init__(self, parts: bool) -> None:
        self.possible = parts  # whether a request may carry a context
        self._parts = parts  # look for a context in parts of bodies
        self._headers = 0  # open connections of a protocol that has headers
        self._bridges = 0  # ... and to other brokers

    def count(self, session: Session, by: int) -> None:
        """A connection opened (1) or closed (-1)."""
        if session.is_bridge:
            self._bridges += by
        elif session.protocol in HEADERS:
            self._headers += by
        self.possible = self._parts or self._bridges > 0 or self._headers > 0

    def of(self, request: Request) -> tuple[str, str]:
        """The trace context that the request came with or got on its way to another broker, and its id at the broker it came from."""
        if self._bridges:
            trace, parent = bridge_trace_of(request)
            if trace:
                return trace, parent
        if request.session.is_internal and isinstance(request.ref, Job):
            return request.ref.trace, ""
        found = context.of_header(request) if self._headers else ""
        return found or (context.of_parts(request) if self._parts else ""), ""
