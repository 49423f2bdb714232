"""Steps: work for one request that would take too long for one turn of the loop.

A link that has such work does one step at a time, each charged to its peer by the time it took, and goes on in a later turn when the
peer's share is used up. Meanwhile it reads no further input of the peer.
"""

from polydomo.native import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Steps:
    """Work for one request, done in steps over several turns."""

    def step(self) -> bool:
        """Does a part of the work, of about a millisecond at most. Returns True when all is done. May raise HttpError, which is then the
        answer to the request."""
        raise NotImplementedError

    def held(self) -> int:
        """Bytes that the unfinished work holds in memory."""
        return 0
