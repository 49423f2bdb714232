"""The request that the current thread or task is serving. The worker sets it around each call of a function."""

from contextvars import ContextVar


class Running:
    """The call that is being served."""

    __slots__ = ("request", "service")

    def __init__(self, service: str, request: str) -> None:
        self.service = service
        self.request = request  # the broker's token of the attempt; ``polydomo logs --request`` finds it


RUNNING: ContextVar[Running | None] = ContextVar("polydomo_running", default=None)


def running() -> Running | None:
    """The call that is being served, None outside a call."""
    return RUNNING.get()
