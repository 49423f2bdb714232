"""Logins of browsers, if access control is on.

A browser cannot authenticate with a CURVE key. ``polydomo open`` does, and requests a single-use code (``polydomo.login``), which the page
exchanges for a session: a random cookie for the same principal, valid until it expires or the principal's
credentials change. Rights are still checked by the current rules.
"""

from polydomo.broker.state import State
from polydomo.limits import LOGIN_CODE_TIME, LOGIN_SESSION_TIME, MAX_LOGINS


class Logins:
    def __init__(self, state: State) -> None:
        self._state = state
        self._codes: dict[str, tuple[str, float]] = {}  # code -> principal and expiry; the oldest first
        self._sessions: dict[str, tuple[str, float]] = {}  # cookie -> the same

    def issue(self, principal: str) -> str:
        """Creates a code for one login of the principal."""
        return self._add(self._codes, principal, LOGIN_CODE_TIME)

    def redeem(self, code: str) -> str:
        """Exchanges an unused code for the cookie of a new session; "" if the code is invalid."""
        principal, expires = self._codes.pop(code, ("", 0.0))
        if not principal or expires <= self._state.now:
            return ""
        return self._add(self._sessions, principal, LOGIN_SESSION_TIME)

    def principal(self, cookie: str) -> str:
        """The principal of a cookie; "" if it has expired or is unknown."""
        principal, expires = self._sessions.get(cookie, ("", 0.0))
        return principal if expires > self._state.now else ""

    def end(self, cookie: str) -> None:
        self._sessions.pop(cookie, None)

    def forget(self, principal: str) -> None:
        """A credential of the principal was added, removed or replaced: its codes and sessions end, because the credential that made them
        may be one that is no longer valid."""
        for table in (self._codes, self._sessions):
            for key in [key for key, (owner, _) in table.items() if owner == principal]:
                del table[key]

    def _add(self, table: "dict[str, tuple[str, float]]", principal: str, seconds: float) -> str:
        now = self._state.now
        while table:
            oldest = next(iter(table))
            if len(table) < MAX_LOGINS and table[oldest][1] > now:
                break
            del table[oldest]
        key = self._state.entropy.take(32).hex()
        table[key] = (principal, now + seconds)
        return key
