"""Mutants of credit, prefetching and cancellation."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.broker import Broker
from polydomo.broker.requests import credit, dispatch, outcomes
from polydomo.broker.state import State
from polydomo.broker.workers import registration
from polydomo.model.records import DONE, Departure, Request, Service, Session, Worker
from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.mdx.session import MdxSession
from sim.breaking import both, mutant, swap

CREDIT = (*both("mdx,mdx,mdx"), "services=1", "extended=1", "credit=2", "prefetch=3", "pace=0.2", "burst=6", "slow=0.2")
CANCELLING = (*CREDIT, "cancelling=0.5")
WINDOWED = ("services=1", "extended=1", "slots=1", "prefetch=3", "pace=0.2", "burst=6", "slow=0.5")
TOLD = ("services=1", "extended=1", "slots=2", "pace=0.2", "burst=6", "slow=0.5", "cancelling=0.5")


@mutant("a reply of a worker with credit does not make room for the next request", *CREDIT)
def credit_leaked(stack: ExitStack) -> None:
    def make(answered: Any) -> Any:
        def mutated(broker: Broker, worker: Worker) -> None:
            if worker.auto_credit > 1 and worker.done % 3 == 0:
                return
            answered(broker, worker)

        return mutated

    swap(stack, dispatch, "request_answered", make)


@mutant("a worker with credit gets one request more than it asked for", *CREDIT, first=2)
def credit_exceeded(stack: ExitStack) -> None:
    def make(set_window: Any) -> Any:
        def mutated(broker: Broker, worker: Worker, window: int, runs: int) -> None:
            set_window(broker, worker, window + 1, runs)

        return mutated

    swap(stack, credit, "set_window", make)


@mutant("prefetched requests are lost with their worker", *CREDIT, "worker_crash=0.5", first=2)
def prefetched_lost(stack: ExitStack) -> None:
    def make(lose: Any) -> Any:
        def mutated(broker: Broker, worker: Worker, departure: Departure, why: str) -> None:
            if worker.runs:
                for token in list(worker.held)[worker.runs :]:
                    del worker.held[token]
            lose(broker, worker, departure, why)

        return mutated

    swap(stack, registration, "lose", make)


@mutant("a cancelled request is dispatched", *CANCELLING)
def cancel_ignored(stack: ExitStack) -> None:
    swap(stack, MdxSession, "_cancel", lambda cancel: lambda self, identity, expired: None)


@mutant("a client gets an answer to a request that it cancelled", *CANCELLING)
def cancel_answered(stack: ExitStack) -> None:
    def make(cancel: Any) -> Any:
        def mutated(broker: Broker, request: Request, why: str, outcome: str = "cancelled") -> None:
            cancel(broker, request, why, outcome)
            if not request.session.disconnected:
                request.session.send_failure(request, outcome, why)

        return mutated

    swap(stack, outcomes, "cancel", make)


def free_at_once(cancel: Any) -> Any:
    """The session counts a worker as free once it has sent the cancellation."""

    def mutated(self: Session, worker: Worker, request: Request) -> bool:
        cancel(self, worker, request)
        return True

    return mutated


@mutant("a worker counts as free while it still runs a cancelled request", *CANCELLING, first=2)
def cancelled_is_free(stack: ExitStack) -> None:
    swap(stack, MdxSession, "cancel_request", free_at_once)


@mutant("a DCP worker counts as free while it still runs a cancelled request", *both("dcp,dcp"), *TOLD)
def cancelled_is_free_dcp(stack: ExitStack) -> None:
    swap(stack, DcpSession, "cancel_request", free_at_once)


@mutant("a cancellation that is sent to an eMQP worker names another attempt", *both("emqp,emqp"), *TOLD)
def cancelled_another(stack: ExitStack) -> None:
    def make(cancel: Any) -> Any:
        def mutated(self: EmqpSession, worker: Worker, request: Request) -> bool:
            token, request.token = request.token, b"ffffffffffff"
            cancel(self, worker, request)
            request.token = token
            return False

        return mutated

    swap(stack, EmqpSession, "cancel_request", make)


@mutant("workers get a deadline that is five seconds too late", *both("mdx,dcp"), *TOLD)
def time_left_longer(stack: ExitStack) -> None:
    def make(deliver: Any) -> Any:
        def mutated(self: DcpSession, worker: Worker, request: Request) -> None:
            limits = request.time_limits
            before = limits.deadline if limits is not None else 0.0
            if limits is not None and before:
                limits.deadline = before + 5.0
            deliver(self, worker, request)
            if limits is not None:
                limits.deadline = before

        return mutated

    swap(stack, DcpSession, "deliver", make)
    swap(stack, MdxSession, "deliver", make)


@mutant("a worker that only prefetches is chosen before one that could start the request", *CREDIT)
def prefetch_first(stack: ExitStack) -> None:
    def make(pick: Any) -> Any:
        def mutated(service: Service, request: Request) -> Worker:
            return next(iter(service.prefetching)) if service.prefetching else pick(service, request)

        return mutated

    swap(stack, dispatch, "pick_worker", make)


@mutant("a prefetched request does not move to an idle worker", *CREDIT)
def nothing_moves(stack: ExitStack) -> None:
    swap(stack, dispatch, "rebalance", lambda rebalance: lambda broker, service: None)


@mutant("a request moves to another worker before its worker has released it", *CREDIT)
def taken_unasked(stack: ExitStack) -> None:
    def make(revoke: Any) -> Any:
        def mutated(self: MdxSession, worker: Worker, request: Request) -> None:
            revoke(self, worker, request)
            del worker.held[request.token]
            registration.take_back(self.broker, request, worker)  # type: ignore[arg-type]
            dispatch.serve_queue(self.broker, request.service)  # type: ignore[arg-type]
            dispatch.request_answered(self.broker, worker)  # type: ignore[arg-type]

        return mutated

    swap(stack, MdxSession, "revoke_request", make)


@mutant("a release uses up an attempt", *CREDIT, "attempts=1")
def release_counts(stack: ExitStack) -> None:
    def make(take_back: Any) -> Any:
        def mutated(broker: Broker, request: Request, worker: Worker) -> None:
            registration.requeue(broker, request, worker, "released")

        return mutated

    swap(stack, registration, "take_back", make)


@mutant("a released request is forgotten", *CREDIT)
def release_forgets(stack: ExitStack) -> None:
    def make(released: Any) -> Any:
        def mutated(broker: Broker, worker: Worker, token: bytes) -> bool:
            request = worker.held.get(token)
            if request is None or request.state == DONE:
                return bool(released(broker, worker, token))
            del worker.held[token]
            dispatch.request_answered(broker, worker)
            return True

        return mutated

    swap(stack, credit, "released", make)


@mutant("a returned request is not requeued", *both("emqp,dcp"), "extended=1", "failing=0.5", "slots=2")
def given_back_lost(stack: ExitStack) -> None:
    def make(given_back: Any) -> Any:
        def mutated(broker: Broker, worker: Worker, token: bytes, why: str) -> bool:
            worker.held.pop(token, None)
            dispatch.request_answered(broker, worker)
            return True

        return mutated

    swap(stack, credit, "given_back", make)


@mutant("a heartbeat of a DCP worker with a window asks for one more", *both("dcp"), *WINDOWED)
def window_grows(stack: ExitStack) -> None:
    def make(ping: Any) -> Any:
        def mutated(session: DcpSession) -> None:
            ping(session)
            if session.windowed and session.worker is not None and session.worker.held:
                session.broker.add_credit(session.worker, 1)

        return mutated

    swap(stack, DcpSession, "_ping", make)


@mutant("a request that an eMQP worker released counts as returned", *both("emqp,emqp,emqp"), *WINDOWED, "attempts=1")
def release_is_a_return(stack: ExitStack) -> None:
    def make(credit_message: Any) -> Any:
        def mutated(session: EmqpSession, command: bytes, message: "list[bytes]") -> None:
            if command == b"RELEASED" and session.worker is not None:
                session.broker.give_back(session.worker, message[4], "released")
            else:
                credit_message(session, command, message)

        return mutated

    swap(stack, EmqpSession, "_credit_message", make)


NEAR = (*CREDIT, "near=0.8")


@mutant("a request does not get the free worker that served its key last", *NEAR)
def near_ignored(stack: ExitStack) -> None:
    def make(pick: Any) -> Any:
        return lambda state, service, request: dispatch.pick_worker(service, request)

    swap(stack, dispatch, "pick_near", make)


@mutant("a request waits at the worker that served its key last, although another one could start it", *NEAR)
def near_waits(stack: ExitStack) -> None:
    def make(pick: Any) -> Any:
        def mutated(state: State, service: Service, request: Request) -> Worker:
            last = state.affinity.worker_of(service, request.options.near)
            return last if last is not None and last in service.prefetching else pick(state, service, request)

        return mutated

    swap(stack, dispatch, "pick_near", make)


@mutant("a worker gets a request of a key that it served last, although it has no credit", *NEAR)
def near_without_credit(stack: ExitStack) -> None:
    def make(pick: Any) -> Any:
        def mutated(state: State, service: Service, request: Request) -> Worker:
            last = state.affinity.worker_of(service, request.options.near)
            return last if last is not None and last in service.workers else pick(state, service, request)

        return mutated

    swap(stack, dispatch, "pick_near", make)
