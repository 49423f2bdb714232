"""Rows as durable jobs: each under a key of its own, so that a repeated task or batch finds the jobs of the first one."""

from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from polydomo.client.aio import AsyncClient
from polydomo.client.message import Result


def key_prefix(name: str) -> str:
    """On an executor: what the jobs of this task have in common. ``name`` is that of the write or of the DataFrame.

    In a stream, query and batch take the place of the name: they are the same when Spark repeats a batch, even after a restart.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return f"{name}/0"
    query, batch = (task.getLocalProperty(key) for key in ("sql.streaming.queryId", "streaming.sql.batchId"))
    return f"{f'{query}/{batch}' if query and batch else name}/{task.partitionId()}"


def submitter(
    service: str, name: str, wait: float = 0.0
) -> "Callable[[AsyncClient, bytes | list[bytes], Any], Coroutine[Any, Any, Result]]":
    """Submits one job per request, and with ``wait`` waits that many seconds for its result. Requests are numbered as they come."""
    prefix = key_prefix(name)
    numbers = count()

    async def begin(client: AsyncClient, body: "bytes | list[bytes]", number: int) -> Result:
        frames = [body] if isinstance(body, bytes) else body
        job = await client.submit_job(service, *frames, key=f"{prefix}/{number}")
        return await client.result(job, wait=wait) if wait else Result([job.encode()])

    def numbered(client: AsyncClient, body: "bytes | list[bytes]", belongs: object) -> Coroutine[Any, Any, Result]:
        return begin(client, body, next(numbers))

    return numbered
