"""Tells the broker what typed services take and give, each time they were registered."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from polydomo.client.aio import AsyncClient
from polydomo.errors import PolydomoError
from polydomo.limits import SCHEMA_TRIES, SCHEMA_WAIT

log = logging.getLogger("polydomo.worker")


class SchemaSender:
    """Over a connection of its own, since most protocols' workers cannot make requests. A broker that is not ours does not know the
    service; that is no trouble."""

    def __init__(self, connect: Callable[[], AsyncClient]) -> None:
        self._connect = connect
        self._schemas: dict[bytes, dict[str, Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, service: bytes, schema: dict[str, Any]) -> None:
        self._schemas[service] = schema

    def send(self, services: list[bytes]) -> None:
        """The services were registered just now."""
        named = {name: self._schemas[name] for name in services if name in self._schemas}
        if named:
            task = asyncio.get_running_loop().create_task(self._send(named))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _send(self, schemas: dict[bytes, dict[str, Any]]) -> None:
        try:
            async with self._connect() as client:
                for service, schema in schemas.items():
                    await self._describe(client, service, schema)
        except (PolydomoError, OSError) as error:
            log.debug("the broker was not told of schemas: %s", error)

    async def _describe(self, client: AsyncClient, service: bytes, schema: dict[str, Any]) -> None:
        body = json.dumps({"service": service.decode(errors="replace"), "schema": schema})
        answer: Any = {}
        for _ in range(SCHEMA_TRIES):
            try:
                answer = (await client.call("polydomo.schema", body)).json()
            except ValueError:
                return  # another broker's own service of that name
            if not isinstance(answer, dict) or answer.get("registered"):
                return
            await asyncio.sleep(SCHEMA_WAIT)  # the worker's READY, on another connection, may not have been read yet
        log.warning(
            "the broker does not take the schema of %s: %s", service.decode(errors="replace"), answer.get("reason")
        )
