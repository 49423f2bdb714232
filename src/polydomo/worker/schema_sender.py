"""Sends the schemas of typed services to the broker after each registration."""

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
    """Uses a separate connection, because in most protocols workers cannot send requests. Errors of brokers that do not have the service
    ``polydomo.schema`` are ignored."""

    def __init__(self, connect: Callable[[], AsyncClient]) -> None:
        self._connect = connect
        self._schemas: dict[bytes, dict[str, Any]] = {}
        self._tasks: dict[tuple[bytes, ...], asyncio.Task[None]] = {}  # by the services of a registration
        self._rejections: dict[bytes, str] = {}  # why the broker rejected the schema of a service, as logged

    def add(self, service: bytes, schema: dict[str, Any]) -> None:
        self._schemas[service] = schema

    def send(self, services: list[bytes]) -> None:
        """Called after the services were registered."""
        named = {name: self._schemas[name] for name in services if name in self._schemas}
        if named:
            earlier = self._tasks.get(tuple(named))
            if earlier is not None:
                earlier.cancel()
            self._tasks[tuple(named)] = asyncio.get_running_loop().create_task(self._send(named))

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _send(self, schemas: dict[bytes, dict[str, Any]]) -> None:
        try:
            async with self._connect() as client:
                for service, schema in schemas.items():
                    await self._describe(client, service, schema)
        except (PolydomoError, OSError) as error:
            log.debug("cannot send schemas to the broker: %s", error)

    async def _describe(self, client: AsyncClient, service: bytes, schema: dict[str, Any]) -> None:
        body = json.dumps({"service": service.decode(errors="replace"), "schema": schema})
        answer: Any = {}
        for _ in range(SCHEMA_TRIES):
            try:
                answer = (await client.call("polydomo.schema", body)).json()
            except ValueError:
                return  # another broker that has a service of this name
            if not isinstance(answer, dict) or answer.get("registered"):
                self._rejections.pop(service, None)
                return
            if answer.get("denied"):
                break
            # The broker may not have read the worker's READY on the other connection yet.
            await asyncio.sleep(SCHEMA_WAIT)
        reason = str(answer.get("reason"))
        if self._rejections.get(service) != reason:  # a worker that is denied registers again and again
            self._rejections[service] = reason
            log.warning("the broker rejected the schema of %s: %s", service.decode(errors="replace"), reason)
