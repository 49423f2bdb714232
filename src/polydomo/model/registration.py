"""The registration of a worker: its terms, and why the broker refuses it."""


class WorkerTerms:
    """The terms on which a worker registers.

    It may hold ``auto_credit`` requests without asking for each; 0: only ``credit`` requests, and what it asks for later. The broker sends
    it a heartbeat every ``heartbeat_interval`` seconds, and it is lost after ``max_silence`` seconds; 0: no heartbeats, no limit.
    ``strict``: that holds while it is busy, too; otherwise it is allowed ``busy_timeout`` then, until it has sent a heartbeat while busy.
    """

    __slots__ = ("auto_credit", "credit", "heartbeat_interval", "max_silence", "strict")

    def __init__(
        self,
        credit: int = 0,
        auto_credit: int = 0,
        heartbeat_interval: float = 0.0,
        max_silence: float = 0.0,
        strict: bool = False,
    ) -> None:
        self.credit = credit
        self.auto_credit = auto_credit
        self.heartbeat_interval = heartbeat_interval
        self.max_silence = max_silence
        self.strict = strict


class Refusal:
    """``text`` is for the peer and the log. ``denied``: access control refused it, which has been recorded as a denial."""

    __slots__ = ("denied", "text")

    def __init__(self, text: str, denied: bool = False) -> None:
        self.text = text
        self.denied = denied
