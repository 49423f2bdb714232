"""What a listener takes. The shared port takes everything; a listener with a role takes only what belongs there.

A protocol that was laid out for two sockets, a front end for clients and a back end for workers, may be given both besides the shared
port. Who comes to the wrong one is refused as its protocol says: a worker's READY or INFORM is answered with DISCONNECT, a client's
request ends as refused, and another protocol's connection is closed.
"""


class Role:
    def __init__(
        self, name: str, protocols: "tuple[str, ...]" = (), requests: bool = True, workers: bool = True
    ) -> None:
        self.name = name  # the setting that opens such a listener; "" is the shared port
        self.protocols = protocols  # of the sessions it takes; none named: all
        self.allows_requests = requests  # its peers may make requests
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
        Role("emqp.front", ("emqp",), workers=False),  # its scheduler comes here too, which offers nothing
        Role("emqp.back", ("emqp",), requests=False),
        Role("emqp.publish_in", ("emqp", "pub"), requests=False, workers=False),
        Role("emqp.publish_out", ("sub",), requests=False, workers=False),
        Role("dbp.listen", ("dbp",), requests=False, workers=False),
    )
}
