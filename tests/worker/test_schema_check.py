"""Schemas written by hand: every keyword against the reference implementation, and what the clients of a real broker get."""

import json
import logging
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from polydomo import Call, CallFailed, Client, SettingError, Worker, testing
from polydomo.worker.schema_check import KEYWORDS, ArgumentCheck, checked

WAIT = 60.0
NAME = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
SCHEMAS: list[dict[str, Any]] = [
    NAME,
    {"properties": {"a": {"type": ["string", "null"]}, "b": {"type": "number"}, "c": {"type": "boolean"}}},
    {"properties": {"a": {"enum": [1, "x", None, [1], {"b": 2}, True]}, "b": {"const": 1}, "c": {"const": [0, False]}}},
    {"additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2, "propertyNames": {"maxLength": 1}},
    {"patternProperties": {"^[ab]": {"type": "string"}}, "additionalProperties": False},
    {"additionalProperties": {"items": {"type": "integer"}, "minItems": 1, "maxItems": 2, "uniqueItems": True}},
    {"additionalProperties": {"prefixItems": [{"type": "string"}, True], "items": False}},
    {"additionalProperties": {"minLength": 1, "maxLength": 2, "pattern": "^[a-x]"}},
    {"additionalProperties": {"minimum": 0, "maximum": 2, "multipleOf": 0.5}},
    {"additionalProperties": {"exclusiveMinimum": 0, "exclusiveMaximum": 2, "multipleOf": 2}},
    {"additionalProperties": {"anyOf": [{"type": "integer"}, {"minLength": 1, "type": "string"}]}},
    {"additionalProperties": {"oneOf": [{"type": "integer"}, {"minimum": 1}]}},
    {"additionalProperties": {"allOf": [{"type": "integer"}, {"minimum": 1}], "not": {"const": 2}}},
    {
        "$defs": {"tree": {"properties": {"a": {"$ref": "#/$defs/tree"}, "b": {"type": "string"}}, "type": ["object", "null"]}},
        "$ref": "#/$defs/tree",
        "title": "annotations are ignored",
        "x-ours": 1,
    },
    {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/properties/c"}, "c": {"type": "array"}}, "required": ["b"]},
    {"properties": {"a": True, "b": False}, "required": ["a"]},
]  # fmt: skip


def value(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(9 if depth < 3 else 7)
    if kind < 7:
        return dice.choice([None, True, False, 0, 1, 2, -1, 1.0, 1.5, 0.3, 10**30, "", "x", "yy", "a" * 9, "ä"])
    if kind == 7:
        return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return arguments(dice, depth + 1)


def arguments(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    return {dice.choice(["a", "b", "c", "n", "ab", ""]): value(dice, depth) for _ in range(dice.randrange(4))}


def call(body: bytes) -> Call:
    from polydomo.protocols.ends import Delivery

    return Call(Delivery(b"x", [body]))


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_the_reference_implementation_agrees(number: int) -> None:
    schema = SCHEMAS[number]
    ours, reference = ArgumentCheck("x", schema), jsonschema.Draft202012Validator(schema)
    dice = random.Random(number)
    seen = set()
    for _ in range(1500):
        given = arguments(dice)
        problem = ours.problem(given, schema, "the request")
        assert (problem == "") == reference.is_valid(given), (given, problem)
        seen.add(problem == "")
    assert seen == {True, False}


def test_every_keyword_is_among_the_schemas() -> None:
    text = json.dumps(SCHEMAS)
    assert all(f'"{keyword}"' in text for keyword in KEYWORDS)


@pytest.mark.parametrize(
    ("schema", "body", "reason"),
    [
        (NAME, b"{}", "the request has no 'n', which it must have"),
        (NAME, b'{"n": "1"}', "n must be of type integer, not string"),
        (NAME, b'{"n": 1, "m": 1}', "the request has 'm', which it must not have"),
        (NAME, b"[1]", "the request must be of type object, not array"),
        (NAME, b"one", "the request is not a JSON object of arguments"),
        (SCHEMAS[5], b'{"a": [1, "x"]}', "a[1] must be of type integer, not string"),
        (SCHEMAS[8], b'{"a": 3}', "a must be at most 2"),
        (SCHEMAS[13], b'{"a": {"a": {"b": 1}}}', "a.a.b must be of type string, not integer"),
        (SCHEMAS[13], b'{"a":' * 5000 + b"null" + b"}" * 5000, "nested too deep|not a JSON object"),
        ({"properties": {"a": {"enum": [1, "x"]}}}, b'{"a": "secret"}', 'a must be one of 1, "x"$'),
    ],
)
def test_the_reason_names_the_argument_and_no_value(schema: dict[str, Any], body: bytes, reason: str) -> None:
    with pytest.raises(CallFailed) as error:
        ArgumentCheck("x", schema).check(call(body))
    assert error.value.code == "invalid-arguments"
    assert re.search(reason if "|" in reason or "$" in reason else re.escape(reason), error.value.text), (
        error.value.text
    )


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "dependentRequired": {}}, "input of 'x' has the keyword 'dependentRequired'"),
        ({"type": "object", "properties": {"a": {"if": {}}}}, r"input.properties.a of 'x' has the keyword 'if'"),
        ({"type": "object", "properties": {"a": {"type": "int"}}}, "must be one of null, boolean"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}, "must be a part of this schema"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}}, "must be a part of this schema"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "must be a regular expression"),
        ({"type": "object", "patternProperties": {"(": {}}}, "not a regular expression"),
        ({"type": "object", "minProperties": -1}, "must be an integer of 0 or more"),
        ({"type": "object", "properties": {"a": {"multipleOf": 0}}}, "must be a number above 0"),
        ({"type": "object", "properties": {"a": 1}}, "must be a schema, not 1"),
        ({"type": "object", "$defs": {"a": {"anyOf": []}}}, "must be a list of schemas"),
        ({"type": "array"}, "input must be a JSON Schema"),
        ({"type": "object", "enum": {1, 2}}, "schema: of 'x'"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_rejected(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        Worker("tcp://127.0.0.1:1").add("x", lambda call: "", schema={"input": schema})


def test_a_schema_of_a_function_with_annotations_is_rejected() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(SettingError, match="its schema is made from them"):
        Worker("tcp://127.0.0.1:1").add("add", add, schema={"input": {"type": "object"}})


class Callable_:
    def __call__(self, call: Call) -> str:
        return str(call.json()["n"])


def plain(call: Call) -> str:
    return str(call.json()["n"])


async def coroutine(call: Call) -> str:
    return str(call.json()["n"])


def generator(call: Call) -> Iterator[str]:
    yield str(call.json()["n"])


async def async_generator(call: Call) -> AsyncIterator[str]:
    yield str(call.json()["n"])


KINDS: dict[str, Callable[[Call], Any]] = {
    "plain": plain,
    "object": Callable_(),
    "coroutine": coroutine,
    "generator": generator,
    "async-generator": async_generator,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker() as broker:
        workers = [Worker(broker.url), Worker(broker.url, "emqp")]
        for name, function in KINDS.items():
            workers[0].add(name, function, schema={"input": NAME})
        workers[1].add("over-emqp", plain, schema={"input": NAME})
        workers[0].add("text", lambda call: call.text, schema={"input": NAME, "encoding": "text"})
        with workers[0], workers[1]:
            for name in (*KINDS, "over-emqp", "text"):
                broker.wait_for(name)
            yield broker


@pytest.mark.parametrize("name", [*KINDS, "over-emqp"])
def test_clients_get_the_reason_and_the_function_is_not_called(
    broker: testing.Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{broker.url.replace('tcp', 'http')}/v1/call/{name}"
    assert httpx.post(url, json={"n": 7}, timeout=WAIT).text == "7"
    with caplog.at_level(logging.WARNING):
        response = httpx.post(url, json={"m": "secret"}, timeout=WAIT)
    problem = response.json()
    assert (response.status_code, problem["type"]) == (422, "urn:polydomo:invalid-arguments")
    assert problem["detail"] == f"{name}: the request has no 'n', which it must have"
    assert "secret" not in caplog.text and "Traceback" not in caplog.text
    with Client(broker.url, timeout=WAIT) as client, pytest.raises(CallFailed) as error:
        client.call(name, '{"n": null}')
    assert (error.value.code, error.value.text) == (
        "invalid-arguments",
        f"{name}: n must be of type integer, not null",
    )


def test_the_text_of_a_service_without_arguments_is_not_checked(broker: testing.Broker) -> None:
    with Client(broker.url, timeout=WAIT) as client:
        assert client.call("text", "any text").text == "any text"


def test_a_wrapped_function_is_of_the_same_kind() -> None:
    import inspect

    for name, function in KINDS.items():
        wrapped = checked(name, function, {"input": NAME})
        assert inspect.isasyncgenfunction(wrapped) == (name == "async-generator")
        assert inspect.iscoroutinefunction(wrapped) == (name == "coroutine")
        assert inspect.isgeneratorfunction(wrapped) == (name == "generator")
