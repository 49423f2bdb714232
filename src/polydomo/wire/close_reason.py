"""Why a connection ends: a cause that code can test, with a text for logs."""

from enum import Enum


class CloseCause(Enum):
    """The value is the text that logs and events show."""

    PEER_CLOSED = "connection closed"
    AFTER_DISCONNECT = "closed after DISCONNECT"
    COMPLETE = "complete"  # all requests were answered, or the connection was idle (HTTP)
    CONNECTION_LOST = "connection lost"
    VIOLATION = "protocol violation"
    DENIED = "access denied"
    NOT_READING = "the peer does not read"
    MEMORY = "the broker is short of memory"
    SILENT = "the peer is silent"
    REFUSED = "refused"
    OTHER = ""  # only the detail is shown


ORDERLY = frozenset((CloseCause.PEER_CLOSED, CloseCause.AFTER_DISCONNECT, CloseCause.COMPLETE))


class CloseReason:
    """A cause with optional detail."""

    __slots__ = ("cause", "detail")

    def __init__(self, cause: CloseCause, detail: str = "") -> None:
        self.cause = cause
        self.detail = detail

    @property
    def orderly(self) -> bool:
        """Whether the peer disconnected normally, which needs no warning."""
        return self.cause in ORDERLY

    def __str__(self) -> str:
        text = self.cause.value
        return f"{text}: {self.detail}" if text and self.detail else text or self.detail
