"""The Spark session of the pipeline's tests, a broker, and workers that know Arrow, JSON or neither."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pytest

import polydomo
import polydomo.testing
from tests.pipeline.conftest import spark

__all__ = ["spark"]


def doubled(call: polydomo.Call) -> bytes:
    """Arrow in, Arrow out: twice the numbers."""
    table = pa.ipc.open_stream(call.body).read_all()
    made = pa.table({"id": table["id"], "twice": pa.array([2 * n for n in table["id"].to_pylist()], pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    return bytes(sink.getvalue())


def choosy(call: polydomo.Call) -> bytes:
    """Arrow in and out; fails where a row is divisible by 1,000."""
    table = pa.ipc.open_stream(call.body).read_all()
    if any(n % 1000 == 0 for n in table["id"].to_pylist()):
        raise polydomo.CallFailed("unlucky", "a number that is divisible by 1000")
    return doubled(call)


def upper(call: polydomo.Call) -> str:
    if call.text == "bad":
        raise polydomo.CallFailed("bad", "no such word")
    return call.text.upper()


def score(call: polydomo.Call) -> str:
    row = call.json()
    return json.dumps({"score": row["id"] / 2, "when": "2026-01-31T07:30:00Z", "label": row["name"]})


class Price(msgspec.Struct):
    net: float
    currency: Literal["EUR", "USD"]
    when: Annotated[datetime, msgspec.Meta(tz=True)]
    tags: list[str]
    note: str | None = None


def price(item: str, amount: int, rate: float = 1.0) -> Price:
    """A typed service: arguments by name, a struct as the reply."""
    return Price(amount * rate, "EUR", datetime(2026, 1, 31, 7, 30, tzinfo=UTC), [item])


def total(amount: int) -> int:
    """A typed service of one argument, and a number as the reply."""
    return 2 * amount


SERVICES: dict[str, Callable[..., Any]] = {
    "doubled": doubled,
    "choosy": choosy,
    "upper": upper,
    "score": score,
    "price": price,
    "total": total,
}


@pytest.fixture(scope="session")
def broker() -> Iterator[polydomo.testing.Broker]:
    with polydomo.testing.broker() as made:
        worker = polydomo.Worker(made.url, concurrency=2)
        for name, function in SERVICES.items():
            worker.add(name, function)
        with worker:
            for name in SERVICES:
                made.wait_for(name, 2)
            yield made


SMALL = (  # in every run; the others are long forms
    "test_keys.py",
    "test_through.py",
    "test_fleet.py",
    "test_typed_service.py",
    "test_feeds.py",
    "test_sql_formats.py",
    "test_sql_service.py",
    "test_examples.py",
    "test_sink.py",
    "test_subscription.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("spark"))  # one process has the session
            if item.path.name not in SMALL:
                item.add_marker(pytest.mark.long)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))
