"""Durable jobs for clients: submit, look up, wait for the result, cancel; dead jobs and schedules.

All operations call built-in services of the broker (``model.jobs.messages``), so they work over every protocol.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from polydomo.client.message import JobPart, Result
from polydomo.client.pending import OnProgress
from polydomo.client.retry import ReconnectDelay as Waits
from polydomo.errors import CallError, CallFailed, CallTimeout, ConnectionLost, NoSuchJob, NotConnected, SettingError
from polydomo.limits import RESULT_POLL
from polydomo.model.jobs.messages import make_id, read_answer, write_message
from polydomo.model.json_form import iso_time
from polydomo.model.retry_policy import Backoff

Row = dict[str, Any]
Rows = list[Row]
Frames = list[bytes]
# service, body, timeout, and what is called with the progress of a job that the client waits for
Ask = Callable[[str, list[bytes], float, OnProgress | None], Awaitable[list[bytes]]]

NOT_LEADER = "not-leader"
PENDING = "pending"
NOT_FOUND = "not-found"
NO_STORE = "no-store"
STORE_FULL = "store-full"  # it has as many open jobs as it may have
AGAIN = (
    NOT_LEADER,
    "store-unavailable",
    "shutdown",
)  # this broker cannot do it now, but another one can, or the same one later


def microseconds(name: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not seconds >= 0:
        raise SettingError(f"{name}: must be a non-negative number of seconds, not {seconds!r}")
    return round(seconds * 1e6)


def retries_of(retries: int | Backoff | None) -> object:
    return retries.to_json() if isinstance(retries, Backoff) else retries


@dataclass(frozen=True)
class JobOptions:
    """How a job is to be run; ``AsyncClient.submit_job`` explains the fields."""

    key: str | None = None
    delay: float | None = None
    at: datetime | None = None
    priority: int = 0
    ttl: float | None = None
    retries: int | Backoff | None = None
    timeout: float | None = None  # of one attempt
    group: str = ""
    near: str = ""

    def to_header(self) -> Row:
        if self.at is not None and self.at.tzinfo is None:
            raise SettingError("at: a datetime must have a time zone, such as datetime.UTC")
        return {
            "key": self.key,
            "delay_us": microseconds("delay", self.delay),
            "at": iso_time(self.at.timestamp()) if self.at is not None else None,
            "priority": self.priority or None,
            "ttl_us": microseconds("ttl", self.ttl),
            "retries": retries_of(self.retries),
            "timeout_us": microseconds("timeout", self.timeout),
            "group": self.group or None,
            "near": self.near or None,
        }


@dataclass(frozen=True)
class Times:
    """When a schedule submits a job; ``AsyncClient.schedule`` explains the fields."""

    when: str
    zone: str
    missed: str


class JobClient:
    """``ask`` calls a service of the broker. ``moved`` is called when another broker is the leader, with its address if known."""

    def __init__(self, ask: Ask, moved: Callable[[str], None]) -> None:
        self._ask = ask
        self._moved = moved

    async def submit(self, service: str | bytes, body: Frames, options: JobOptions, patience: float) -> str:
        """The id is created here, so that repeating the submission after a lost connection cannot create a second job."""
        header: Row = {
            "service": service.decode() if isinstance(service, bytes) else service,
            "id": make_id(time.time(), os.urandom(10)),
            **options.to_header(),
        }
        found, _ = await self.ask("submit", header, body, patience)
        return str(found["job"])

    async def ask(
        self,
        what: str,
        header: Row,
        body: list[bytes] | None = None,
        patience: float = 30.0,
        idempotent: bool = True,
        on_progress: OnProgress | None = None,
    ) -> tuple[Row, list[bytes]]:
        """Repeats the question until the leader has answered. One that is not ``idempotent`` is repeated only if it was rejected, or not
        sent."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        message = write_message({name: value for name, value in header.items() if value is not None}, body)
        waits = Waits()
        while True:
            left = deadline - loop.time()
            error: CallError
            try:
                found = await self._ask(f"polydomo.{what}", message, max(left, 0.001), on_progress)
                answer, content = read_answer(found)
            except ConnectionLost as lost:
                if not idempotent and not isinstance(lost, NotConnected):
                    raise
                error = lost
            else:
                if answer.get("error") is None:
                    return answer, content
                code, text = str(answer["error"]), str(answer.get("text", ""))
                if code == NOT_FOUND:
                    raise NoSuchJob(text)
                if code == "invalid":
                    raise SettingError(text)
                if code == PENDING:
                    raise CallTimeout(text)
                error = CallFailed(code, text)
                if code not in AGAIN:
                    raise error
                if code == NOT_LEADER:
                    self._moved(str(answer.get("leader", "")))
            wait = waits.next()
            if loop.time() + wait >= deadline:
                raise error
            await asyncio.sleep(wait)

    async def order(self, what: str, header: Row, patience: float) -> Row:
        """``pause``, ``resume`` or ``drain``: sent once, to the broker that is connected."""
        message = write_message(header)
        answer, _ = read_answer(await self._ask(f"polydomo.{what}", message, patience, None))
        if answer.get("error") == NOT_FOUND:
            raise NoSuchJob(str(answer["text"]))
        if answer.get("error") is not None:
            raise CallFailed(str(answer["error"]), str(answer.get("text", "")))
        return answer

    async def info(self, id: str, patience: float) -> Row:
        return (await self.ask("job", {"job": id}, None, patience))[0]

    async def result(self, id: str, wait: float, patience: float, on_progress: OnProgress | None = None) -> Result:
        """Waits in short polls, so that the wait survives a restart of the broker."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            piece = min(max(deadline - loop.time(), 0.0), RESULT_POLL)
            try:
                header = {"job": id, "wait_us": round(piece * 1e6)}
                row, body = await self.ask("result", header, None, piece + patience, True, on_progress)
            except CallTimeout:
                if loop.time() >= deadline:
                    raise
                continue
            if row["state"] == "done":
                return Result(body)
            raise CallFailed(str(row["outcome"] or row["state"]), str(row["reason"]))

    async def stream(
        self, id: str, after: str, wait: float | None, patience: float, on_progress: OnProgress | None = None
    ) -> AsyncGenerator[JobPart, None]:
        """Asks for the next parts again and again, so that it survives a restart of the broker, and never reads more than its caller."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait if wait is not None else None
        seen = False
        while True:
            left = RESULT_POLL if deadline is None else max(deadline - loop.time(), 0.0)
            piece = min(left, RESULT_POLL)
            header = {"job": id, "after": after, "wait_us": round(piece * 1e6)}
            row, frames = await self.ask("stream", header, None, piece + patience, True, on_progress)
            after = str(row["next"])
            start = 0
            for one in row["parts"]:
                seen = True
                end = start + one["frames"]
                yield JobPart(frames[start:end], False, one["attempt"], one["number"])
                start = end
            final = row.get("final")
            if final is not None:
                if any(frames) or not seen:
                    yield JobPart(frames, True, final["attempt"], final["number"])
                return
            if row["parts"]:
                deadline = loop.time() + wait if wait is not None else None
            elif row["state"] == "done":
                return
            elif "outcome" in row:
                raise CallFailed(str(row["outcome"] or row["state"]), str(row["reason"]))
            elif deadline is not None and loop.time() >= deadline:
                raise CallTimeout(f"job {id} has sent nothing for {wait:.3g} s")

    async def cancel(self, id: str, patience: float) -> Row:
        """Cancels a job or, if there is no such job or no job store, an open request."""
        try:
            return (await self.ask("cancel", {"job": id}, None, patience))[0]
        except (NoSuchJob, CallFailed) as error:
            if isinstance(error, CallFailed) and error.code != NO_STORE:
                raise
            try:
                return await self.order("withdraw", {"request": id}, patience)
            except NoSuchJob:
                raise NoSuchJob(f"no job and no open request has the id {id}") from None

    async def list(self, state: str = "", service: str = "", limit: int = 100, patience: float = 30.0) -> Rows:
        header = {"state": state or None, "service": service or None, "limit": limit}
        found: Rows = (await self.ask("jobs", header, None, patience))[0]["jobs"]
        return found

    async def ended(self, after: str = "", limit: int = 1_000, patience: float = 30.0) -> Row:
        """Jobs that have an outcome, in the order in which they ended, after a position: ``next`` of the answer before, "" at first."""
        return (await self.ask("jobs", {"after": after, "limit": limit}, None, patience))[0]

    async def dead(self, what: str, id: str, service: str, all: bool, patience: float) -> int:
        """``what`` is ``retry`` or ``drop``. Returns how many jobs there were."""
        if sum((bool(id), bool(service), all)) != 1:
            raise SettingError(f"{what}: give one of a job's id, service= and all=True")
        header = {"job": id or None, "service": service or None, "all": True if all else None}
        answer = (await self.ask(what, header, None, patience))[0]
        return int(answer["retried" if what == "retry" else "dropped"])

    async def schedule(
        self,
        name: str,
        service: str,
        times: Times,
        body: Frames,
        options: JobOptions,
        patience: float,
    ) -> Row:
        header: Row = {
            "name": name,
            **({"service": service} if service else {"flow": True}),
            "when": times.when,
            "zone": times.zone,
            "missed": times.missed,
            **options.to_header(),
        }
        return (await self.ask("schedule", header, body, patience))[0]

    async def schedules(self, patience: float) -> Rows:
        found: Rows = (await self.ask("schedules", {}, None, patience))[0]["schedules"]
        return found

    async def unschedule(self, name: str, patience: float) -> None:
        await self.ask("unschedule", {"name": name}, None, patience)

    async def fire(self, name: str, patience: float) -> str:
        found = (await self.ask("fire", {"name": name}, None, patience, idempotent=False))[0]
        return str(found.get("job") or found["flow"])
