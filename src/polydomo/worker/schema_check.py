"""Checks the arguments of a call against a JSON Schema that was written by hand: ``worker.add(name, function, schema=...)``.

The keywords of ``KEYWORDS`` are checked, as JSON Schema 2020-12 defines them; those of ``ANNOTATIONS`` only describe. A schema with any
other keyword is rejected when the service is added, so that a worker never ignores a part of its schema.
"""

import contextlib
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Generator
from fractions import Fraction
from typing import Any

import msgspec

from polydomo.errors import CallFailed, SettingError
from polydomo.limits import SHOWN_VALUE
from polydomo.model.jobs.messages import INVALID_ARGUMENTS
from polydomo.model.service_schema import TEXT_ENCODING, read_schema
from polydomo.worker.batches import BatchFunction, with_each_read
from polydomo.worker.call import Call

Row = dict[str, Any]

TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value % 1 == 0,
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

# What the value of a keyword must be.
SCHEMA, SCHEMAS, NAMED = "a schema", "a list of schemas", "an object of schemas"
COUNT, NUMBER, DIVISOR, FLAG = "an integer of 0 or more", "a number", "a number above 0", "true or false"
NAMES, VALUES, ANY, PATTERN = "a list of strings", "a list", "a value", "a regular expression"
TYPE, REFERENCE = f"one of {', '.join(TYPES)}, or a list of them", "a part of this schema, such as #/$defs/point"

KEYWORDS = {
    "$ref": REFERENCE,
    "type": TYPE, "enum": VALUES, "const": ANY,
    "properties": NAMED, "required": NAMES, "additionalProperties": SCHEMA, "patternProperties": NAMED, "propertyNames": SCHEMA,
    "minProperties": COUNT, "maxProperties": COUNT,
    "items": SCHEMA, "prefixItems": SCHEMAS, "minItems": COUNT, "maxItems": COUNT, "uniqueItems": FLAG,
    "minLength": COUNT, "maxLength": COUNT, "pattern": PATTERN,
    "minimum": NUMBER, "maximum": NUMBER, "exclusiveMinimum": NUMBER, "exclusiveMaximum": NUMBER, "multipleOf": DIVISOR,
    "allOf": SCHEMAS, "anyOf": SCHEMAS, "oneOf": SCHEMAS, "not": SCHEMA,
}  # fmt: skip
ANNOTATIONS = frozenset(
    "$schema $id $comment title description default examples deprecated readOnly writeOnly format contentEncoding "
    "contentMediaType discriminator".split()
)
DEFINITIONS = ("$defs", "definitions")


def checker(name: str, schema: Row) -> Callable[[Call], None] | None:
    """Checks the arguments of a call; None if its request is text. Raises SettingError if the schema cannot be checked."""
    try:
        text = json.dumps(schema)  # as it is sent to the broker
        found = read_schema(json.loads(text), len(text))
    except (ValueError, TypeError) as error:
        raise SettingError(f"schema: of {name!r}: {error}") from None
    if found.encoding == TEXT_ENCODING:
        return None  # not arguments
    return ArgumentCheck(name, found.input).check


def checked_batches(name: str, function: BatchFunction, schema: Row) -> BatchFunction:
    """The same for a function that gets batches: a call with wrong arguments fails alone."""
    check = checker(name, schema)
    if check is None:
        return function

    def read(call: Call) -> Call:
        check(call)
        return call

    def run(calls: list[Call]) -> Any:
        return with_each_read(calls, read, function)

    async def run_on_loop(calls: list[Call]) -> list[Any]:
        value = run(calls)
        found: list[Any] = await value if inspect.isawaitable(value) else value
        return found

    target = function if inspect.isroutine(function) else type(function).__call__
    return run_on_loop if inspect.iscoroutinefunction(target) else run


def checked(name: str, function: Callable[[Call], Any], schema: Row) -> Callable[[Call], Any]:
    """The function, of the same kind, with its arguments checked before it runs. Raises SettingError if the schema cannot be checked."""
    check = checker(name, schema)
    if check is None:
        return function
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isasyncgenfunction(target):

        async def stream_on_loop(call: Call) -> AsyncIterator[object]:
            check(call)
            async with contextlib.aclosing(function(call)) as parts:
                async for part in parts:
                    yield part

        return stream_on_loop
    if inspect.iscoroutinefunction(target):

        async def run_on_loop(call: Call) -> object:
            check(call)
            return await function(call)

        return run_on_loop
    if inspect.isgeneratorfunction(target):

        def stream(call: Call) -> Generator[object, None, object]:
            check(call)
            return (yield from function(call))

        return stream

    def run(call: Call) -> object:
        check(call)
        return function(call)

    return run


class ArgumentCheck:
    def __init__(self, name: str, schema: Row) -> None:
        self.name = name
        self.schema = schema
        try:
            self._review(schema, "input")
        except RecursionError:
            raise SettingError(f"schema: of {name!r} is nested too deep") from None

    def check(self, call: Call) -> None:
        """Raises CallFailed if the arguments do not match."""
        try:
            value = msgspec.json.decode(call.body or b"{}")
        except (msgspec.DecodeError, RecursionError):
            raise CallFailed(INVALID_ARGUMENTS, f"{self.name}: the request is not a JSON object of arguments") from None
        try:
            problem = self.problem(value, self.schema, "the request")
        except RecursionError:
            problem = "the request is nested too deep"
        if problem:
            raise CallFailed(INVALID_ARGUMENTS, f"{self.name}: {problem}")

    # --- the schema ---------------------------------------------------------------------------------------------------------------

    def _review(self, schema: object, place: str) -> None:
        """Raises SettingError if a part of the schema could not be checked."""
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise SettingError(f"schema: {place} of {self.name!r} must be {SCHEMA}, not {shown(schema)}")
        for keyword, operand in schema.items():
            here = f"{place}.{keyword}"
            if keyword in DEFINITIONS:
                self._review_all(operand, NAMED, here)
            elif keyword in KEYWORDS:
                wanted = KEYWORDS[keyword]
                if not self._is(wanted, operand):
                    raise SettingError(f"schema: {here} of {self.name!r} must be {wanted}, not {shown(operand)}")
                if keyword == "patternProperties" and not all(_compiles(pattern) for pattern in operand):
                    raise SettingError(f"schema: {here} of {self.name!r} has a name that is not {PATTERN}")
                self._review_all(operand, wanted, here)
            elif keyword not in ANNOTATIONS and not keyword.startswith("x-"):
                raise SettingError(
                    f"schema: {place} of {self.name!r} has the keyword {keyword!r}, which the worker cannot check; "
                    f"it checks {', '.join(KEYWORDS)}"
                )

    def _review_all(self, operand: Any, wanted: str, here: str) -> None:
        if wanted == SCHEMA:
            self._review(operand, here)
        elif wanted == SCHEMAS:
            for number, inner in enumerate(operand):
                self._review(inner, f"{here}[{number}]")
        elif wanted == NAMED:
            for name, inner in operand.items():
                self._review(inner, f"{here}.{name}")

    def _is(self, wanted: str, operand: Any) -> bool:
        if wanted == REFERENCE:
            return isinstance(operand, str) and self._target(operand) is not None
        if wanted == TYPE:
            names = operand if isinstance(operand, list) else [operand]
            return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)
        if wanted in (SCHEMA, ANY):
            return True
        if wanted == NAMED:
            return isinstance(operand, dict)
        if wanted == NAMES:
            return isinstance(operand, list) and all(isinstance(name, str) for name in operand)
        if wanted in (SCHEMAS, VALUES):
            return isinstance(operand, list) and (wanted == VALUES or bool(operand))
        if wanted == PATTERN:
            return isinstance(operand, str) and _compiles(operand)
        if wanted == FLAG:
            return isinstance(operand, bool)
        if wanted == COUNT:
            return TYPES["integer"](operand) and operand >= 0
        return _is_number(operand) and (wanted == NUMBER or operand > 0)

    def _target(self, reference: str) -> Any:
        """The part of the schema that ``$ref`` names; None if there is none."""
        found: Any = self.schema
        if reference != "#" and not reference.startswith("#/"):
            return None
        for part in reference.split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found if isinstance(found, dict | bool) else None

    # --- a value ------------------------------------------------------------------------------------------------------------------

    def problem(self, value: Any, schema: Any, at: str) -> str:
        """Why the value does not match the schema; "" if it does. The text shows no value of the request, because workers log it."""
        if isinstance(schema, bool):
            return "" if schema else f"{at} is not allowed"
        if "$ref" in schema and (found := self.problem(value, self._target(schema["$ref"]), at)):
            return found
        if "type" in schema:
            names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            if not any(TYPES[name](value) for name in names):
                return f"{at} must be of type {' or '.join(names)}, not {_type_of(value)}"
        if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
            return f"{at} must be one of {', '.join(map(shown, schema['enum']))}"
        if "const" in schema and not _same(value, schema["const"]):
            return f"{at} must be {shown(schema['const'])}"
        if isinstance(value, dict):
            found = self._object_problem(value, schema, at)
        elif isinstance(value, list):
            found = self._array_problem(value, schema, at)
        elif isinstance(value, str):
            found = _string_problem(value, schema, at)
        else:
            found = _number_problem(value, schema, at) if _is_number(value) else ""
        return found or self._combined_problem(value, schema, at)

    def _object_problem(self, value: Row, schema: Row, at: str) -> str:
        missing = [name for name in schema.get("required", []) if name not in value]
        if missing:
            return f"{at} has no {', '.join(map(repr, missing))}, which it must have"
        if found := _size_problem(len(value), schema, "Properties", f"{at} must have", "properties"):
            return found
        properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in value.items():
            here = name if at == "the request" else f"{at}.{name}"
            inner = [properties[name]] if name in properties else []
            inner += [one for pattern, one in patterns.items() if re.search(pattern, name)]
            if not inner and "additionalProperties" in schema:
                if schema["additionalProperties"] is False:
                    return f"{at} has {name[:SHOWN_VALUE]!r}, which it must not have"
                inner = [schema["additionalProperties"]]
            for one in inner:
                if found := self.problem(item, one, here):
                    return found
            if "propertyNames" in schema and (
                found := self.problem(name, schema["propertyNames"], f"the name {name!r}")
            ):
                return found
        return ""

    def _array_problem(self, value: list[Any], schema: Row, at: str) -> str:
        if found := _size_problem(len(value), schema, "Items", f"{at} must have", "items"):
            return found
        first = schema.get("prefixItems", [])
        for number, item in enumerate(value):
            inner = first[number] if number < len(first) else schema.get("items", True)
            if found := self.problem(item, inner, f"{at}[{number}]"):
                return found
        if schema.get("uniqueItems") and len({_form(item) for item in value}) < len(value):
            return f"{at} must not have an item twice"
        return ""

    def _combined_problem(self, value: Any, schema: Row, at: str) -> str:
        for one in schema.get("allOf", []):
            if found := self.problem(value, one, at):
                return found
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                problems = [self.problem(value, one, at) for one in schema[keyword]]
                if all(problems):
                    return f"{at} matches none of the alternatives: {'; '.join(dict.fromkeys(problems))}"
                if keyword == "oneOf" and problems.count("") > 1:
                    return f"{at} matches {problems.count('')} alternatives instead of one"
        if "not" in schema and not self.problem(value, schema["not"], at):
            return f"{at} has a value that the schema excludes"
        return ""


def _string_problem(value: str, schema: Row, at: str) -> str:
    if found := _size_problem(len(value), schema, "Length", f"{at} must have", "characters"):
        return found
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return f"{at} must match {schema['pattern']!r}"
    return ""


def _number_problem(value: Any, schema: Row, at: str) -> str:
    for keyword, holds, text in (
        ("minimum", lambda limit: value >= limit, "at least"),
        ("maximum", lambda limit: value <= limit, "at most"),
        ("exclusiveMinimum", lambda limit: value > limit, "more than"),
        ("exclusiveMaximum", lambda limit: value < limit, "less than"),
        ("multipleOf", lambda limit: (Fraction(str(value)) / Fraction(str(limit))).denominator == 1, "a multiple of"),
    ):
        if keyword in schema and not holds(schema[keyword]):
            return f"{at} must be {text} {shown(schema[keyword])}"
    return ""


def _size_problem(size: int, schema: Row, what: str, says: str, unit: str) -> str:
    """``minItems`` and ``maxItems``, and those of the other types."""
    if size < schema.get(f"min{what}", 0):
        return f"{says} at least {schema[f'min{what}']} {unit}, not {size}"
    if size > schema.get(f"max{what}", size):
        return f"{says} at most {schema[f'max{what}']} {unit}, not {size}"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _type_of(value: object) -> str:
    return next(name for name, matches in TYPES.items() if matches(value))


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _same(one: object, other: object) -> bool:
    return _form(one) == _form(other)


def _form(value: object) -> object:
    """Equal and hashable for values that JSON Schema calls equal: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((key, _form(item)) for key, item in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_form, value))
    return isinstance(value, bool), value


def shown(value: object) -> str:
    """As JSON, shortened."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_VALUE else text[:SHOWN_VALUE] + "..."
