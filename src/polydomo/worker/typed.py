"""Typed services: a function's annotations become JSON Schemas, and its arguments are checked before it runs.

```python
@worker.service("add")
def add(a: int, b: int = 1) -> int:
    '''Adds two numbers.'''
    return a + b
```

The request is a JSON object of arguments by name, the reply is the result as JSON. Annotations may be builtins, ``Annotated`` with
``msgspec.Meta``, dataclasses, TypedDicts, msgspec structs, enums, dates, and pydantic models if pydantic is installed. A parameter
annotated with ``Call`` gets the call itself. A function with one parameter without an annotation (or with ``Call``) is not typed: it gets
the frames unchanged.

A function that gets batches has the same annotations in lists, ``def embed(text: list[str]) -> list[Vector]``. Callers see the service
of one text.
"""

import base64
import inspect
import sys
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from polydomo.errors import CallFailed, SettingError
from polydomo.model.jobs.messages import INVALID_ARGUMENTS
from polydomo.worker.batches import BatchFunction, columns, with_each_read
from polydomo.worker.call import Call, Forward, Then

STREAMS = (AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator)

Row = dict[str, Any]


def is_typed(function: Callable[..., Any], batched: bool = False) -> bool:
    """Whether the function takes arguments by name instead of one ``Call``; ``batched``: instead of one list of calls."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        return False
    if len(parameters) == 1:
        try:
            hints = get_type_hints(target, include_extras=True)
        except Exception:
            return False
        annotation = hints.get(parameters[0].name, Call)
        if batched and get_origin(annotation) is list:
            annotation = get_args(annotation)[0]
        return not _is_call(annotation) and annotation not in (Any, list)
    return bool(parameters) and all(parameter.annotation is not parameter.empty for parameter in parameters)


def _is_call(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Call)


def _of_one(name: str, place: str, annotation: object) -> Any:
    """The annotation of one call, from the list of a function that gets batches; the result may be an exception, too."""
    if get_origin(annotation) is not list:
        raise SettingError(
            f"batch: {place} of {name!r} must be annotated with a list, one item for each call of the batch"
        )
    item = get_args(annotation)[0]
    if get_origin(item) not in (Union, UnionType):
        return item
    kinds = [kind for kind in get_args(item) if not (isinstance(kind, type) and issubclass(kind, Exception))]
    return reduce(or_, kinds) if kinds else Any


class Typed:
    """A typed function: its schema, and a function of one ``Call`` that checks the arguments and encodes the result.

    ``batched``: the function gets lists of arguments, and the schema is that of one call."""

    def __init__(self, name: str, function: Callable[..., Any], batched: bool = False) -> None:
        self.name = name
        self.function = function
        target = function if inspect.isroutine(function) else type(function).__call__
        try:
            hints = get_type_hints(target, include_extras=True)
        except NameError as error:
            raise SettingError(f"service: an annotation of {name!r} cannot be resolved: {error}") from None
        self.call_parameters: list[str] = []
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            annotation = hints.get(parameter.name, parameter.annotation)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise SettingError(
                    f"service: {name!r} has the positional-only parameter {parameter.name!r}, but arguments are passed by name"
                )
            if batched:
                if parameter.default is not parameter.empty:
                    raise SettingError(
                        f"batch: the parameter {parameter.name!r} of {name!r} has a default; leave it out"
                    )
                annotation = _of_one(name, f"the parameter {parameter.name!r}", annotation)
            if _is_call(annotation):
                self.call_parameters.append(parameter.name)
            elif parameter.default is parameter.empty:
                fields.append((parameter.name, annotation))
            else:
                fields.append((parameter.name, annotation, _default(parameter.default)))
        self.arguments = msgspec.defstruct(_identifier(name), fields, forbid_unknown_fields=True, kw_only=True)
        result = hints.get("return", Any)
        if batched and result is not Any:
            result = _of_one(name, "the result", result)
        self.streams = inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)
        if self.streams and get_origin(result) in STREAMS:
            result = get_args(result)[0]
        self.encoding = "bytes" if result is bytes else "json"
        try:
            self.input = _root(schema_of(self.arguments))
            self.output = {} if self.encoding == "bytes" or result is Any else _root(schema_of(result))
        except TypeError as error:
            raise SettingError(f"service: the annotations of {name!r} have no JSON Schema: {error}") from None
        self.input.pop("title", None)

    def schema(self) -> Row:
        return {
            "description": inspect.getdoc(self.function) or "",
            "input": self.input,
            "output": self.output,
            "encoding": self.encoding,
            "streams": self.streams,
        }

    def read(self, call: Call) -> Row:
        """The arguments of a call. Raises CallFailed."""
        try:
            value = msgspec.json.decode(call.body or b"{}") if len(call) < 2 else None
        except (msgspec.DecodeError, RecursionError):
            value = None
        try:
            if call.job and not isinstance(value, dict):
                value = self._by_position(call.frames)
            elif value is None:
                raise CallFailed(INVALID_ARGUMENTS, f"{self.name}: the request is not a JSON object of arguments")
            arguments = self._convert(value, call)
        except msgspec.ValidationError as error:
            raise CallFailed(INVALID_ARGUMENTS, f"{self.name}: {error}") from None
        found: Row = {name: getattr(arguments, name) for name in self.arguments.__struct_fields__}
        for name in self.call_parameters:
            found[name] = call
        return found

    def _convert(self, value: Any, call: Call) -> Any:
        try:
            return msgspec.convert(value, self.arguments, dec_hook=_decode_other)
        except msgspec.ValidationError:
            fields = self.arguments.__struct_fields__
            if not call.job or not isinstance(value, dict) or not fields or set(value) & set(fields):
                raise
            # The object is not one of arguments: it may be the first argument of a node of a flow.
            return msgspec.convert({fields[0]: value}, self.arguments, dec_hook=_decode_other)

    def _by_position(self, frames: list[bytes]) -> Row:
        """The arguments of a node of a flow, which come as frames: one for each parameter, in order. If there is one parameter that is a
        list, it takes the frames that are left. Raises CallFailed."""
        fields = self.arguments.__struct_fields__
        properties: Row = self.input.get("properties", {})
        lists = [name for name in fields if properties.get(name, {}).get("type") == "array"]
        extra = len(frames) - len(fields)
        if extra > 0 and len(lists) != 1:
            raise CallFailed(
                INVALID_ARGUMENTS,
                f"{self.name}: {len(frames)} arguments for {len(fields)} parameters; pass arguments by name, as flow.call(..., a=1)",
            )
        found: Row = {}
        at = 0
        for name in fields:
            if at >= len(frames):
                break
            if name in lists and len(lists) == 1:
                count = 1 + max(0, extra)
                items = [_value_of(frame, {}) for frame in frames[at : at + count]]
                found[name] = items[0] if count == 1 and isinstance(items[0], list) else items
            else:
                count = 1
                found[name] = _value_of(frames[at], properties.get(name, {}))
            at += count
        return found

    def write(self, value: object) -> bytes | Forward | Then:
        if isinstance(value, Forward | Then):
            return value
        if isinstance(value, bytes | bytearray | memoryview) and self.encoding == "bytes":
            return bytes(value)
        return msgspec.json.encode(value, enc_hook=_encode_other)

    def of_batches(self) -> BatchFunction:
        """A function that takes a list of calls, of the same kind as the typed function."""
        function, read, write = self.function, self.read, self.write
        names = [*self.arguments.__struct_fields__, *self.call_parameters]
        target = function if inspect.isroutine(function) else type(function).__call__

        def run(calls: list[Call]) -> Any:
            return with_each_read(calls, read, lambda rows: function(**columns(rows, names)), write)

        async def run_on_loop(calls: list[Call]) -> list[Any]:
            value = run(calls)
            found: list[Any] = await value if inspect.isawaitable(value) else value
            return found

        return run_on_loop if inspect.iscoroutinefunction(target) else run

    def plain(self) -> Callable[[Call], Any]:
        """A function that takes one Call, of the same kind as the typed function."""
        function, read, write = self.function, self.read, self.write
        target = function if inspect.isroutine(function) else type(function).__call__
        if inspect.isasyncgenfunction(target):

            async def stream_on_loop(call: Call) -> AsyncIterator[bytes | Forward | Then]:
                async for part in function(**read(call)):
                    yield write(part)

            return stream_on_loop
        if inspect.iscoroutinefunction(target):

            async def run_on_loop(call: Call) -> bytes | Forward | Then:
                return write(await function(**read(call)))

            return run_on_loop
        if inspect.isgeneratorfunction(target):

            def stream(call: Call) -> Generator[bytes | Forward | Then, None, bytes | Forward | Then | None]:
                last = yield from _written(function(**read(call)), write)
                return write(last) if last is not None else None

            return stream

        def run(call: Call) -> object:
            value = function(**read(call))
            return _awaited(value, write) if inspect.isawaitable(value) else write(value)

        return run


def _written(
    parts: Generator[Any, None, Any], write: Callable[[object], bytes | Forward | Then]
) -> Generator[bytes | Forward | Then, None, Any]:
    """Encodes the parts of a generator; returns its return value."""
    try:
        while True:
            try:
                part = next(parts)
            except StopIteration as stop:
                return stop.value
            yield write(part)
    finally:
        parts.close()


async def _awaited(
    value: Awaitable[object], write: Callable[[object], bytes | Forward | Then]
) -> bytes | Forward | Then:
    return write(await value)


def _value_of(frame: bytes, schema: Row) -> object:
    """The JSON value in a frame, or its text; bytes for a parameter of bytes."""
    if schema.get("contentEncoding") == "base64":
        return base64.b64encode(frame).decode()
    try:
        value = msgspec.json.decode(frame)
        if isinstance(value, str) or schema.get("type") != "string":
            return value
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    return frame.decode("utf-8", "replace")


def _default(value: object) -> object:
    if isinstance(value, list | dict | set) and value:
        return msgspec.field(default_factory=lambda: type(value)(value))
    return value


def _identifier(name: str) -> str:
    text = "".join(char if char.isalnum() else "_" for char in name)
    return text if text.isidentifier() else f"_{text}"


# --- schemas -----------------------------------------------------------------------------------------------------------


def schema_of(annotation: Any) -> Row:
    """The JSON Schema of an annotation. Raises TypeError if there is none."""
    schema: Row = msgspec.json.schema(annotation, schema_hook=_schema_of_other)
    return schema


def _root(schema: Row) -> Row:
    """Resolves the outermost reference of a schema, because MCP needs "type": "object" at the top."""
    definitions = schema.get("$defs", {})
    found = dict(schema)
    reference = schema.get("$ref", "")
    name = reference.rpartition("/")[2]
    if reference and name in definitions:
        found = dict(definitions[name])
    _hoist(found, definitions)
    rest = {key: value for key, value in definitions.items() if key != name or _refers(found, definitions, name)}
    if rest:
        found["$defs"] = rest
    return found


def _refers(schema: Row, definitions: Row, name: str) -> bool:
    """Whether the schema still refers to this definition, as in a recursive type."""
    mark = f"'#/$defs/{name}'"
    others = {key: value for key, value in definitions.items() if key != name}
    return mark in repr(schema) or mark in repr(others) or mark in repr(definitions.get(name))


def _hoist(value: object, definitions: Row) -> None:
    """Moves the definitions that pydantic puts into each model's schema to the top, where the references look for them."""
    if isinstance(value, dict):
        for key, item in list(value.items()):
            if key == "$defs" and item is not definitions:
                definitions.update(item)
                for inner in list(item.values()):
                    _hoist(inner, definitions)
                del value[key]
            else:
                _hoist(item, definitions)
    elif isinstance(value, list):
        for item in value:
            _hoist(item, definitions)


def _is_model(annotation: object) -> bool:
    """Whether it is a pydantic model. Does not import pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def _schema_of_other(annotation: Any) -> Row:
    if _is_model(annotation):
        schema: Row = annotation.model_json_schema()
        return schema
    raise NotImplementedError


def _decode_other(annotation: Any, value: Any) -> Any:
    if _is_model(annotation):
        try:
            return annotation.model_validate(value)
        except ValueError as error:
            raise ValueError(_first_line(error)) from None
    raise NotImplementedError


def _encode_other(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"the result contains a {type(value).__name__}, which cannot be encoded as JSON")


def _first_line(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    if callable(errors):
        return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in errors())
    return str(error)
