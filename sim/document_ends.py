"""Clients that are written to a protocol's document alone, where our own library sends another form."""

from zlib import crc32

from polydomo.model.request_options import PLAIN, RequestOptions
from polydomo.protocols.dcp.ends import DcpClientEnd
from polydomo.protocols.emqp.commands import HEADER
from polydomo.protocols.emqp.ends import EmqpClientEnd
from polydomo.protocols.ends import ClientEnd, Frames
from sim.http_ends import client_end

ADDRESSED = b"own "  # how the identities of clients that send theirs begin


class EmqpDocumentClientEnd(EmqpClientEnd):
    """As the document prints a REQUEST: the command is READY, and the headers are "an empty set"."""

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        msgid = self.new_id()
        self.track(key, msgid)
        self.out.append([b"", HEADER, b"READY", msgid, service, b"", b"".join(body)])


class DcpAddressedClientEnd(DcpClientEnd):
    """ "Client address. This part is optional for clients": its own identity stands in front of each request."""

    def __init__(self, name: str = "client") -> None:
        super().__init__()
        self.identity = ADDRESSED + name.encode()

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        options: RequestOptions = PLAIN,
    ) -> None:
        super().request(key, service, body, timeout, headers, options)
        self.out[-1].insert(4, self.identity)


def client_end_of(protocol: str, name: str) -> ClientEnd:
    """The end of a simulated client: the document's form for about a third of the names. A random number would change the runs of all
    seeds."""
    if crc32(name.encode()) % 3 == 2:
        if protocol == "emqp":
            return EmqpDocumentClientEnd()
        if protocol == "dcp":
            return DcpAddressedClientEnd(name)
    return client_end(protocol)
