"""``GET /openapi.json``: the typed services as an OpenAPI 3.1 document."""

import json
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from polydomo import __version__
from polydomo.model.service_schema import JSON_ENCODING, TEXT_ENCODING, ServiceSchema
from polydomo.web.content import JSON, OCTETS, PROBLEM, TEXT
from polydomo.web.flows import PATHS
from polydomo.web.schema_page import SchemaPage
from polydomo.web.session import Endpoint, HttpSession
from polydomo.wire.http.head import RequestHead

Row = dict[str, object]

PROBLEM_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "service": {"type": "string"},
        "request": {"type": "string"},
        "code": {"type": "string"},
    },
}

FAILURES: Final = {
    "404": "No worker offers the service.",
    "422": "The arguments do not match the schema.",
    "502": "The worker failed.",
    "503": "A limit is reached; Retry-After says when to try again.",
    "504": "The deadline passed.",
}


class OpenApiEndpoint(Endpoint):
    def __init__(self, schemas: "Callable[[HttpSession], dict[str, ServiceSchema]]") -> None:
        self.schemas = schemas

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        page = SchemaPage(session, self.schemas(session), BEGINNING, path_text, ENDING)
        page.entries.extend(FIXED)
        session.http.run(page)


INFO: Final = {
    "title": "Services of a polydomo broker",
    "version": __version__,
    "description": "Every service that describes its arguments. See docs/http.md for headers, streams and failures.",
}
BEGINNING: Final = '{"openapi":"3.1.0","info":' + json.dumps(INFO) + ',"paths":{'
ENDING: Final = '},"components":{"schemas":{"Problem":' + json.dumps(PROBLEM_SCHEMA) + "}}}"

FIXED: Final = [f"{json.dumps(path)}:{json.dumps(entry)}" for path, entry in PATHS.items()]


def path_text(name: str, schema: ServiceSchema) -> str:
    """The entry of one service in the document."""
    if not schema.described:
        schema.described = json.dumps({"post": operation(name, schema)}, separators=(",", ":"))
    path = "/v1/call/" + quote(name, safe="")
    return f"{json.dumps(path)}:{schema.described}"


def operation(name: str, schema: ServiceSchema) -> Row:
    first = schema.description.strip().partition("\n")[0]
    return {
        "operationId": name,
        "summary": first or name,
        "description": schema.description,
        "parameters": [
            {
                "name": "Polydomo-Timeout",
                "in": "header",
                "description": "Seconds after which the call ends with 504.",
                "schema": {"type": "string"},
            }
        ],
        "requestBody": {"required": True, "content": _request(name, schema)},
        "responses": {
            "200": {"description": "The final reply.", "content": _response(name, schema)},
            **{
                status: {
                    "description": text,
                    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
                for status, text in FAILURES.items()
            },
        },
    }


def _request(name: str, schema: ServiceSchema) -> Row:
    if schema.encoding == TEXT_ENCODING:
        return {TEXT: {"schema": {"type": "string"}}}
    return {JSON: {"schema": relocated(schema.input, f"{_at(name)}/requestBody/content/application~1json/schema")}}


def _response(name: str, schema: ServiceSchema) -> Row:
    if schema.encoding != JSON_ENCODING:
        return {TEXT if schema.encoding == TEXT_ENCODING else OCTETS: {"schema": {"type": "string"}}}
    where = f"{_at(name)}/responses/200/content/application~1json/schema"
    return {JSON: {"schema": relocated(schema.output, where)}}


def _at(name: str) -> str:
    path = f"/v1/call/{quote(name, safe='')}".replace("~", "~0").replace("/", "~1")
    return f"#/paths/{quote(path, safe='')}/post"


def relocated(value: object, where: str) -> object:
    """A copy of the schema whose references to its own ``$defs`` point to its place in the document."""
    if isinstance(value, dict):
        found: Row = {}
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str) and item.startswith("#/"):
                found[key] = where + item[1:]
            else:
                found[key] = relocated(item, where)
        return found
    if isinstance(value, list):
        return [relocated(item, where) for item in value]
    return value
