"""The roles of listeners. The shared port accepts everything; a listener with a role accepts only the matching peers.

A protocol that was designed for two sockets, a front end for clients and a back end for workers, can have both besides the shared port. A
peer at the wrong listener is rejected as its protocol prescribes: a worker's READY or INFORM is answered with DISCONNECT, a client's
request ends as refused, and a connection of another protocol is closed.
"""


class Role:
    def __init__(
        self, name: str, protocols: "tuple[str, ...]" = (), requests: bool = True, workers: bool = True
    ) -> None:
        self.name = name  # the setting that opens such a listener; "" is the shared port
        self.protocols = protocols  # accepted protocols; empty: all
        self.allows_requests = requests  # its peers may send requests
        self.allows_workers = workers  # its peers may offer services

    def allows_protocol(self, protocol: str) -> bool:
        return not self.protocols or protocol in self.protocols


SHARED = Role("")
SIBLING = Role("processes", ("bridge",))  # the internal listener for the other processes of the same broker

ROLES = {
    role.name: role
    for role in (
        SHARED,
        Role("mdx.front", ("mdx",), workers=False),
        Role("mdx.back", ("mdx",), requests=False),
        Role("emqp.front", ("emqp",), workers=False),  # also accepts schedulers, which offer no services
        Role("emqp.back", ("emqp",), requests=False),
        Role("emqp.publish_in", ("emqp", "pub"), requests=False, workers=False),
        Role("emqp.publish_out", ("sub",), requests=False, workers=False),
        Role("dbp.listen", ("dbp",), requests=False),
    )
}
