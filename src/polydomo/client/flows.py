"""Flows for clients: start one, follow it, fetch results. All operations call built-in services of the broker, so they work over every
protocol."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from polydomo.client.background import Background
from polydomo.client.jobs import JobClient
from polydomo.client.message import Result
from polydomo.errors import CallFailed, CallTimeout, SettingError
from polydomo.limits import FLOW_STEPS, RESULT_POLL
from polydomo.model.flows.flow import Flow, FlowNode
from polydomo.model.jobs.messages import make_id

Row = dict[str, Any]
Rows = list[Row]
ENDED = ("done", "failed", "cancelled")
AT_ONCE = 32  # results that are fetched at a time


@dataclass(frozen=True)
class FlowStep:
    """A node of a flow has ended, or its worker has reported its progress."""

    node: str
    state: str  # done, dead, skipped or cancelled; running, if its worker has reported its progress
    done: int  # nodes that have ended
    total: int
    job: str
    share: float | None = None  # what its worker has reported
    text: str = ""


class FlowClient:
    """``jobs`` asks the broker, and follows the leader."""

    def __init__(self, jobs: JobClient, patience: float) -> None:
        self._jobs = jobs
        self.patience = patience

    async def ask(self, what: str, header: Row, body: list[bytes] | None = None) -> Row:
        return (await self._jobs.ask(f"flow.{what}", header, body, self.patience))[0]

    async def start(self, flow: Flow, key: str | None) -> str:
        """The id is created here, so that repeating a message after a lost connection cannot start a second flow."""
        if not len(flow):
            raise SettingError(f"flow {flow.name!r}: it has no nodes")
        parts = list(flow.parts())
        header: Row = {
            "id": make_id(time.time(), os.urandom(10)),
            "name": flow.name,
            "key": key,
            "total": len(flow),
            "edges": flow.edges,
            "services": flow.services(),
            "on_failure": flow.on_failure,
            "fingerprint": flow.fingerprint(),
        }
        if len(parts) == 1:
            found = await self.ask("start", {**header, "nodes": parts[0].nodes, "open": True}, parts[0].frames)
        else:
            found = await self.ask("start", header)
        id = str(found["flow"])
        if found["state"] == "storing":
            for part in parts:
                await self.ask("start", {"flow": id, "first": part.first, "nodes": part.nodes}, part.frames)
            await self.ask("start", {"flow": id, "open": True})
        return id

    async def list(self, state: str, limit: int) -> "Rows":
        found: Rows = (await self.ask("list", {"state": state or None, "limit": limit}))["flows"]
        return found

    async def steps(self, id: str, wait: float, more: Row) -> Row:
        header = {"flow": id, "wait_us": round(wait * 1e6), **more}
        return (await self._jobs.ask("flow.steps", header, None, wait + self.patience))[0]

    async def result(self, id: str, node: str, wait: float | None) -> Result:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait if wait is not None else None
        while True:
            left = RESULT_POLL if deadline is None else max(0.0, deadline - loop.time())
            piece = min(left, RESULT_POLL)
            header = {"flow": id, "node": node, "wait_us": round(piece * 1e6)}
            try:
                row, body = await self._jobs.ask("flow.result", header, None, piece + self.patience)
            except CallTimeout:
                if deadline is not None and loop.time() >= deadline:
                    raise
                continue
            if row["state"] == "done":
                return Result(body)
            raise CallFailed(str(row["outcome"] or row["state"]), str(row["reason"]))

    async def nodes(self, id: str, edges: bool = False) -> Row:
        """The flow with all its nodes."""
        found = await self.ask("show", {"flow": id, "limit": FLOW_STEPS, "edges": edges or None})
        last = found
        while last["nodes"] and len(found["nodes"]) < found["total"]:
            last = await self.ask(
                "show", {"flow": id, "first": last["next"], "limit": FLOW_STEPS, "edges": edges or None}
            )
            found["nodes"] += last["nodes"]
            if edges:
                found["needs"] += last["needs"]
        return found


class FlowProgress:
    """Turns the answers of the broker into steps."""

    def __init__(self) -> None:
        self.position = 0
        self.done = 0
        self.reports = 0
        self.ended = False

    def known(self) -> Row:
        return {"after": self.position, "reports": self.reports}

    def read(self, answer: Row) -> list[FlowStep]:
        total = int(answer["total"])
        found: list[FlowStep] = []
        for row in answer["steps"]:
            self.done = min(self.done + 1, total)
            found.append(FlowStep(row["node"], row["state"], self.done, total, row["job"]))
        report = answer.get("report")
        if report is not None and report["progress"] is not None:
            told = report["progress"]
            found.append(
                FlowStep(report["node"], "running", self.done, total, report["job"], told["share"], told["text"])
            )
        self.reports = answer.get("reports", 0)  # a broker of an older version has none
        self.position = answer["next"]
        self.ended = answer["state"] in ENDED and self.position >= answer["position"]
        return found


def _name(node: str | FlowNode) -> str:
    return node.name if isinstance(node, FlowNode) else node


class AsyncFlowRun:
    """One run of a flow. Any client can have it: ``client.flow(id)``."""

    def __init__(self, flows: FlowClient, id: str) -> None:
        self._flows = flows
        self.id = id

    async def watch(self) -> AsyncIterator[FlowStep]:
        """Yields a step for each node that has ended, from the first one on, and one with the state ``running`` when a worker reports its
        progress. Returns when the flow ends."""
        progress = FlowProgress()
        while not progress.ended:
            for step in progress.read(await self._flows.steps(self.id, RESULT_POLL, progress.known())):
                yield step

    async def result(self, node: str | FlowNode, wait: float | None = None) -> Result:
        """Waits for a node, at most ``wait`` seconds, and returns its result. Raises CallFailed if it is dead, skipped or cancelled."""
        return await self._flows.result(self.id, _name(node), wait)

    async def results(self, wait: float | None = None) -> dict[str, Result]:
        """Waits for the end of the flow and returns the results of all nodes that are done, by name."""
        await self.wait(wait)
        names = [row["node"] for row in (await self._flows.nodes(self.id))["nodes"] if row["state"] == "done"]
        found: dict[str, Result] = {}
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            found.update(zip(some, await asyncio.gather(*(self.result(name) for name in some)), strict=True))
        return found

    async def wait(self, wait: float | None = None) -> str:
        """Waits until the flow has ended. Returns its state: done, failed or cancelled. Raises CallTimeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait if wait is not None else None
        while True:
            left = RESULT_POLL if deadline is None else max(0.0, deadline - loop.time())
            answer = await self._flows.steps(self.id, min(left, RESULT_POLL), {"only_end": True})
            if answer["state"] in ENDED:
                return str(answer["state"])
            if deadline is not None and loop.time() >= deadline:
                raise CallTimeout(f"flow {self.id} has not ended: {answer['done']} of {answer['total']} nodes are done")

    async def info(self) -> Row:
        """The state of the flow: state, total, done, dead, skipped, cancelled, and times."""
        found = await self._flows.ask("show", {"flow": self.id, "limit": 0})
        found.pop("nodes", None)
        return found

    async def nodes(self) -> list[Row]:
        """All nodes with their states, attempts and times."""
        rows: list[Row] = (await self._flows.nodes(self.id))["nodes"]
        return rows

    async def graph(self) -> Row:
        """The flow with ``nodes``, and with ``needs``: pairs of numbers, from a node to one that needs it."""
        return await self._flows.nodes(self.id, edges=True)

    async def last(self) -> str:
        """The name of the last node."""
        total = (await self.info())["total"]
        found = await self._flows.ask("show", {"flow": self.id, "first": total - 1, "limit": 1})
        return str(found["nodes"][0]["node"])

    async def cancel(self) -> Row:
        """Starts no more nodes, and cancels those that are open."""
        return await self._flows.ask("cancel", {"flow": self.id})

    async def retry(self) -> Row:
        """Runs dead, skipped and cancelled nodes of an ended flow again, and keeps what is done."""
        return await self._flows.ask("retry", {"flow": self.id})

    async def remove(self) -> None:
        """Removes an ended flow and its results."""
        await self._flows.ask("remove", {"flow": self.id})


class FlowRun:
    """One run of a flow, for blocking code; see ``AsyncFlowRun``."""

    def __init__(self, run: AsyncFlowRun, background: Background) -> None:
        self._run = run
        self._background = background
        self.id = run.id

    def watch(self) -> Iterator[FlowStep]:
        """Yields a step for each node that has ended, from the first one on, and one with the state ``running`` when a worker reports its
        progress. Returns when the flow ends."""
        progress = FlowProgress()
        while not progress.ended:
            answer = self._background.run(self._run._flows.steps(self.id, RESULT_POLL, progress.known()))
            yield from progress.read(answer)

    def result(self, node: str | FlowNode, wait: float | None = None) -> Result:
        """Waits for a node, at most ``wait`` seconds, and returns its result. Raises CallFailed if it is dead, skipped or cancelled."""
        return self._background.run(self._run.result(node, wait))

    def results(self, wait: float | None = None) -> dict[str, Result]:
        """Waits for the end of the flow and returns the results of all nodes that are done, by name."""
        return self._background.run(self._run.results(wait))

    def wait(self, wait: float | None = None) -> str:
        """Waits until the flow has ended. Returns its state: done, failed or cancelled. Raises CallTimeout."""
        return self._background.run(self._run.wait(wait))

    def info(self) -> Row:
        """The state of the flow: state, total, done, dead, skipped, cancelled, and times."""
        return self._background.run(self._run.info())

    def nodes(self) -> list[Row]:
        """All nodes with their states, attempts and times."""
        return self._background.run(self._run.nodes())

    def graph(self) -> Row:
        """The flow with ``nodes``, and with ``needs``: pairs of numbers, from a node to one that needs it."""
        return self._background.run(self._run.graph())

    def cancel(self) -> Row:
        """Starts no more nodes, and cancels those that are open."""
        return self._background.run(self._run.cancel())

    def retry(self) -> Row:
        """Runs dead, skipped and cancelled nodes of an ended flow again, and keeps what is done."""
        return self._background.run(self._run.retry())

    def remove(self) -> None:
        """Removes an ended flow and its results."""
        self._background.run(self._run.remove())
