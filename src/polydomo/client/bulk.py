"""Several jobs at once: ``client.submit_jobs``."""

import asyncio
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from polydomo.client.jobs import JobClient, JobOptions
from polydomo.client.message import Frame, encode, frames_of
from polydomo.errors import CallFailed, SettingError
from polydomo.limits import SUBMIT_AT_ONCE, SUBMIT_BYTES, SUBMIT_HEADER, SUBMIT_PART
from polydomo.model.jobs.messages import make_id

Body: TypeAlias = (
    "Frame | list[Frame] | tuple[Frame, ...] | Mapping[str, object]"  # a frame, frames, or named arguments
)
Row = dict[str, Any]


def frames_of_body(body: Body) -> list[bytes]:
    """
    >>> frames_of_body("text"), frames_of_body(["two", b"frames"]), frames_of_body({"a": 1})
    ([b'text'], [b'two', b'frames'], [b'{"a":1}'])
    """
    if isinstance(body, Mapping):
        return frames_of((), body) if body else [b"{}"]
    if isinstance(body, list | tuple):
        return encode(body)
    return encode((body,))


class SubmitPart:
    """The jobs of one message."""

    def __init__(self, first: int) -> None:
        self.first = first  # the number of its first job
        self.rows: list[Row] = []
        self.frames: list[bytes] = []
        self.size = 0  # of the frames
        self.header = 0  # of the rows as JSON

    def fits(self, size: int, header: int) -> bool:
        if len(self.rows) >= SUBMIT_PART or self.header + header > SUBMIT_HEADER:
            return False
        return not self.rows or self.size + size <= SUBMIT_BYTES

    def add(self, row: Row, frames: list[bytes], size: int, header: int) -> None:
        self.rows.append(row)
        self.frames += frames
        self.size += size
        self.header += header


def parts_of(bodies: Iterable[Body], keys: Iterable[str] | None) -> Iterator[SubmitPart]:
    """Each job has its id from the beginning, so that repeating a message cannot create a second job."""
    part = SubmitPart(0)
    left = iter(keys) if keys is not None else None
    for number, body in enumerate(bodies):
        frames = frames_of_body(body) or [b""]
        row: Row = {"id": make_id(time.time(), os.urandom(10)), "sizes": [len(frame) for frame in frames]}
        if left is not None:
            key = next(left, None)
            if key is None:
                raise SettingError(f"keys: there are {number}, fewer than bodies")
            row["key"] = key
        size, header = sum(row["sizes"]), len(json.dumps(row)) + 1
        if not part.fits(size, header):
            yield part
            part = SubmitPart(number)
        part.add(row, frames, size, header)
    if left is not None and next(left, None) is not None:
        raise SettingError("keys: there are more than bodies")
    if part.rows:
        yield part


class BulkSubmission:
    def __init__(self, jobs: JobClient, service: str | bytes, options: JobOptions, patience: float) -> None:
        self._jobs = jobs
        self._header: Row = {
            "service": service.decode() if isinstance(service, bytes) else service,
            **{name: value for name, value in options.to_header().items() if value is not None},
        }
        self._patience = patience
        self._room = asyncio.Semaphore(SUBMIT_AT_ONCE)

    async def run(self, bodies: Iterable[Body], keys: Iterable[str] | None) -> list[str]:
        """Returns the ids. Raises CallFailed for the first job that was not stored."""
        tasks: list[asyncio.Task[list[str]]] = []
        try:
            for part in parts_of(bodies, keys):
                await self._room.acquire()
                failed = next((task for task in tasks if task.done() and task.exception() is not None), None)
                if failed is not None:
                    await failed  # raises
                tasks.append(asyncio.get_running_loop().create_task(self._send(part)))
            return [id for ids in await asyncio.gather(*tasks) for id in ids]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, part: SubmitPart) -> list[str]:
        try:
            header = {**self._header, "jobs": part.rows}
            answer, _ = await self._jobs.ask("submit.many", header, [b"".join(part.frames)], self._patience)
        finally:
            self._room.release()
        for number, code, text in answer["failed"]:
            raise CallFailed(code, f"body {part.first + number}: {text}")
        ids: list[str] = answer["jobs"]
        return ids
