"""``client.call("add", a=1, b=2)``: named arguments of typed services, in every kind of call of both clients."""

import asyncio
import dataclasses
import datetime
import enum
from collections.abc import Iterator

import pydantic
import pytest

from polydomo import AsyncClient, Call, CallFailed, Client, Worker, testing

WAIT = 60.0


class Size(enum.Enum):
    SMALL = "small"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Model(pydantic.BaseModel):
    n: int


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    with testing.broker(jobs=True) as broker:
        worker = Worker(broker.url)

        @worker.service("add")
        def add(a: int, b: int = 1) -> int:
            return a + b

        @worker.service("count")
        def count(to: int) -> Iterator[int]:
            yield from range(to)

        @worker.service("show")
        def show(point: Point, size: Size, day: datetime.date, model: Model) -> str:
            return f"{point} {size} {day} {model.n}"

        @worker.service("same")
        def same(call: Call) -> bytes:
            return call.body

        with worker:
            for name in ("add", "count", "show", "same"):
                broker.wait_for(name)
            yield broker


@pytest.mark.parametrize("protocol", ["mdx", "mdp1", "dcp", "emqp"])
def test_named_arguments(broker: testing.Broker, protocol: str) -> None:
    with Client(broker.url, protocol, timeout=WAIT) as client:
        assert client.call("add", a=1, b=2).json() == 3
        assert client.call("add", a=1, timeout=WAIT).json() == 2
        assert client.submit("add", a=5).result().json() == 6
        assert "".join(part.text for part in client.stream("count", to=3)) == "012"
        job = client.submit_job("add", a=20, b=22)
        assert client.result(job, wait=WAIT).json() == 42


def test_the_asyncio_client(broker: testing.Broker) -> None:
    async def main() -> None:
        async with AsyncClient(broker.url, timeout=WAIT) as client:
            assert (await client.call("add", a=1, b=2)).json() == 3
            assert [part.json() async for part in client.stream("count", to=3)] == [0, 1, 2]
            job = await client.submit_job("add", a=20, b=22)
            assert (await client.result(job, wait=WAIT)).json() == 42

    asyncio.run(main())


def test_values_of_many_types(broker: testing.Broker) -> None:
    with Client(broker.url, timeout=WAIT) as client:
        found = client.call(
            "show", point=Point(1, 2), size=Size.SMALL, day=datetime.date(2026, 1, 31), model=Model(n=7)
        )
        assert found.json() == "Point(x=1, y=2) Size.SMALL 2026-01-31 7"
        assert client.call("same", text="ä", none=None, many=[1, {"x": 2.5}]).json() == {
            "text": "ä",
            "none": None,
            "many": [1, {"x": 2.5}],
        }


def test_arguments_that_cannot_be_sent(broker: testing.Broker) -> None:
    with Client(broker.url, timeout=WAIT) as client:
        with pytest.raises(TypeError, match="a body and the named arguments timout; use one of them"):
            client.call("same", "x", timout=3)
        with pytest.raises(TypeError, match="cannot be written as JSON: a object has no JSON form"):
            client.call("same", thing=object())
        with pytest.raises(CallFailed, match="invalid-arguments: add: Object contains unknown field `c`"):
            client.call("add", a=1, c=2)
