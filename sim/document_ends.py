"""Clients that are written to a protocol's document alone, where our own library sends another form."""

from zlib import crc32

from polydomo.protocols.emqp.commands import HEADER
from polydomo.protocols.emqp.ends import EmqpClientEnd
from polydomo.protocols.ends import ClientEnd, Frames
from sim.http_ends import client_end


class EmqpDocumentClientEnd(EmqpClientEnd):
    """As the document prints a REQUEST: the command is READY, and the headers are "an empty set"."""

    def request(
        self,
        key: int,
        service: bytes,
        body: Frames,
        timeout: float = 0.0,
        headers: bytes = b"",
        idempotency_key: bytes = b"",
    ) -> None:
        msgid = self.new_id()
        self.track(key, msgid)
        self.out.append([b"", HEADER, b"READY", msgid, service, b"", b"".join(body)])


FORMS = {"emqp": EmqpDocumentClientEnd}


def client_end_of(protocol: str, name: str) -> ClientEnd:
    """The end of a simulated client: the document's form for about a third of the names. A random number would change the runs of all
    seeds."""
    form = FORMS.get(protocol) if crc32(name.encode()) % 3 == 2 else None
    return client_end(protocol) if form is None else form()
