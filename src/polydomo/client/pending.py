"""The state of open calls until their outcome."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from math import inf

from polydomo.client.message import Result
from polydomo.errors import CallFailed, CallTimeout, NoSuchService, PolydomoError
from polydomo.limits import DEADLINE_TOLERANCE, MAX_MESSAGE, STREAM_BACKLOG
from polydomo.model.outcomes import NO_WORKER, TIMEOUT, TOO_LARGE
from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols.ends import Failure, Progressed, Reply

log = logging.getLogger("polydomo.client")

OnProgress = Callable[[float, str], object]  # a share from 0 to 1, and a text


class Pending:
    """One open call. Its outcome is set once; later events are ignored."""

    done = False
    expired = False  # its timeout passed
    deadline = inf  # in the time of the event loop; the broker has it, too
    timeout = inf  # the seconds from the call to the deadline
    on_progress: OnProgress | None = None  # called on the event loop

    def __init__(self, service: bytes, headers: bytes, options: RequestOptions = PLAIN) -> None:
        self.service = service
        self.options = options  # the idempotency key and the marks
        self.headers = headers  # the caller's headers, as encoded by the protocol

    def on_reply(self, reply: Reply) -> None:
        raise NotImplementedError

    def progressed(self, event: Progressed) -> None:
        """A fault of the caller's function must not end the call."""
        if self.on_progress is not None and not self.done:
            try:
                self.on_progress(event.share, event.text)
            except Exception:
                log.exception("on_progress failed for a call of %s", self.service.decode(errors="replace"))

    def end(self, error: PolydomoError) -> None:
        raise NotImplementedError

    def on_failure(self, failure: Failure) -> None:
        name = self.service.decode(errors="replace")
        if failure.code == NO_WORKER:
            self.end(NoSuchService(f"{name}: {failure.text}" if failure.text else f"no worker offers {name}"))
        elif failure.code == TIMEOUT and asyncio.get_running_loop().time() + DEADLINE_TOLERANCE >= self.deadline:
            self.end(self._too_late())  # both ends watch the deadline: the caller gets the same error from either
        elif failure.code == TIMEOUT:
            self.end(CallTimeout(f"{name}: {failure.text or 'the broker gave up waiting'}"))
        else:
            self.end(CallFailed(failure.code, failure.text))

    def expire(self) -> None:
        self.expired = True
        self.end(self._too_late())

    def _too_late(self) -> CallTimeout:
        return CallTimeout(f"no reply from {self.service.decode(errors='replace')} within {self.timeout:.3g} s")


class Single(Pending):
    """A call with one result. Partial replies are joined in front of the final one, as a broker does for protocols without partial
    replies."""

    def __init__(
        self, service: bytes, headers: bytes, loop: asyncio.AbstractEventLoop, options: RequestOptions = PLAIN
    ) -> None:
        super().__init__(service, headers, options)
        self.future: asyncio.Future[Result] = loop.create_future()
        self.parts: list[bytes] = []
        self.size = 0

    def on_reply(self, reply: Reply) -> None:
        if self.done or self.future.done():
            return
        if reply.final:
            self.done = True
            if self.parts:  # an empty final reply after partial replies only ends the stream
                self.future.set_result(Result(self.parts + reply.body if any(reply.body) else self.parts))
            else:
                self.future.set_result(Result(reply.body))
            return
        self.parts += reply.body
        self.size += sum(map(len, reply.body))
        if self.size > MAX_MESSAGE:
            self.end(
                CallFailed(
                    TOO_LARGE,
                    f"the partial replies exceed {MAX_MESSAGE} bytes; use stream() to receive them one by one",
                )
            )

    def end(self, error: PolydomoError) -> None:
        if not self.done:
            self.done = True
            if not self.future.done():  # the future may have been cancelled
                self.future.set_exception(error)


class Stream(Pending):
    """A call that yields each part. Unread parts are buffered, up to a limit."""

    def __init__(
        self, service: bytes, headers: bytes, loop: asyncio.AbstractEventLoop, options: RequestOptions = PLAIN
    ) -> None:
        super().__init__(service, headers, options)
        self.loop = loop
        self.parts: deque[Result] = deque()
        self.size = 0
        self.error: PolydomoError | None = None
        self.waiter: asyncio.Future[None] | None = None

    def on_reply(self, reply: Reply) -> None:
        if self.done:
            return
        self.done = reply.final
        self.parts.append(Result(reply.body, reply.final))
        self.size += sum(map(len, reply.body))
        if self.size > STREAM_BACKLOG and not self.done:
            self.end(CallFailed(TOO_LARGE, f"the reader of the stream is more than {STREAM_BACKLOG} bytes behind"))
        self._wake()

    def end(self, error: PolydomoError) -> None:
        if not self.done:
            self.done = True
            self.error = error
            self._wake()

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def next(self) -> Result:
        """The next part. The error that ended the stream is raised after all parts."""
        while not self.parts:
            if self.error is not None:
                raise self.error
            self.waiter = self.loop.create_future()
            await self.waiter
        part = self.parts.popleft()
        self.size -= sum(map(len, part))
        return part
