"""Names that belong to the broker: its own services, and the topics that only it publishes."""

from typing import Final

# Topics.
MONITOR: Final = b"monitor."  # state changes and metrics; every topic of the broker begins with this
ENDED: Final = b"monitor.ended"  # requests as they end; a subscription to a shorter prefix does not include them
TAP: Final = b"monitor.tap."  # messages of requests; a subscription to a shorter prefix does not include them


# Services.
ACCEPT: Final = b"polydomo.accept"  # (``jobs.relay``) only for the processes of one broker
JOIN: Final = b"polydomo.join"  # (``sharing.keyed``) likewise
OWN: Final = b"polydomo."
MMI: Final = b"mmi."
TITANIC: Final = b"titanic."  # (RFC 9) if the broker has a job store


def is_reserved(name: bytes) -> bool:
    """Whether the broker itself answers requests to this name."""
    return name.startswith((MMI, OWN))
