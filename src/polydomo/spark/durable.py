"""Rows as durable jobs. Each has its own key, so that a repeated task or batch finds the jobs of the first one."""

from collections import Counter
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import Any

from polydomo.client.aio import AsyncClient
from polydomo.client.message import Result


def key_prefix(name: str) -> str:
    """On an executor: the common prefix of the keys of this task. ``name`` is that of the write or of the DataFrame.

    In a stream, query and batch replace the name: they are the same when Spark repeats a batch, even after a restart.
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
    """Submits one job per request, and with ``wait`` waits up to that many seconds for its result.

    The key contains a digest of the body and a counter of equal bodies in the task, so that a repeated task finds its jobs even if its
    rows arrive in another order.
    """
    prefix = key_prefix(name)
    seen: Counter[bytes] = Counter()

    async def begin(client: AsyncClient, frames: "list[bytes]", key: str) -> Result:
        job = await client.submit_job(service, *frames, key=key)
        return await client.result(job, wait=wait) if wait else Result([job.encode()])

    def keyed(client: AsyncClient, body: "bytes | list[bytes]", belongs: object) -> Coroutine[Any, Any, Result]:
        frames = [body] if isinstance(body, bytes) else body
        digest = blake2b(b"\0".join(frames), digest_size=12)
        seen[digest.digest()] += 1
        return begin(client, frames, f"{prefix}/{digest.hexdigest()}/{seen[digest.digest()]}")

    return keyed
