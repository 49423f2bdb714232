"""The settings of the broker core, with the limits that apply. ``limits.py`` defines and explains the defaults.

A limit that follows from two settings is computed here, once. Nothing changes a policy afterwards, so every reader sees the same number.
"""

from dataclasses import dataclass, field

from polydomo import limits
from polydomo.model.service_limits import LimitPatterns


@dataclass(frozen=True)
class Policy:
    attempts: int = limits.ATTEMPTS
    queue_expiry: float = limits.QUEUE_EXPIRY
    unattended_expiry: float = limits.UNATTENDED_EXPIRY  # the same for requests whose clients do not wait for a reply
    requeue_after_partial: bool = False
    max_outstanding: int = limits.MAX_OUTSTANDING
    max_queue: int = limits.MAX_QUEUE
    max_unattended: int = limits.MAX_UNATTENDED
    max_held_bytes: int = limits.MAX_HELD_BYTES  # at most half of ``max_memory``
    max_client_bytes: int = limits.MAX_CLIENT_BYTES
    max_memory: int = 0  # maximum bytes of everything the broker holds; 0: no limit
    max_services: int = limits.MAX_SERVICES
    max_message: int = limits.MAX_MESSAGE
    max_values: int = limits.MAX_VALUES
    max_value_bytes: int = limits.MAX_VALUE_BYTES
    limits: LimitPatterns = field(default_factory=LimitPatterns)  # of services

    def __post_init__(self) -> None:
        # Bodies may take half of the memory; the rest is for buffers, connections and subscriptions.
        if self.max_memory and self.max_held_bytes > self.max_memory // 2:
            object.__setattr__(self, "max_held_bytes", self.max_memory // 2)
