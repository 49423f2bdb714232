"""Names of the broker's own services that several modules use."""

from typing import Final

ACCEPT: Final = b"polydomo.accept"  # (``jobs.relay``) only for the processes of one broker
JOIN: Final = b"polydomo.join"  # (``sharing.keyed``) likewise
CONTROL: Final[frozenset[bytes]] = frozenset(
    (b"polydomo.pause", b"polydomo.resume", b"polydomo.drain", b"polydomo.withdraw")
)
OWN: Final = b"polydomo."


def is_reserved(name: bytes) -> bool:
    """Whether the broker itself answers requests to this name."""
    return name.startswith((b"mmi.", OWN))
