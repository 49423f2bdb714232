"""Rows as durable jobs. Each has its own key, so that a repeated task or batch finds the jobs of the first one."""

from collections.abc import Callable, Coroutine
from typing import Any

from polydomo.client.aio import AsyncClient
from polydomo.client.message import Result
from polydomo.spark.keys import RequestKeys, job_prefix


def submitter(
    service: str, name: str, wait: float = 0.0, group: str = ""
) -> "Callable[[AsyncClient, bytes | list[bytes], Any], Coroutine[Any, Any, Result]]":
    """Submits one job per request, and with ``wait`` waits up to that many seconds for its result."""
    keys = RequestKeys(job_prefix(name))

    async def begin(client: AsyncClient, frames: "list[bytes]", key: str) -> Result:
        job = await client.submit_job(service, *frames, key=key, group=group)
        return await client.result(job, wait=wait) if wait else Result([job.encode()])

    def keyed(client: AsyncClient, body: "bytes | list[bytes]", belongs: object) -> Coroutine[Any, Any, Result]:
        frames = [body] if isinstance(body, bytes) else body
        return begin(client, frames, keys.key_of(frames))

    return keyed
