"""Memoised services: replies are stored and reused, and identical concurrent requests run once.

Two requests are identical if their service, version and body are equal.

Each distinct body has one run at a time (``shared_runs``), whose reply is stored. Partial replies of a memoised service are joined.
"""

from hashlib import blake2b
from typing import Final

from polydomo.broker.jobs.job import Job
from polydomo.broker.sharing.shared_runs import RunOwner, SharedRuns
from polydomo.broker.state import State
from polydomo.model.broker_api import BrokerApi
from polydomo.model.flows.growth import is_growth
from polydomo.model.name_patterns import PatternMap
from polydomo.model.records import Request
from polydomo.model.shared_run import MEMOISED, SharedRun
from polydomo.protocols.memo.store_api import MemoValues, StoreFault
from polydomo.wire.frames import Body

KEY_SIZE: Final = 32


class Memoiser(RunOwner):
    """See the module docstring."""

    def __init__(
        self,
        api: BrokerApi,
        state: State,
        store: MemoValues,
        names: "PatternMap[bool]",
        versions: "PatternMap[str]",
    ) -> None:
        self.state = state
        self.runs = SharedRuns(api, state, self, MEMOISED, False)
        self.store = store
        self.names = names
        self.versions = versions
        self.hits = 0  # answered from the store
        self.misses = 0  # run by a worker
        self.joined = 0  # answered with the reply to an identical request
        self.faults = 0  # replies that could not be stored

    def takes(self, service: bytes) -> bool:
        """Whether requests for this service are memoised."""
        return self.names.get(service) is True

    def version_of(self, service: bytes) -> str:
        return self.versions.get(service) or ""

    def key_of(self, service: bytes, body: Body) -> bytes:
        digest = blake2b(digest_size=KEY_SIZE)
        for part in (service, self.version_of(service).encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        digest.update(body)
        return digest.digest()

    # --- requests of clients

    def serve(self, request: Request, needs_worker: bool) -> None:
        """Handles an accepted request of a client."""
        state = self.state
        runs = self.runs
        key = self.key_of(request.service.name, request.body)
        runs.hold(request)
        run = runs.open.get(key)
        if run is not None:
            self.joined += 1
            state.recorder.memoised(request, "joined")
            runs.join(run, request)
            return
        try:
            kept = self.store.reply(key)
        except StoreFault:
            kept = None  # an error of the store must not fail the request
        if kept is not None:
            self.hits += 1
            state.recorder.memoised(request, "hit")
            if isinstance(request.ref, Job):
                request.ref.reused = True
            runs.broker.final(runs.worker, request.token, kept)
        else:
            self._run(key, request, needs_worker)

    def _run(self, key: bytes, request: Request, needs_worker: bool) -> None:
        """A worker runs it. The journal gets its row here and nowhere else, so that no run is without one."""
        self.misses += 1
        self.state.recorder.memoised(request, "miss")
        self.runs.start(key, request, needs_worker, request.service.name, request.body)

    def on_reply(self, run: SharedRun, body: bytes) -> None:
        """Stores the reply. Failures are not stored, so the next request runs again, nor is a flow that a worker answered with: it belongs
        to the job that it ran."""
        if is_growth(body):
            return
        name = run.service.name
        try:
            self.store.put_reply(run.key, name.decode("utf-8", "replace"), self.version_of(name), body)
        except StoreFault:
            self.faults += 1

    def keeps_running(self, run: SharedRun, disconnected: bool) -> float:
        """A run that a worker has begun continues: its reply is stored, and a client that repeats the request gets it."""
        return -1.0

    # --- polydomo.memo

    def answer(self, command: "dict[str, object]") -> object:
        """Answers ``polydomo memo ls|rm|stats``."""
        try:
            return self._answer(command)
        except StoreFault as error:
            return {"error": f"the memo store cannot do this: {error}"}

    def _answer(self, command: "dict[str, object]") -> object:
        op, service = command.get("op", "stats"), command.get("service")
        if op == "ls":
            return self.store.replies()
        if op == "rm" and isinstance(service, str) and service:
            return {"removed": self.store.remove_replies(service)}
        if op == "stats":
            counts = {
                "hits": self.hits,
                "misses": self.misses,
                "joined": self.joined,
                "running": len(self.runs.open),
                "faults": self.faults,
            }
            return {
                "services": [name for name, memo in self.names.values.items() if memo],
                **counts,
                **self.store.stats(),
            }
        return {"error": 'op must be "ls", "stats", or "rm" with a service'}
