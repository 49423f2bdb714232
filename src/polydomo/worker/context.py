"""Which request the code that runs right now belongs to: set by the worker around each call of a function, in its thread or task."""

from contextvars import ContextVar


class Running:
    """The call that is being served."""

    __slots__ = ("request", "service")

    def __init__(self, service: str, request: str) -> None:
        self.service = service
        self.request = request  # what the broker knows it by; ``polydomo logs --request`` finds it


RUNNING: ContextVar[Running | None] = ContextVar("polydomo_running", default=None)


def running() -> Running | None:
    """The call that is being served here, None outside of any."""
    return RUNNING.get()
