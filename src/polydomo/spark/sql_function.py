"""``polydomo_call``: calls a service from SQL."""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from polydomo.client.message import Result
from polydomo.limits import SPARK_CALL_TIME, SPARK_OUTSTANDING, SPARK_RETRIES
from polydomo.spark.concurrent_calls import ConcurrentCalls, Target
from polydomo.spark.executors import prepare
from polydomo.spark.keys import RequestKeys, run_prefix

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "polydomo_call"


def register(
    spark: "SparkSession",
    to: str,
    *,
    name: str = NAME,
    outstanding: int = SPARK_OUTSTANDING,
    retries: int = SPARK_RETRIES,
    timeout: float = SPARK_CALL_TIME,
    protocol: str = "mdx",
    **client: Any,
) -> None:
    """Registers ``polydomo_call(service, body)`` for SQL: the reply as BINARY, null for a null body. A failed call fails the query.

    ``SELECT CAST(polydomo_call('upper', name) AS STRING) FROM people``
    """
    import pyspark.sql.functions as functions

    prepare(spark)
    target = Target(to, protocol, timeout, retries, outstanding, client)
    run = uuid.uuid4().hex

    def call(columns: "Iterator[tuple[Any, Any]]") -> "Iterator[Any]":
        from polydomo.spark.sql_function import run_calls

        return run_calls(target, columns, run)

    import pyarrow as pa

    call.__annotations__ = {
        "columns": Iterator[tuple[pa.Array, pa.Array]],
        "return": Iterator[pa.Array],
    }
    arrow_udf: Any = getattr(functions, "arrow_udf")  # noqa: B009  its stubs lack it
    spark.udf.register(name, arrow_udf(call, "binary"))


def run_calls(target: Target, columns: "Iterator[tuple[Any, Any]]", name: str) -> "Iterator[Any]":
    """On an executor. Each batch must be answered before Spark passes the next one."""
    import pyarrow as pa

    keys = RequestKeys(run_prefix(name))
    for services, bodies in columns:
        names, values = services.to_pylist(), bodies.to_pylist()
        found: list[bytes | None] = [None] * len(values)
        requests = [
            (value.encode() if isinstance(value, str) else bytes(value), i)
            for i, value in enumerate(values)
            if value is not None and names[i] is not None
        ]

        def begin(client: Any, body: "bytes | list[bytes]", i: int, names: list[str] = names) -> Any:
            frames = [body] if isinstance(body, bytes) else body
            once = keys.key_of([names[i].encode(), *frames]) if client.carries_keys else ""
            return client.call(names[i], *frames, key=once)

        calls: ConcurrentCalls[int] = ConcurrentCalls(target, begin)
        for done in calls.run(requests):
            for i, reply in done:
                if not isinstance(reply, Result):
                    raise reply
                found[i] = reply.body
        yield pa.array(found, pa.binary())
