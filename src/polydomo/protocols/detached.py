"""A link without a connection, for sessions that belong to the broker itself or that outlive their connections."""

from polydomo.wire.link import Link


class DetachedLink(Link):
    """Nothing is sent there, and nobody owns it."""

    wire = "none"

    def notify_owner(self) -> None:
        pass
