"""Mutants of encryption and access control."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.guard.access import CALL, OFFER, Access
from polydomo.model.records import Request, Session
from polydomo.server.access.file import Credentials
from polydomo.wire.security.curve import CurveServer
from polydomo.wire.security.curve_traffic import CurveTraffic
from sim.breaking import both, mutant, swap

SECURED = [*both("mdx,mdx"), "curve=1", "pace=0.3"]
INTRUDED = [*both("mdx,mdx"), "curve=0.5", "intruder=2", "pace=0.5"]


@mutant("a nonce is used for two frames", *SECURED)
def nonce_reused(stack: ExitStack) -> None:
    def make(seal: Any) -> Any:
        def mutated(self: CurveTraffic, data: bytes) -> bytes:
            before = self._sent
            sealed: bytes = seal(self, data)
            if before > 5:
                self._sent -= 1
            return sealed

        return mutated

    swap(stack, CurveTraffic, "seal", make)


@mutant("the vouch of INITIATE is not checked, so that a public key is sufficient to authenticate", *INTRUDED)
def vouch_unchecked(stack: ExitStack) -> None:
    swap(stack, CurveServer, "_check_vouch", lambda check: lambda self, vouch, permanent, client, transient: None)


@mutant("an unknown key is accepted as that of the first principal", *INTRUDED)
def key_unchecked(stack: ExitStack) -> None:
    def make(by_curve: Any) -> Any:
        return lambda self, key: self.curve.get(key) or next(iter(self.curve.values()))

    swap(stack, Credentials, "by_curve", make)


@mutant("a revoked right to call stays in the cache", *INTRUDED, "rights=1", first=2)
def permission_cached(stack: ExitStack) -> None:
    def make(replace: Any) -> Any:
        def mutated(self: Access, rules: Any) -> None:
            before = self._free
            replace(self, rules)
            self._free = before

        return mutated

    swap(stack, Access, "replace", make)


@mutant("the right to call is not checked", *INTRUDED, "rights=1")
def call_unchecked(stack: ExitStack) -> None:
    swap(stack, Access, "denial_of", _lenient(CALL))


@mutant("the right to offer is not checked", *INTRUDED)
def offer_unchecked(stack: ExitStack) -> None:
    swap(stack, Access, "denial", _lenient(OFFER))


@mutant("a peer that has the right is sometimes refused", *SECURED)
def turned_away(stack: ExitStack) -> None:
    def make(denial_of: Any) -> Any:
        def mutated(self: Access, request: Request, right: str, name: "bytes | str") -> str:
            if right == CALL and request.origin and self._state.newest_request % 7 == 3:
                return "no"
            return str(denial_of(self, request, right, name))

        return mutated

    swap(stack, Access, "denial_of", make)
    swap(stack, Access, "calls_freely", lambda freely: lambda self, session, service: False)


def _lenient(which: str) -> Any:
    def make(denial: Any) -> Any:
        def mutated(self: Access, who: "Session | Request", right: str, name: "bytes | str") -> str:
            return "" if right == which else str(denial(self, who, right, name))

        return mutated

    return make
