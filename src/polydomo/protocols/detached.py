"""A link without a connection, for internal sessions of the broker and sessions that outlive their connections."""

from polydomo.wire.link import Link


class DetachedLink(Link):
    """Discards all output."""

    wire = "none"

    def notify_owner(self) -> None:
        pass
