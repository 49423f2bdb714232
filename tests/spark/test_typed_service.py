"""JSON Schemas of services as columns."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any

import msgspec
import pytest

pytest.importorskip("pyspark")

from polydomo.errors import SettingError
from polydomo.spark.row_bodies import BYTES, JSON, VALUE
from polydomo.spark.typed_service import of
from polydomo.worker.typed import Typed


class Colour(Enum):
    RED = "red"


@dataclass
class Inner:
    x: float
    at: datetime


@dataclass
class Tree:
    label: str
    children: "list[Tree]"


@dataclass
class Outer:
    id: int
    ok: bool
    when: Annotated[datetime, msgspec.Meta(tz=True)]
    day: date
    data: bytes
    colour: Colour
    inner: Inner | None
    list_: list[list[int]]
    named: dict[str, int]
    either: int | str
    anything: Any


def columns(function: Any) -> tuple[str, str]:
    typed = Typed("f", function)
    made = of("f", {"service": "f", **typed.schema()})
    return made.columns.simpleString(), made.reply


def test_every_annotation_has_a_type() -> None:
    def outer(a: int) -> Outer:
        raise NotImplementedError

    found, reply = columns(outer)
    assert reply == JSON
    assert found == (
        "struct<id:bigint,ok:boolean,when:timestamp,day:date,data:binary,colour:string,inner:struct<x:double,at:string>,"
        "list_:array<array<bigint>>,named:map<string,bigint>,either:string,anything:string>"
    )


@pytest.mark.parametrize(
    ("result", "wanted", "reply"),
    [
        (int, "struct<result:bigint>", VALUE),
        (list[str], "struct<result:array<string>>", VALUE),
        (dict[str, float], "struct<result:map<string,double>>", VALUE),
        (bytes, "struct<result:binary>", BYTES),
        (Any, "struct<result:string>", VALUE),
        (int | None, "struct<result:bigint>", VALUE),
    ],
)
def test_a_reply_that_is_not_an_object_is_one_column(result: Any, wanted: str, reply: str) -> None:
    def function(a: int) -> Any: ...

    function.__annotations__["return"] = result
    assert columns(function) == (wanted, reply)


def test_a_type_that_contains_itself_ends_in_text() -> None:
    def tree(a: int) -> Tree:
        raise NotImplementedError

    assert columns(tree)[0].count("array") < 10


def test_a_service_that_streams_needs_a_schema() -> None:
    from collections.abc import Iterator

    def parts(a: int) -> Iterator[int]:
        yield a

    with pytest.raises(SettingError, match="partial replies"):
        columns(parts)
