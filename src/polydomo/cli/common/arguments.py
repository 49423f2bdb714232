"""``polydomo call add a=1 b=2``: named arguments for a service that has a schema."""

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError, SettingError

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

POLL = 0.1  # seconds between two questions whether a worker has registered
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def named(words: list[str]) -> dict[str, str] | None:
    """Parses ``name=value`` arguments into a dict; returns None unless all of them have that form.

    >>> named(["a=1", "b=x=y"]), named(["a=1", "b"]), named([])
    ({'a': '1', 'b': 'x=y'}, None, None)
    """
    matches = [_PAIR.fullmatch(word) for word in words]
    if not words or not all(matches):
        return None
    return {match[1]: match[2] for match in matches if match is not None}


async def frames_of(client: "AsyncClient", service: bytes, words: list[str], wait: float = 0.0) -> list[bytes] | None:
    """The request body for a typed service. None if the service has no schema: then the arguments are sent as frames, unchanged.
    If no worker offers the service yet, waits for one up to ``wait`` seconds."""
    arguments = named(words)
    if arguments is None:
        return None
    deadline = asyncio.get_running_loop().time() + wait
    try:
        while True:
            schema = (await client.call("polydomo.schema", service)).json()
            if schema or asyncio.get_running_loop().time() > deadline or await client.offered(service):
                break
            await asyncio.sleep(POLL)
    except (PolydomoError, ValueError):
        return None  # the broker does not know schemas
    if not isinstance(schema, dict) or schema.get("encoding") not in ("json", "bytes"):
        return None
    return [encode(arguments, schema["input"])]


def encode(arguments: dict[str, str], schema: dict[str, Any]) -> bytes:
    """Encodes the arguments as a JSON object. Raises SettingError.

    >>> encode({"a": "1", "b": "1"}, {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}})
    b'{"a": 1, "b": "1"}'
    """
    properties = schema.get("properties", {})
    unknown = [name for name in arguments if name not in properties]
    if unknown and schema.get("additionalProperties") is False:
        raise SettingError(f"{unknown[0]}: unknown argument; the arguments are {', '.join(properties)}")
    missing = [name for name in schema.get("required", []) if name not in arguments]
    if missing:
        raise SettingError(f"{', '.join(missing)}: missing; add {' '.join(f'{name}=...' for name in missing)}")
    return json.dumps({name: value(name, text, properties.get(name, {})) for name, text in arguments.items()}).encode()


def value(name: str, text: str, schema: dict[str, Any]) -> Any:
    """Converts an argument to the type in its schema: a string is used unchanged, any other type is parsed as JSON."""
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return text
    try:
        found = json.loads(text)
    except ValueError:
        if "string" in kinds or not kinds:
            return text
        raise SettingError(f"{name}: must be {' or '.join(sorted(kinds))}, written as JSON, not {text!r}") from None
    return text if "string" in kinds and isinstance(found, dict | list) and not kinds & {"object", "array"} else found


def _kinds(schema: dict[str, Any]) -> set[str]:
    """The JSON types that a schema allows; empty if it does not say."""
    kind = schema.get("type")
    found = {kind} if isinstance(kind, str) else set(kind) if isinstance(kind, list) else set()
    for part in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        found |= _kinds(part)
    if "enum" in schema and all(isinstance(item, str) for item in schema["enum"]):
        found.add("string")
    return found
