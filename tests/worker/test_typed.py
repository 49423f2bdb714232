"""Typed functions: which are typed, their schemas, checked arguments and encoded results."""

import asyncio
import dataclasses
import enum
import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from polydomo.errors import CallFailed, SettingError
from polydomo.model.service_schema import read_schema
from polydomo.protocols.ends import Delivery
from polydomo.worker.call import Call
from polydomo.worker.typed import Typed, is_typed


def call(**arguments: object) -> Call:
    return Call(Delivery(b"x", [json.dumps(arguments).encode()]))


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Size(TypedDict):
    width: int


class Order(msgspec.Struct):
    id: int
    points: list[Point] = []


class Inner(pydantic.BaseModel):
    n: int


class Model(pydantic.BaseModel):
    inner: Inner
    name: str = "x"


def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


def rich(
    point: Point,
    size: Size,
    order: Order,
    colour: Colour,
    mode: Literal["a", "b"],
    n: Annotated[int, msgspec.Meta(ge=1)],
) -> Order:
    assert isinstance(point, Point) and isinstance(order, Order) and colour is Colour.RED
    return order


def test_which_functions_are_typed() -> None:
    def plain(call):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def annotated(call: Call) -> str:
        raise NotImplementedError

    def loose(call: Any) -> str:
        raise NotImplementedError

    def variadic(*frames: bytes) -> str:
        raise NotImplementedError

    def partly(a: int, b) -> int:  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def none() -> str:
        raise NotImplementedError

    def one(text: str) -> str:
        raise NotImplementedError

    def both(call: Call, text: str) -> str:
        raise NotImplementedError

    assert [is_typed(f) for f in (plain, annotated, loose, variadic, partly, none, len)] == [False] * 7
    assert [is_typed(f) for f in (add, one, both, rich)] == [True] * 4


def test_schema_of_a_function() -> None:
    schema = Typed("add", add).schema()
    assert schema == {
        "description": "Adds two numbers.",
        "input": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "output": {"type": "integer"},
        "encoding": "json",
        "streams": False,
    }
    assert read_schema(json.loads(json.dumps(schema)), 100).input == schema["input"]


def test_arguments_are_checked_and_the_result_is_json() -> None:
    function = Typed("add", add).plain()
    assert function(call(a=2, b=3)) == b"5"
    assert function(call(a=2)) == b"3"
    for wrong, text in (
        ({"a": "2"}, "Expected `int`, got `str` - at `$.a`"),
        ({}, "missing required field `a`"),
        ({"a": 1, "c": 2}, "unknown field `c`"),
    ):
        with pytest.raises(CallFailed, match=INVALID) as caught:
            function(call(**wrong))
        assert text in caught.value.text and caught.value.text.startswith("add: ")
    for body in (b"[1]", b"nonsense", b"\xff", b"[" * 100_000):
        with pytest.raises(CallFailed, match=INVALID):
            function(Call(Delivery(b"x", [body])))


INVALID = "invalid-arguments"


def test_annotations_of_every_kind() -> None:
    typed = Typed("rich", rich)
    assert typed.input["type"] == "object" and typed.output["type"] == "object"
    assert set(typed.input["$defs"]) >= {"Point", "Size", "Order", "Colour"}
    arguments = {
        "point": {"x": 1},
        "size": {"width": 2},
        "order": {"id": 7, "points": [{"x": 0.5, "y": 2.0}]},
        "colour": "red",
        "mode": "a",
        "n": 1,
    }
    assert json.loads(typed.plain()(call(**arguments))) == {"id": 7, "points": [{"x": 0.5, "y": 2.0}]}
    with pytest.raises(CallFailed, match="n"):
        typed.plain()(call(**(arguments | {"n": 0})))


def test_pydantic_models() -> None:
    def save(model: Model) -> Model:
        return Model(inner=Inner(n=model.inner.n + 1))

    typed = Typed("save", save)
    assert {"Inner"} <= set(typed.input["$defs"])
    assert typed.output["type"] == "object" and "$defs" in typed.output
    assert json.loads(typed.plain()(call(model={"inner": {"n": 1}}))) == {"inner": {"n": 2}, "name": "x"}
    with pytest.raises(CallFailed, match=r"inner\.n"):
        typed.plain()(call(model={"inner": {"n": "many"}}))


class Tree(msgspec.Struct):
    children: "list[Tree]" = []


def test_a_type_that_contains_itself() -> None:
    def depth(tree: Tree) -> Tree:
        return tree

    typed = Typed("depth", depth)
    assert "Tree" in typed.input["$defs"] and "Tree" in typed.output["$defs"]


def test_bytes_are_returned_as_they_are() -> None:
    def render(width: int) -> bytes:
        return b"\xff" * width

    typed = Typed("render", render)
    assert typed.encoding == "bytes" and typed.plain()(call(width=2)) == b"\xff\xff"


def test_the_call_itself_and_defaults() -> None:
    def whoami(call: Call, tags: list[str] = ["x"]) -> str:  # noqa: B006
        return call.service + "".join(tags)

    typed = Typed("whoami", whoami)
    assert set(typed.input["properties"]) == {"tags"}
    assert typed.plain()(call()) == b'"xx"'


def test_kinds_of_functions() -> None:
    def count(n: int) -> Iterator[int]:
        yield from range(n)

    async def later(n: int) -> int:
        return n

    async def stream(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    assert Typed("count", count).streams and Typed("count", count).output == {"type": "integer"}
    assert list(Typed("count", count).plain()(call(n=2))) == [b"0", b"1"]

    async def check() -> None:
        assert await Typed("later", later).plain()(call(n=2)) == b"2"
        assert [part async for part in Typed("stream", stream).plain()(call(n=2))] == [b"0", b"1"]

    asyncio.run(check())


def test_annotations_without_a_schema_are_refused() -> None:
    def strange(thing: "socket") -> int:  # type: ignore[name-defined]  # noqa: F821
        raise NotImplementedError

    def stranger(thing: pytest.MonkeyPatch) -> int:
        raise NotImplementedError

    def positional(a: int, /) -> int:
        raise NotImplementedError

    for function in (strange, stranger, positional):
        with pytest.raises(SettingError, match="service"):
            Typed("x", function)
