"""Why a connection ends: a cause that the program can test, with a text for people."""

from enum import Enum


class CloseCause(Enum):
    """The value is the text that logs and events show."""

    PEER_CLOSED = "connection closed"
    AFTER_DISCONNECT = "closed after DISCONNECT"
    COMPLETE = "complete"  # everything was answered, or nothing was asked for a while (HTTP)
    CONNECTION_LOST = "connection lost"
    VIOLATION = "protocol violation"
    DENIED = "access denied"
    NOT_READING = "the peer does not read"
    MEMORY = "the broker is short of memory"
    SILENT = "the peer is silent"
    REFUSED = "refused"
    OTHER = ""  # the detail says it all


ORDERLY = frozenset((CloseCause.PEER_CLOSED, CloseCause.AFTER_DISCONNECT, CloseCause.COMPLETE))


class CloseReason:
    """A cause, and what is known beyond it."""

    __slots__ = ("cause", "detail")

    def __init__(self, cause: CloseCause, detail: str = "") -> None:
        self.cause = cause
        self.detail = detail

    @property
    def orderly(self) -> bool:
        """The peer has left, and nothing went wrong: not worth a warning."""
        return self.cause in ORDERLY

    def __str__(self) -> str:
        text = self.cause.value
        return f"{text}: {self.detail}" if text and self.detail else text or self.detail
