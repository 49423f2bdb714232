"""The protocols by name, for whoever dials: which end speaks which.

Broker sessions are not listed here: a broker learns a peer's protocol from its first message.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from polydomo.errors import SettingError
from polydomo.protocols import emqp_headers
from polydomo.protocols.dcp_ends import DcpClientEnd, DcpWorkerEnd
from polydomo.protocols.emqp_ends import EmqpClientEnd, EmqpWorkerEnd
from polydomo.protocols.ends import ClientEnd, WorkerEnd
from polydomo.protocols.mdp_ends import Mdp1ClientEnd, Mdp1WorkerEnd, Mdp2ClientEnd, Mdp2WorkerEnd
from polydomo.protocols.mdx_ends import MdxClientEnd, MdxWorkerEnd
from polydomo.protocols.memo_ends import MemoClientEnd, MemoWorkerEnd

DEFAULT = "mdx"  # it has ids, so one connection carries many requests, and partials


@dataclass(frozen=True)
class Dialer:
    """What there is to know of a protocol before its first connection."""

    name: str
    title: str  # for people
    client: Callable[..., ClientEnd]
    worker: Callable[..., WorkerEnd]
    several: bool = False  # one worker connection may offer several services
    headers: "Callable[[Mapping[str, str | float | None]], bytes] | None" = (
        None  # writes those of a request, where it can have any
    )


DIALERS = (
    Dialer("mdx", "MDX/0.1", MdxClientEnd, MdxWorkerEnd),
    Dialer("mdp1", "MDP/0.1", Mdp1ClientEnd, Mdp1WorkerEnd),
    Dialer("mdp2", "MDP/0.2", Mdp2ClientEnd, Mdp2WorkerEnd),
    Dialer("dcp", "DCP v1", DcpClientEnd, DcpWorkerEnd, several=True),
    Dialer("memo", "memo01", MemoClientEnd, MemoWorkerEnd, several=True),
    Dialer("emqp", "eMQP/1.0", EmqpClientEnd, EmqpWorkerEnd, several=True, headers=emqp_headers.write),
)

ALIASES = {
    "mdp/0.1": "mdp1",
    "mdp01": "mdp1",
    "mdp/0.2": "mdp2",
    "mdp02": "mdp2",
    "mdp": "mdp2",
    "mdx/0.1": "mdx",
    "mdx01": "mdx",
    "dagbox": "dcp",
    "dcp/1": "dcp",
    "dcp1": "dcp",
    "memo01": "memo",
    "memodb": "memo",
    "emqp/1.0": "emqp",
    "eventmq": "emqp",
}

_BY_NAME = {dialer.name: dialer for dialer in DIALERS}


def find(protocol: str) -> Dialer:
    """The protocol of that name, in any case and under any of its usual spellings. Raises SettingError.

    >>> find("MDP/0.2").name
    'mdp2'
    """
    name = protocol.strip().lower()
    dialer = _BY_NAME.get(ALIASES.get(name, name))
    if dialer is None:
        raise SettingError(f"protocol: {protocol!r} is not one of {', '.join(_BY_NAME)}")
    return dialer


def names() -> list[str]:
    return list(_BY_NAME)


def client_end(protocol: str, **options: object) -> ClientEnd:
    """A client of ``protocol`` for one new connection."""
    return find(protocol).client(**options)


def worker_end(protocol: str, **options: object) -> WorkerEnd:
    """A worker of ``protocol`` for one new connection."""
    return find(protocol).worker(**options)
