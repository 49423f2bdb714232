"""A link without a connection, for internal sessions of the broker and sessions that outlive their connections."""

from polydomo.wire.link import Link


class DetachedLink(Link):
    """Discards all output."""

    wire = "none"

    def notify_owner(self) -> None:
        pass


class InternalLink(DetachedLink):
    """The link of a client inside the broker, which is never paused."""

    def pause(self, cause: int) -> None:
        pass

    def resume(self, cause: int) -> None:
        pass
