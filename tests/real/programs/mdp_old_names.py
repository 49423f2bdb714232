"""pyzmq-mdp is of 2012: it imports a name that pyzmq has dropped since. This puts it back."""

from collections.abc import Callable

from tornado.ioloop import IOLoop
from zmq.eventloop import ioloop


class DelayedCallback:
    """A callback after this many milliseconds."""

    def __init__(self, callback: Callable[[], object], milliseconds: float) -> None:
        self.callback = callback
        self.seconds = milliseconds / 1000

    def start(self) -> None:
        self.handle = IOLoop.current().call_later(self.seconds, self.callback)

    def stop(self) -> None:
        IOLoop.current().remove_timeout(self.handle)


ioloop.DelayedCallback = DelayedCallback  # type: ignore[attr-defined]
