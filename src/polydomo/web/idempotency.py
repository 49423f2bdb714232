"""``Idempotency-Key``: a repeated call gets the reply to the first one, as long as it is stored. A call that is repeated while the first
one runs joins it (``broker/sharing/keyed.py``).

Only replies and failures reported by a worker are stored: a call that found no worker or hit a limit has not run, and may be tried again.
Replies are kept in memory. For calls that must survive a restart, use durable jobs, which accept the same key.
"""

from hashlib import blake2b
from typing import Final

from polydomo.limits import IDEMPOTENCY_BYTES, IDEMPOTENCY_KEYS, IDEMPOTENCY_TIME
from polydomo.model.outcomes import FAILED, KEY_REUSED
from polydomo.model.records import DONE, Request
from polydomo.web.session import Exchange, HttpSession
from polydomo.wire.frames import Body
from polydomo.wire.http.head import HttpError

Key = tuple[str, bytes, str]  # principal, service, the client's key

OVERHEAD: Final = 500  # memory of an entry besides its reply


class KeyedCall:
    """One call under a key."""

    __slots__ = ("at", "body", "code", "digest", "request", "text")

    def __init__(self, digest: bytes, at: float) -> None:
        self.digest = digest  # of the request's body: the same key with another body is a mistake
        self.at = at
        self.request: Request | None = None
        self.body: bytes | None = None  # of the final reply
        self.code = ""  # of a failure that the worker reported
        self.text = ""

    @property
    def ended(self) -> bool:
        """Whether the outcome is stored."""
        return self.body is not None or bool(self.code)


class KeptExchange(Exchange):
    """Stores the outcome that is passed to ``inner``."""

    def __init__(self, inner: Exchange, entry: KeyedCall, kept: "Idempotency", key: Key) -> None:
        self.inner = inner
        self.entry = entry
        self.kept = kept
        self.key = key
        self.trace = inner.trace

    def final(self, request: Request, body: Body) -> None:
        if not self.entry.ended:
            self.entry.body = bytes(body)
            self.entry.request = request
            self.kept.settled(self.key, self.entry)
        self.inner.final(request, body)

    def failure(self, request: Request, code: str, text: str) -> None:
        if self.entry.ended:
            pass  # stored by a call that waited for the same run
        elif request.outcome == FAILED:
            self.entry.code, self.entry.text = code, text
            self.entry.request = request
            self.kept.settled(self.key, self.entry)
        elif self.entry.request is None or self.entry.request is request:
            self.kept.forget(self.key)
        self.inner.failure(request, code, text)


class Idempotency:
    """Stored calls by key; the oldest are evicted."""

    def __init__(self) -> None:
        self._entries: dict[Key, KeyedCall] = {}
        self._bytes = 0

    def memory(self) -> int:
        """Bytes held."""
        return self._bytes

    def begin(self, session: HttpSession, service: bytes, body: bytes, name: str, inner: Exchange) -> Exchange | None:
        """The exchange for a call that runs or joins one; None if ``inner`` got the stored reply of an earlier one. Raises HttpError."""
        now = session.broker.now
        key = (session.principal, service, name)
        digest = blake2b(body, digest_size=16).digest()
        self._expire(now)
        entry = self._entries.get(key)
        if entry is not None and entry.request is not None and entry.request.state == DONE:
            if not entry.ended:
                self.forget(key)  # its client disconnected before it ended
                entry = None
        if entry is not None:
            # the right may have been revoked since the first call
            why = session.broker.denial(session, "call", service.decode("utf-8", "backslashreplace"))
            if why:
                raise HttpError(403, why, close=False)
            if entry.digest != digest:
                raise HttpError(
                    422, "the Idempotency-Key was used before with another body", close=False, type_=KEY_REUSED
                )
            request = entry.request
            if request is None or not entry.ended:
                return KeptExchange(inner, entry, self, key)
            if entry.body is not None:
                inner.final(request, entry.body)
            else:
                inner.failure(request, entry.code, entry.text)
            return None
        entry = self._entries[key] = KeyedCall(digest, now)
        self._bytes += OVERHEAD
        while len(self._entries) > IDEMPOTENCY_KEYS:
            self.forget(next(iter(self._entries)))
        return KeptExchange(inner, entry, self, key)

    def started(self, exchange: Exchange, request: Request | None) -> None:
        """Called when the call was made."""
        if isinstance(exchange, KeptExchange):
            entry = exchange.entry
            if request is not None and not entry.ended:
                entry.request = request
            elif entry.request is None:
                self.forget(exchange.key)

    def settled(self, key: Key, entry: KeyedCall) -> None:
        if self._entries.get(key) is entry:
            self._bytes += len(entry.body or b"")
            while self._bytes > IDEMPOTENCY_BYTES and self._entries:
                self.forget(next(iter(self._entries)))

    def forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= OVERHEAD + len(entry.body or b"")

    def _expire(self, now: float) -> None:
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if now - entry.at < IDEMPOTENCY_TIME:
                return
            self.forget(key)
