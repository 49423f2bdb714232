"""The options of a request."""

from typing import Final


class RequestOptions:
    """What a request asks for besides its deadline. Requests share one object, so it is never changed.

    ``max_wait`` limits the seconds in the queue (0: the general expiry, which applies only while the service has no worker). ``max_run``
    limits each attempt (memo01). ``attempts`` overrides the default (0). ``fallback`` is the service to use if no worker offers the one
    that was asked for (eMQP's ``default``). ``needs_worker``: the request fails if no worker offers the service. ``guarantee``: store the
    request in the job store, if there is one, whatever its service. ``key`` is an idempotency key: while a request of this principal for
    this service is open under the same key, this one joins it. ``reuse``: a stored reply to an equal request answers it, as if the service
    were memoised.
    """

    __slots__ = ("attempts", "fallback", "guarantee", "key", "max_run", "max_wait", "needs_worker", "reuse")

    def __init__(
        self,
        max_wait: float = 0.0,
        max_run: float = 0.0,
        attempts: int = 0,
        fallback: bytes = b"",
        needs_worker: bool = False,
        guarantee: bool = False,
        key: bytes = b"",
    ) -> None:
        self.max_wait = max_wait
        self.max_run = max_run
        self.attempts = attempts
        self.fallback = fallback
        self.needs_worker = needs_worker
        self.guarantee = guarantee
        self.key = key
        self.reuse = False


PLAIN: Final = RequestOptions()
NEEDS_WORKER: Final = RequestOptions(needs_worker=True)


def options_of(needs_worker: bool, key: bytes) -> RequestOptions:
    """The options of a call that may have an idempotency key. Without one, nothing is allocated."""
    if key:
        return RequestOptions(needs_worker=needs_worker, key=key)
    return NEEDS_WORKER if needs_worker else PLAIN
