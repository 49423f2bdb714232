"""The participants of the matrix: every kind of client and worker, each with its properties."""

from collections.abc import Callable
from dataclasses import dataclass

from polydomo.protocols.dbp.ends import DbpWorkerEnd
from polydomo.protocols.dcp.ends import DcpClientEnd, DcpWorkerEnd
from polydomo.protocols.emqp.ends import EmqpClientEnd, EmqpWorkerEnd
from polydomo.protocols.ends import ClientEnd, WorkerEnd
from polydomo.protocols.mdp.ends import Mdp1WorkerEnd, Mdp2ClientEnd, Mdp2WorkerEnd
from polydomo.protocols.mdx.ends import MdxClientEnd, MdxWorkerEnd
from polydomo.protocols.memo.ends import MemoClientEnd, MemoWorkerEnd
from sim.document_ends import DcpAddressedClientEnd, EmqpDocumentClientEnd
from sim.http_ends import HttpClientEnd, HttpWorkerEnd
from tests.across.dialects import (
    AsciiClientEnd,
    AsciiWorkerEnd,
    GuideDigitsWorkerEnd,
    GuidePhpWorkerEnd,
    LibmdpClientEnd,
    LibmdpWorkerEnd,
    MajortomoClientEnd,
    MajortomoWorkerEnd,
    Mdp1ReqClientEnd,
    Rfc18ReqClientEnd,
)


@dataclass(frozen=True)
class ClientKind:
    name: str
    end: Callable[[], ClientEnd]
    partials: bool = False  # it hears partials as they come
    single: bool = False  # its bodies are one frame
    timed: bool = False  # it tells the broker how long it will wait
    gets_failures: bool = False  # its protocol has a message for failures


@dataclass(frozen=True)
class WorkerKind:
    name: str
    end: Callable[[], WorkerEnd]
    partials: bool = False  # its protocol has partials
    single: bool = False
    reports_failures: bool = False  # it can tell of a failure
    polls: bool = False  # silent while it works, by its protocol
    alone: bool = False  # a service has one worker; another one takes its place
    strict: bool = False  # its document demands heartbeats while it works, too
    shown_by_reply: bool = False  # its dialect shows in its first reply that begins with a frame that is not empty


CLIENTS = {
    kind.name: kind
    for kind in (
        ClientKind("mdp1", Mdp1ReqClientEnd),
        ClientKind("rfc18", Mdp2ClientEnd, partials=True),
        ClientKind("rfc18-req", Rfc18ReqClientEnd),
        ClientKind("majortomo", MajortomoClientEnd, partials=True),
        ClientKind("libmdp", LibmdpClientEnd),
        ClientKind("zmq-mdp2", AsciiClientEnd, partials=True),
        ClientKind("mdx", MdxClientEnd, partials=True, gets_failures=True),
        ClientKind("dcp", DcpClientEnd),
        ClientKind("dcp-addressed", DcpAddressedClientEnd),
        ClientKind("memo", MemoClientEnd, single=True, timed=True),
        ClientKind("emqp", EmqpClientEnd, single=True, timed=True),
        ClientKind("emqp-document", EmqpDocumentClientEnd, single=True),
        ClientKind("http", HttpClientEnd, partials=True, gets_failures=True),
    )
}

WORKERS = {
    kind.name: kind
    for kind in (
        WorkerKind("mdp1", Mdp1WorkerEnd),
        WorkerKind("guide-php", GuidePhpWorkerEnd, shown_by_reply=True),
        WorkerKind("guide-digits", GuideDigitsWorkerEnd),
        WorkerKind("rfc18", Mdp2WorkerEnd, partials=True),
        WorkerKind("majortomo", MajortomoWorkerEnd, partials=True),
        WorkerKind("libmdp", LibmdpWorkerEnd),
        WorkerKind("zmq-mdp2", AsciiWorkerEnd, partials=True),
        WorkerKind("mdx", MdxWorkerEnd, partials=True, reports_failures=True, strict=True),
        WorkerKind("dcp", DcpWorkerEnd, strict=True),
        WorkerKind("dagbox", lambda: DcpWorkerEnd(type_size=4)),
        WorkerKind("memo", MemoWorkerEnd, single=True, polls=True),
        WorkerKind("emqp", EmqpWorkerEnd, single=True, strict=True),
        WorkerKind("http", HttpWorkerEnd, partials=True, reports_failures=True),
        WorkerKind("dbp", DbpWorkerEnd, reports_failures=True, alone=True, strict=True),
    )
}

PAIRS = [(client, worker) for client in CLIENTS for worker in WORKERS]
