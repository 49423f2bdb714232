"""Memoised services: replies are stored and reused, and identical concurrent requests run once.

Two requests are identical if their service, version and body are equal.

To the rest of the broker, the memoiser is a worker that holds the clients' requests, and a client that sends one internal request for
each distinct body. So deadlines, cancellation, the journal and outcomes work as for any other request. Partial replies of a memoised
service are joined.
"""

from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from polydomo.broker import dispatch, outcomes, replies
from polydomo.limits import MAX_MEMO_NAMES, MEMO_PRUNE
from polydomo.protocols.detached import DetachedLink
from polydomo.protocols.memo_values import MemoValues, StoreFault
from polydomo.protocols.model import Service, Worker
from polydomo.protocols.request import DONE, FAILED, HELD, OUTCOMES, Request
from polydomo.protocols.session import Session
from polydomo.wire.closing import CloseCause, CloseReason
from polydomo.wire.frames import Body
from polydomo.wire.link import Handler, Hub

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

KEY_SIZE: Final = 32


class Shared:
    """An internal request, and the clients' requests that wait for its reply. It is the ``Request.ref`` of the internal request."""

    __slots__ = ("key", "request", "service", "waiting")

    def __init__(self, key: bytes, service: Service) -> None:
        self.key = key
        self.service = service
        self.request: Request | None = None
        self.waiting: dict[bytes, Request] = {}  # token -> request


class MemoClient(Session):
    """Sends the internal requests on behalf of one client, so that scheduling between clients is as fair as without memoising."""

    protocol = "memoised"
    runs_memoised = True
    refuses_at_limit = True

    def __init__(self, memoiser: "Memoiser", asker: Session) -> None:
        super().__init__(memoiser.broker, DetachedLink(Hub(), Handler(), asker.link.peer))
        self.memoiser = memoiser
        self.asker = asker
        memoiser.broker.session_opened(self)

    def send_final(self, request: Request, body: Body) -> None:
        self.memoiser.replied(request, body)

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self.memoiser.failed(request, code, text)


class Memoiser(Session):
    """See the module docstring."""

    protocol = "memoised"

    def __init__(self, broker: "Broker", store: MemoValues, patterns: "list[str]", versions: "dict[str, str]") -> None:
        super().__init__(broker, DetachedLink(Hub(), Handler(), "the broker's memo store"))
        self.core = broker
        self.store = store
        self.patterns = patterns
        self.versions = {name.encode(): version for name, version in versions.items()}
        self.hits = 0  # answered from the store
        self.misses = 0  # run by a worker
        self.joined = 0  # answered with the reply to an identical request
        self.faults = 0  # replies that could not be stored
        self.open: dict[bytes, Shared] = {}  # by key
        self._holds: dict[Request, Shared] = {}  # a client's open request -> the internal request it waits for
        self._names: dict[bytes, bool] = {}
        self._clients: dict[Session, MemoClient] = {}  # sessions of internal requests, by client
        self._prune_at = MEMO_PRUNE
        broker.session_opened(self)
        worker = broker.register_worker(self, [], None, 0, 0, 0.0, 0.0)
        assert worker is not None
        self.worker: Worker = worker

    def takes(self, service: bytes) -> bool:
        """Whether requests for this service are memoised."""
        known = self._names.get(service)
        if known is None:
            if len(self._names) >= MAX_MEMO_NAMES:
                self._names.clear()
            name = service.decode("utf-8", "replace")
            known = self._names[service] = any(fnmatchcase(name, pattern) for pattern in self.patterns)
        return known

    def key_of(self, service: bytes, body: Body) -> bytes:
        digest = blake2b(digest_size=KEY_SIZE)
        for part in (service, self.versions.get(service, "").encode()):
            digest.update(len(part).to_bytes(4, "big") + part)
        digest.update(body)
        return digest.digest()

    # --- requests of clients

    def serve(self, request: Request, needs_worker: bool) -> None:
        """Handles an accepted request of a client."""
        service = request.service
        broker = self.core
        body = request.body
        key = self.key_of(service.name, body)
        if broker.records_messages:
            broker.recorder.credit_added(self.worker, 1)  # it takes every request that comes
        dispatch.dispatch(broker, request, self.worker)
        shared = self.open.get(key)
        if shared is None:
            try:
                kept = self.store.reply(key)
            except StoreFault:
                kept = None  # an error of the store must not fail the request
            if kept is not None:
                self.hits += 1
                broker.recorder.memoised(request, "hit")
                broker.final(self.worker, request.token, kept)
                return
            self.misses += 1
            broker.recorder.memoised(request, "miss")
            shared = self.open[key] = Shared(key, service)
            shared.waiting[request.token] = request
            self._holds[request] = shared
            own = broker.request(self._client(request.session), service.name, body, shared, needs_worker=needs_worker)
            if self.open.get(key) is shared:
                shared.request = own
            return
        self.joined += 1
        broker.recorder.memoised(request, "joined")
        shared.waiting[request.token] = request
        self._holds[request] = shared

    def _client(self, asker: Session) -> MemoClient:
        client = self._clients.get(asker)
        if client is None:
            if len(self._clients) >= self._prune_at:
                self._prune()
            client = self._clients[asker] = MemoClient(self, asker)
        return client

    def _prune(self) -> None:
        """Removes requests whose client has disconnected. Done when their number has doubled, so that the cost per request is small."""
        for asker, client in list(self._clients.items()):
            if asker.disconnected and not client.requests:
                del self._clients[asker]
                self.core.session_closed(client, CloseReason(CloseCause.PEER_CLOSED, "the client disconnected"))
        self._prune_at = max(MEMO_PRUNE, 2 * len(self._clients))

    def deliver(self, worker: Worker, request: Request) -> None:
        """Not used: ``serve`` takes the requests."""

    def cancel_request(self, worker: Worker, request: Request) -> bool:
        """Called when a client disconnected. An internal request without waiting clients is cancelled if it is still queued.

        If a worker runs it, it goes on: its reply is kept, and a client that repeats the request gets it without a second run.
        """
        shared = self._holds.pop(request, None)
        if shared is not None:
            shared.waiting.pop(request.token, None)
            own = shared.request
            runs = own is not None and own.state == HELD
            if not shared.waiting and self.open.get(shared.key) is shared and not runs:
                del self.open[shared.key]
                if own is not None and own.state != DONE:
                    outcomes.cancel(self.core, own, "no client is waiting for it")
        return True

    # --- replies of workers

    def replied(self, request: Request, body: Body) -> None:
        shared = request.ref
        if not isinstance(shared, Shared):
            return
        kept = bytes(body)
        name = shared.service.name
        try:
            self.store.put_reply(shared.key, name.decode("utf-8", "replace"), self.versions.get(name, ""), kept)
        except StoreFault:
            self.faults += 1
        for token in self._settle(shared):
            self.core.final(self.worker, token, kept)

    def failed(self, request: Request, code: str, text: str) -> None:
        """Failures are not stored, so the next request runs again."""
        shared = request.ref
        if not isinstance(shared, Shared):
            return
        for token in self._settle(shared):
            waiting = self.worker.held.pop(token, None)
            if waiting is None or waiting.state == DONE:
                continue
            if code in OUTCOMES and code != FAILED:
                outcomes.fail(self.core, waiting, code, text)
            else:
                replies.failed(self.core, waiting, code, text)

    def _settle(self, shared: Shared) -> "list[bytes]":
        """The tokens of the requests that waited for it."""
        if self.open.get(shared.key) is shared:
            del self.open[shared.key]
        waiting, shared.waiting = shared.waiting, {}
        for request in waiting.values():
            self._holds.pop(request, None)
        return list(waiting)

    # --- polydomo.memo

    def answer(self, command: "dict[str, object]") -> object:
        """Answers ``polydomo memo ls|rm|stats``."""
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
                "running": len(self.open),
                "faults": self.faults,
            }
            return {"services": self.patterns, **counts, **self.store.stats()}
        return {"error": 'op must be "ls", "stats", or "rm" with a service'}
