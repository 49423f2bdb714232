"""One run of a service whose reply goes to several clients' requests."""

from typing import Final

from polydomo.model.records import Request, Service
from polydomo.wire.frames import Body

KEYED: Final = "keyed"  # the protocols under which runs are listed and counted
MEMOISED: Final = "memoised"


class SharedRun:
    """An internal request, and the clients' requests that wait for its reply. It is the ``Request.ref`` of the internal request.

    ``broker.sharing.shared_runs`` writes it; sessions of workers read ``first_ref``.
    """

    __slots__ = (
        "body",
        "first_ref",
        "key",
        "lingers_until",
        "origin",
        "parts",
        "parts_size",
        "request",
        "service",
        "waiting",
    )

    def __init__(self, key: bytes, first: Request) -> None:
        self.key = key
        self.service: Service = first.service
        self.body: Body = first.body
        self.first_ref: object = first.ref  # of the request that started it: its headers and trace go to the worker
        self.origin = first.origin  # the principal for which it runs
        self.request: Request | None = None  # the internal request, once it was accepted
        self.waiting: dict[bytes, Request] = {}  # token -> request
        self.parts: list[Body] | None = []  # partial replies so far, for requests that join later; None: too many
        self.parts_size = 0  # bytes
        self.lingers_until = 0.0  # no client waits: when it is cancelled


def first_ref(ref: object) -> object:
    """The ``ref`` that the first client's session gave, if ``ref`` is that of a shared run; otherwise ``ref`` itself."""
    return ref.first_ref if isinstance(ref, SharedRun) else ref
