"""The names of principals.

A principal is one of three kinds, and its name shows which. The access file may contain names of the first kind only, so no peer can be
given a name of the others:

    alice           a peer, identified by a credential of the access file
    polydomo:jobs   the broker itself; ``broker/guard/authority.py`` lists what each of these names may do
    east/alice      a principal of another broker, as the bridge with the principal ``east`` names it; it has no rights besides those
                    that ``east`` has as a bridge

A request carries the principal that caused it, its origin, to its end: ``Request.origin``.
"""

from typing import Final

OWN: Final = "polydomo:"

JOBS: Final = "polydomo:jobs"  # sends the attempts of durable jobs
SCHEDULES: Final = "polydomo:schedules"  # schedules that an operator made before schedules had principals
RUNS: Final = "polydomo:runs"  # sends one request for several clients: equal keys, or a memoised service
MEMO: Final = "polydomo:memo"  # evaluates MemoDB's calls
PROCESS: Final = "polydomo:process"  # another process of this broker
BRIDGE_OUT: Final = "polydomo:bridge"  # a broker that this one connects to (the setting `bridge.to`)

NAMED: Final = "/"  # between the principal of a bridge and the name that the bridge gives


def is_own(principal: str) -> bool:
    return principal.startswith(OWN)


def named_by(bridge: str, claimed: str) -> str:
    """The origin of a request that came over a bridge. The name that the other broker gives is only recorded.

    >>> named_by("east", "alice"), named_by("east", ""), named_by("east", "west/bob")
    ('east/alice', 'east/', 'east/west/bob')
    """
    return f"{bridge}{NAMED}{claimed}"


def accountable(principal: str) -> str:
    """The principal of this broker that answers for another one: whose quota is charged, and whose rights are the limit.

    >>> accountable("east/alice"), accountable("alice")
    ('east', 'alice')
    """
    return principal.partition(NAMED)[0]
