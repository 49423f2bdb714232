"""What the tables of connections know about each connection. ``Connection`` does the rest."""

import asyncio

from polydomo.server.access.access import Identity
from polydomo.wire.link import Link


class BaseConnection(asyncio.Protocol):
    transport: asyncio.Transport
    link: Link | None = None
    peer = ""
    source = ""
    reading = True
    choked = False  # it is not read, because its peer does not read
    outgoing = False  # an outgoing connection
    identity: Identity | None = None  # with access control: the peer's identity
    principal = ""  # the principal whose connection count includes it
    watched = -1  # file descriptor, while the server watches it for closing
    since = 0.0  # when it was accepted

    def look_at_unsent(self) -> None:
        """Pauses or resumes a peer that reads more slowly than the broker writes."""
        raise NotImplementedError

    def close_transport(self) -> None:
        """Closes it once everything is sent."""
        raise NotImplementedError
