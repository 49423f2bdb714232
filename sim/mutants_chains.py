"""Breakages of chains of services: a DCP worker that forwards a request."""

from contextlib import ExitStack
from typing import Any

from polydomo.model.records import Request
from polydomo.protocols.dcp.session import DcpSession, Passed
from sim.breaking import both, mutant, swap

CHAINS = (*both("dcp,dcp"), "services=1", "forwarding=0.8", "failing=0")


@mutant("the second service of a chain gets the metadata of the client, not of the worker before it", *CHAINS)
def chain_keeps_metadata(stack: ExitStack) -> None:
    def make(headers_of: Any) -> Any:
        def mutated(self: DcpSession, request: Request) -> bytes:
            ref = request.ref
            return ref.client if isinstance(ref, Passed) else bytes(headers_of(self, request))

        return mutated

    swap(stack, DcpSession, "headers_of", make)


@mutant("the client of a chain gets the metadata of the last worker, not its own", *CHAINS)
def chain_returns_metadata(stack: ExitStack) -> None:
    def make(send_final: Any) -> Any:
        def mutated(self: DcpSession, request: Request, body: Any) -> None:
            ref = request.ref
            if isinstance(ref, Passed):
                request.ref = Passed(ref.onward, ref.onward)
            send_final(self, request, body)

        return mutated

    swap(stack, DcpSession, "send_final", make)
