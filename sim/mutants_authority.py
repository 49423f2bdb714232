"""Mutants of authority: what a principal with few rights could once do. The peers of ``sim/trespass.py`` find them."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.broker import Broker
from polydomo.broker.guard.access import CALL, Access
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.requests import replies
from polydomo.model.records import Request, Session
from polydomo.model.registration import Refusal
from polydomo.protocols.emqp import schedules
from polydomo.protocols.emqp.commands import SCHEDULER_RIGHT
from sim.breaking import both, mutant, swap

TRIED = [*both("mdx,mdx"), "services=1", "trespass=6", "pace=2", "trouble=12"]
KEPT = [*TRIED, "durable=0.001"]
FORWARDED = [*both("dcp,dcp"), "services=1", "trespass=6", "pace=2", "forwarding=0.8", "failing=0"]


@mutant("SCHEDULE needs no right", *KEPT)
def schedule_unchecked(stack: ExitStack) -> None:
    swap(stack, schedules, "allowed", lambda allowed: lambda broker, session, principal, message: True)


@mutant("UNSCHEDULE needs no right, and removes the schedule of anyone", *KEPT)
def unschedule_unchecked(stack: ExitStack) -> None:
    def make(allowed: Any) -> Any:
        return lambda broker, session, principal, message: (
            message[2] == b"UNSCHEDULE" or allowed(broker, session, principal, message)
        )

    def nameless(schedule_for: Any) -> Any:
        def mutated(self: Durable, session: Session, principal: str, *rest: Any) -> None:
            schedule_for(self, session, "", *rest)

        return mutated

    swap(stack, schedules, "allowed", make)
    swap(stack, Durable, "schedule_for", nameless)


@mutant("INFORM as a scheduler needs no right", *TRIED)
def scheduler_unchecked(stack: ExitStack) -> None:
    swap(stack, Broker, "denial", _grants(lambda right, name: name == SCHEDULER_RIGHT))


@mutant("the right to call covers built-in services, which MemoDB evaluates", *TRIED)
def built_in_evaluated(stack: ExitStack) -> None:
    def make(denial: Any) -> Any:
        def mutated(self: Access, request: Request) -> str:
            name = request.service.name.decode(errors="replace")
            return "" if self.allows(request.origin, CALL, name) else str(denial(self, request))

        return mutated

    swap(stack, Broker, "is_reserved", lambda reserved: lambda self, name: False)
    swap(stack, Access, "builtin_denial", make)


@mutant("for a guaranteed request, the right to call the fallback suffices", *KEPT)
def fallback_checked_instead(stack: ExitStack) -> None:
    def make(denial: Any) -> Any:
        return lambda self, request, service: denial(self, request, request.service.name)

    swap(stack, Access, "call_denial", make)


@mutant("a forward of a request with a key needs no right of its client", *FORWARDED)
def run_forwarded_unchecked(stack: ExitStack) -> None:
    swap(stack, replies, "_refusal_to_forward", _forwards(lambda session: session.runs_shared))


@mutant("a forward of a durable request needs no right of its client", *FORWARDED, "durable=0.001")
def job_forwarded_unchecked(stack: ExitStack) -> None:
    swap(stack, replies, "_refusal_to_forward", _forwards(lambda session: session.is_internal))


@mutant("a stored reply is sent after the right was revoked", *TRIED, "rights=1")
def kept_reply_unchecked(stack: ExitStack) -> None:
    swap(stack, Broker, "denial", _grants(lambda right, name: right == CALL))


@mutant("/v1/topics shows topics without the right to subscribe", *TRIED, "topics=2")
def topics_shown(stack: ExitStack) -> None:
    swap(stack, Access, "allows_topic", lambda allows: lambda self, principal, topic: True)


@mutant("a refused request is charged to the rate of its principal", *TRIED)
def refusals_charged(stack: ExitStack) -> None:
    def make(spend: Any) -> Any:
        def mutated(self: Access, request: Request) -> bool:
            done = bool(spend(self, request))
            if not done:
                self._usage[request.origin].tokens -= 1.0
            return done

        return mutated

    swap(stack, Access, "spend", make)


def _grants(which: Any) -> Any:
    def make(denial: Any) -> Any:
        def mutated(self: Broker, session: Session, right: str, name: str) -> str:
            return "" if which(right, name) else str(denial(self, session, right, name))

        return mutated

    return make


def _forwards(which: Any) -> Any:
    def make(refusal: Any) -> Any:
        def mutated(broker: Broker, request: Request, name: bytes) -> "Refusal | None":
            return None if which(request.session) else refusal(broker, request, name)

        return mutated

    return make
