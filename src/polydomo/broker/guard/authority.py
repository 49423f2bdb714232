"""Who may do what besides the rules of the access file: the broker's own principals.

Everything that is not listed here and not allowed by a rule is denied.
"""

from typing import Final

from polydomo.broker.guard.rules import BRIDGE, CALL, OFFER, PUBLISH, REGISTER, SUBSCRIBE, TAP
from polydomo.broker.reserved_names import is_reserved
from polydomo.model import principals

# What a bridge may do for principals of the other broker, for the names in its right `bridge`.
CARRIED: Final[frozenset[str]] = frozenset((CALL, OFFER, PUBLISH, REGISTER, SUBSCRIBE))

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


def own_allows(principal: str, right: str, name: str) -> bool:
    """Whether one of the broker's own principals has a right of its own."""
    return right in OWN_RIGHTS.get(principal, ()) and not is_reserved(name.encode())
