"""Who may do what besides the rules of the access file: the broker's own principals, and the right that each built-in service needs.

Everything that is not listed here and not allowed by a rule is denied.
"""

import json
from typing import Final

from polydomo.broker.guard.rules import ADMIN, BRIDGE, CALL, INSPECT, OFFER, PUBLISH, SUBSCRIBE, TAP
from polydomo.broker.reserved_names import ACCEPT, JOIN, is_reserved
from polydomo.model import principals
from polydomo.model.request import ABANDON

# What a bridge may do for principals of the other broker, for the names in its right `bridge`.
CARRIED: Final[frozenset[str]] = frozenset((CALL, OFFER, PUBLISH, SUBSCRIBE))

# The rights of the broker's own principals, for every name that is not reserved. A principal without rights only acts for others: each
# of its requests needs the right of the request's origin.
OWN_RIGHTS: Final[dict[str, frozenset[str]]] = {
    principals.JOBS: frozenset(),
    principals.RUNS: frozenset(),
    principals.MEMO: frozenset(),
    principals.SCHEDULES: frozenset((CALL,)),
    principals.PROCESS: frozenset((CALL, OFFER, PUBLISH, SUBSCRIBE, TAP, BRIDGE)),  # the other process has checked it
    principals.BRIDGE_OUT: frozenset((BRIDGE,)),
}

# Rights of built-in services that are not those of the access file.
ITSELF: Final = "-"  # the service checks the right for what the body names, such as the right to call a job's service
PROCESSES: Final = "process"  # only other processes of this broker

BUILTIN_RIGHTS: Final[dict[bytes, str]] = {
    b"mmi.service": INSPECT,
    ABANDON: ITSELF,  # a request of the same connection
    b"polydomo.submit": ITSELF,  # call: the service of the job
    b"polydomo.job": ITSELF,  # call: the service of the job, for its own jobs; admin for those of others
    b"polydomo.result": ITSELF,
    b"polydomo.cancel": ITSELF,
    ACCEPT: PROCESSES,
    JOIN: PROCESSES,
    **{
        b"polydomo." + name: INSPECT
        for name in (
            b"status services workers requests clients gone figures logs journal window topics catalog memo login schema"
            b" jobs schedules"
        ).split()
    },
    **{
        b"polydomo." + name: ADMIN
        for name in b"pause resume drain withdraw retry drop schedule unschedule fire".split()
    },
}


BY_BODY: Final[frozenset[bytes]] = frozenset(
    (b"polydomo.schema", b"polydomo.memo")
)  # the body decides which right is needed


def own_allows(principal: str, right: str, name: str) -> bool:
    """Whether one of the broker's own principals has a right of its own."""
    return right in OWN_RIGHTS.get(principal, ()) and not is_reserved(name.encode())


def builtin_right(name: bytes, body: bytes) -> str:
    """The right that a request to a built-in service needs. A name that is not in the table needs ADMIN."""
    if name == b"polydomo.schema" and body[:1] == b"{":
        return ITSELF  # a worker describes its service: `schemas` checks the right to offer it
    if name == b"polydomo.memo" and memo_command(body).get("op") == "rm":
        return ADMIN
    if name.startswith(b"mmi."):
        return INSPECT
    return BUILTIN_RIGHTS.get(name, ADMIN)


def memo_command(body: bytes) -> "dict[str, object]":
    """The body of a request to ``polydomo.memo``; empty if it is not a JSON object."""
    try:
        command = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return {}
    return command if isinstance(command, dict) else {}
