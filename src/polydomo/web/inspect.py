"""``GET /v1/services`` and similar endpoints: the built-in services (``polydomo.*``) over HTTP.

Each is an ordinary request to a built-in service, with the same permissions, limits and content.
"""

import json

from polydomo.model.records import Request
from polydomo.native import mypyc_attr
from polydomo.web.call import fail
from polydomo.web.content import JSON, dump
from polydomo.web.session import Endpoint, Exchange, HttpSession
from polydomo.wire.frames import Body, flat, join
from polydomo.wire.http.head import HttpError, RequestHead

NAMES = ("service", "text")  # parameters that are text, even if they look like numbers


class InspectExchange(Exchange):
    def __init__(self, session: HttpSession) -> None:
        self.session = session

    def final(self, request: Request, body: Body) -> None:
        self.session.reply(200, JSON, flat(body), b"Cache-Control: no-store\r\n")

    def failure(self, request: Request, code: str, text: str) -> None:
        fail(self.session, request, code, text)


@mypyc_attr(allow_interpreted_subclasses=True)
class InspectEndpoint(Endpoint):
    """One built-in service."""

    def __init__(self, service: bytes) -> None:
        self.service = service

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if path not in ([], [""]):
            raise HttpError(404, "there is nothing below this path", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        session.ask(self.service, b"", InspectExchange(session))


class QueryExchange(InspectExchange):
    """The answer to a query; ``{"error": ...}`` if a parameter is invalid."""

    def final(self, request: Request, body: Body) -> None:
        content = flat(body)
        if content.startswith(b'{"error": '):
            found = json.loads(content)
            self.session.problem(400, "bad-request", str(found.get("text") or found["error"]))
        else:
            super().final(request, body)


class QueryEndpoint(InspectEndpoint):
    """One built-in service that takes a JSON object: the query parameters, with numbers converted. A service may have any name."""

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        query: dict[str, object] = {}
        for name, value in head.parameters().items():
            number = value.isascii() and value.isdigit() and len(value) < 16 and name not in NAMES
            query[name] = int(value) if number else value
        session.ask(self.service, join([dump(query)]) if query else b"", QueryExchange(session))


class NamedEndpoint(InspectEndpoint):
    """One built-in service that takes the rest of the path: ``/v1/schema/{service}``. Without one, another may answer: ``/v1/services`` is
    the list, ``/v1/services/{name}`` one of them."""

    def __init__(self, service: bytes, whole: bytes = b"") -> None:
        self.service = service
        self.whole = whole or service

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        pass

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        name = "/".join(path).encode()
        named = bool(name) and not name.startswith(b"{")
        session.ask(self.service if named else self.whole, join([name]) if named else b"", InspectExchange(session))
