"""``/mcp``: the Model Context Protocol over streamable HTTP. Every service with a schema is a tool; reports of progress and
partial replies are progress notifications.

The server keeps no state between requests, so there are no MCP sessions. Both ways to begin are served: ``initialize`` (revisions up to
2025-11-25) and ``server/discover`` (2026-07-28).
"""

import json
from collections.abc import Callable
from typing import Final

from polydomo import __version__
from polydomo.limits import MAX_CONTROL, MAX_PROGRESS_TEXT, MAX_TOOL_RESULT
from polydomo.model.records import Request
from polydomo.model.service_schema import JSON_ENCODING, TEXT_ENCODING, ServiceSchema
from polydomo.web.content import EVENTS, JSON, dump, weight_of, weights
from polydomo.web.schema_page import SchemaPage
from polydomo.web.session import Endpoint, Exchange, HttpSession
from polydomo.wire.frames import Body, flat, join
from polydomo.wire.http.head import HttpError, RequestHead

HANDSHAKE_VERSIONS: Final = ("2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS: Final = ("2026-07-28",)

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

INSTRUCTIONS: Final = "Each tool is a service of a polydomo broker, served by whichever worker is free."

Row = dict[str, object]


class McpEndpoint(Endpoint):
    methods: "tuple[str, ...]" = ("POST", "DELETE")

    def __init__(
        self,
        schemas: "Callable[[HttpSession], dict[str, ServiceSchema]]",
        find: "Callable[[HttpSession, str], ServiceSchema | None]",
    ) -> None:
        self.schemas = schemas  # those of the services that a session may call
        self.find = find  # one of them

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if path not in ([], [""]):
            raise HttpError(404, "MCP is served at /mcp", close=False)
        version = head.headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_VERSIONS + STATELESS_VERSIONS:
            known = ", ".join(HANDSHAKE_VERSIONS + STATELESS_VERSIONS)
            raise HttpError(400, f"MCP revision {version[:32]!r} is not supported; supported are {known}", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        if head.method == "DELETE":
            session.respond(204, b"")  # there are no sessions to end
            return
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            _answer(session, error(None, PARSE_ERROR, "the body is not JSON"), 400)
            return
        if (
            not isinstance(message, dict)
            or message.get("jsonrpc") != "2.0"
            or not isinstance(message.get("method"), str)
        ):
            if isinstance(message, dict) and "method" not in message and "id" in message:
                session.respond(202, b"")  # a response; this server sends no requests
            else:
                _answer(session, error(None, INVALID_REQUEST, "not a JSON-RPC 2.0 request"), 400)
            return
        if "id" not in message:
            session.respond(202, b"")  # a notification
            return
        self._request(session, head, message)

    def _request(self, session: HttpSession, head: RequestHead, message: Row) -> None:
        key = message["id"]
        method = message["method"]
        params = message.get("params") or {}
        if isinstance(key, bool) or not isinstance(key, str | int) or not isinstance(params, dict):
            _answer(
                session, error(None, INVALID_REQUEST, "id must be a string or an integer, and params an object"), 400
            )
        elif method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
            _answer(session, result(key, {"protocolVersion": version, **_self()}))
        elif method == "server/discover":
            _answer(session, result(key, {"supportedVersions": list(STATELESS_VERSIONS), **_self(), **_cacheable()}))
        elif method == "ping":
            _answer(session, result(key, {}))
        elif method == "tools/list":
            beginning, _, ending = (
                dump(result(key, {"tools": [], **_cacheable()})).decode("utf-8", "surrogatepass").partition('"tools":[')
            )
            session.http.run(SchemaPage(session, self.schemas(session), f'{beginning}"tools":[', tool_text, ending))
        elif method == "tools/call":
            self._call(session, head, key, params)
        else:
            _answer(session, error(key, METHOD_NOT_FOUND, f"unknown method {str(method)[:64]!r}"), 200)

    def _call(self, session: HttpSession, head: RequestHead, key: object, params: Row) -> None:
        name = params.get("name")
        schema = self.find(session, name) if isinstance(name, str) else None
        arguments = params.get("arguments") or {}
        if not isinstance(name, str) or schema is None or not isinstance(arguments, dict):
            _answer(session, error(key, INVALID_PARAMS, f"unknown tool {str(name)[:255]!r}"))
            return
        if schema.encoding == TEXT_ENCODING:
            text = arguments.get("body")
            if not isinstance(text, str):
                _answer(session, error(key, INVALID_PARAMS, "the tool takes one argument, body, a string"))
                return
            body = join([text.encode("utf-8", "replace")])
        else:
            body = join([dump(arguments)])
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        events = weight_of(weights(head.headers.get("accept", "*/*")), EVENTS) > 0
        session.ask(name.encode(), body, ToolCall(session, key, schema, token if events else None))


def _self() -> Row:
    return {
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "polydomo", "title": "polydomo broker", "version": __version__},
        "instructions": INSTRUCTIONS,
    }


def _cacheable() -> Row:
    return {"ttlMs": 0, "cacheScope": "private"}  # services come and go


def result(key: object, value: Row) -> Row:
    return {"jsonrpc": "2.0", "id": key, "result": {"resultType": "complete", **value}}


def error(key: object, code: int, text: str) -> Row:
    return {"jsonrpc": "2.0", "id": key, "error": {"code": code, "message": text}}


def _answer(session: HttpSession, message: Row, status: int = 200) -> None:
    session.reply_json(status, message)


def tool_text(name: str, schema: ServiceSchema) -> str:
    """A tool in the list of tools."""
    row = {"name": name, "description": schema.description or f"The service {name}."}
    output = ""
    if is_structured(schema):
        output = f', "outputSchema": {json.dumps(output_schema(schema.output))}'
    return f'{json.dumps(row)[:-1]}, "inputSchema": {schema.input_text}{output}}}'


def is_structured(schema: ServiceSchema) -> bool:
    """Whether its result is JSON that a schema describes."""
    return schema.encoding == JSON_ENCODING and schema.has_output and not schema.streams


def output_schema(schema: Row) -> Row:
    """MCP's structured content must be an object: any other value is wrapped in one."""
    if is_object(schema):
        return schema
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    wrapped: Row = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    if "$defs" in schema:
        wrapped["$defs"] = schema["$defs"]
    return wrapped


def is_object(schema: Row) -> bool:
    return schema.get("type") == "object"


class ToolCall(Exchange):
    """A tool call: one JSON response, or a stream of events if the client asked for progress and the worker sends partial replies."""

    def __init__(self, session: HttpSession, key: object, schema: ServiceSchema, token: object) -> None:
        self.session = session
        self.key = key
        self.schema = schema
        self.token = token if isinstance(token, str | int) and not isinstance(token, bool) else None
        self.takes_partials = self.token is not None
        self.parts: list[bytes] = []
        self.count = 0  # of partial replies
        self.size = 0  # of all of them
        self.share = 0.0  # as the worker reported it
        self.said = -1.0  # the progress of the last notification
        self.started = False

    def partial(self, request: Request, body: Body) -> None:
        content = flat(body)
        self._take(content)
        self._notify(content.decode("utf-8", "replace")[:MAX_PROGRESS_TEXT])

    def progress(self, request: Request, share: float, text: str) -> None:
        if self.token is not None:
            self.share = share
            self._notify(text)

    def _notify(self, text: str) -> None:
        """Partial replies are counted, and the share that the worker reported is added. MCP: "The progress value MUST increase with each
        notification", so a report that does not is left out."""
        value = self.count + self.share if self.share else self.count
        if value <= self.said:
            return
        self.said = value
        if not self.started:
            self.started = True
            self.session.start(200, EVENTS)
        progress: Row = {"progressToken": self.token, "progress": value, "message": text}
        if self.share:
            progress["total"] = self.count + 1
        self._event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})

    def _take(self, content: bytes) -> None:
        """Keeps a partial reply for the result, unless that is too large already."""
        self.count += 1
        self.size += len(content)
        if self.size <= MAX_TOOL_RESULT:
            self.parts.append(content)
            self.session.http.keep(len(content))
        else:
            self.parts = []

    def final(self, request: Request, body: Body) -> None:
        last = flat(body)
        if self.size + len(last) > MAX_TOOL_RESULT:
            self._fail(
                f"the result exceeds {MAX_TOOL_RESULT:,} bytes (MAX_TOOL_RESULT); call the service with POST /v1/call"
            )
        elif is_structured(self.schema) and len(last) > MAX_CONTROL:
            self._fail(
                f"the result has {len(last):,} bytes; structured content has at most {MAX_CONTROL:,} (MAX_CONTROL)"
            )
        else:
            self._finish(result(self.key, self._content(last)))

    def failure(self, request: Request, code: str, text: str) -> None:
        self._fail(f"{code}: {text}")

    def _fail(self, text: str) -> None:
        self._finish(result(self.key, {"content": [{"type": "text", "text": text}], "isError": True}))

    def _content(self, last: bytes) -> Row:
        pieces = [*self.parts, last] if last or not self.parts else self.parts
        content: list[Row] = [{"type": "text", "text": piece.decode("utf-8", "replace")} for piece in pieces]
        found: Row = {"content": content, "isError": False}
        if is_structured(self.schema):
            try:
                value = json.loads(last)
            except (ValueError, RecursionError):
                return {"content": content, "isError": True}  # the reply does not match the worker's schema
            found["structuredContent"] = value if is_object(self.schema.output) else {"result": value}
        return found

    def _finish(self, message: Row) -> None:
        if self.started:
            self._event(message)
            self.session.http.finish()
        else:
            self.session.reply(200, JSON, dump(message), b"Cache-Control: no-store\r\n")

    def _event(self, message: Row) -> None:
        self.session.http.write(b"event: message\ndata: " + dump(message) + b"\n\n")
