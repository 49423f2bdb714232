"""The future of a call that was submitted by a blocking client."""

from collections.abc import Callable
from concurrent.futures import Future

from polydomo.client.message import Result


class CallFuture(Future[Result]):
    """Like the future of an executor, but ``cancel`` returns True only if the request is also cancelled at the broker."""

    def __init__(self, running: "Future[Result]", cancels: Callable[[], bool]) -> None:
        super().__init__()
        self._running = running
        self._cancels = cancels
        running.add_done_callback(self._over)

    def cancel(self) -> bool:
        if self.cancelled():
            return True
        if self.done() or not self._cancels() or not self._running.cancel():
            return False
        return super().cancel()

    def _over(self, running: "Future[Result]") -> None:
        if running.cancelled():
            super().cancel()
        if not self.set_running_or_notify_cancel():
            return
        error = running.exception()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(running.result())
