"""Mutants of how the broker and its protocols handle requests and workers."""

from contextlib import ExitStack
from typing import Any

from polydomo.broker.broker import Broker
from polydomo.broker.guard import backpressure
from polydomo.broker.requests import deadlines, dispatch, expiry, outcomes, queues, replies, transitions
from polydomo.broker.requests.tokens import Tokens
from polydomo.broker.workers import registration, silence
from polydomo.model.records import DONE, QUEUED, Request, Service, Session, TimeLimits, Worker
from polydomo.model.registration import WorkerTerms
from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.emqp.commands import EVENTMQ
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.mdp.mdp1 import Mdp1Session
from polydomo.protocols.mdp.mdp2 import Mdp2Session
from polydomo.protocols.mdp.single_worker import SingleWorkerSession
from polydomo.protocols.mdx.session import MdxSession
from polydomo.protocols.memo.session import MemoSession
from polydomo.wire.zmtp.link import ZmtpLink
from sim.breaking import both, mutant, swap

LOSSES = ["worker_crash=0.6", "worker_freeze=0.2", "leaving=0.1"]
BUSY = ["pace=0.2", "burst=4"]


# --- replies: fencing, repeats, and the right client -----------------------------------------------------------------------


@mutant(
    "the late reply of a worker is accepted, although another worker holds the request",
    *both("mdx,mdx,mdx"),
    *("services=1", "worker_freeze=1", "quiet=0", "slow=0.8", "beat=0.5", "pace=0.5"),
)
def no_fencing(stack: ExitStack) -> None:
    def make(final: Any) -> Any:
        def mutated(self: Broker, worker: Worker, token: bytes, body: Any) -> bool:
            if token not in worker.held:
                for other in self.workers:
                    for current in other.held:
                        if current[:9] == token[:9]:
                            return bool(final(self, other, current, body))
            return bool(final(self, worker, token, body))

        return mutated

    swap(stack, Broker, "final", make)


@mutant("an attempt reuses the token of the previous one", *both("dcp,dcp,dcp"), *LOSSES, "slow=0.3")
def token_reused(stack: ExitStack) -> None:
    def make(token: Any) -> Any:
        def mutated(self: Tokens, number: int, attempt: int) -> Any:
            return token(self, number, 1)

        return mutated

    swap(stack, Tokens, "make", make)


@mutant("a reply goes to another client of the same protocol", *both("mdp2,mdp2,mdp2"), *BUSY)
def wrong_client(stack: ExitStack) -> None:
    def make(reply: Any) -> Any:
        def mutated(self: Mdp2Session, envelope: bytes, request: Request, body: Any) -> None:
            others = [one for one in self.broker.sessions if isinstance(one, Mdp2Session) and one.requests]  # type: ignore[attr-defined]
            reply(others[0] if others else self, envelope, request, body)

        return mutated

    swap(stack, Mdp2Session, "_reply", make)


@mutant("the final reply is sent twice", *both("mdx,mdx"))
def final_twice(stack: ExitStack) -> None:
    def make(send: Any) -> Any:
        def mutated(self: MdxSession, request: Request, body: Any) -> None:
            send(self, request, body)
            send(self, request, body)

        return mutated

    swap(stack, MdxSession, "send_final", make)


@mutant("a repeated MDX request runs again", *both("mdx,mdx"), "repeating=0.5", "slow=0.2")
def mdx_repeats_run(stack: ExitStack) -> None:
    def make(take: Any) -> Any:
        def mutated(self: MdxSession, data: bytes, start: int, end: int) -> None:
            self.ids.clear()
            take(self, data, start, end)

        return mutated

    swap(stack, MdxSession, "on_message", make)


@mutant("a request that NNG repeats runs again", *both("memo,memo"), "nng=1", "resend=0.5", "slow=0.5")
def nng_repeats_run(stack: ExitStack) -> None:
    def make(take: Any) -> Any:
        def mutated(self: MemoSession, data: bytes, start: int, end: int) -> None:
            self.open.clear()
            self.answers.clear()
            take(self, data, start, end)

        return mutated

    swap(stack, MemoSession, "on_message", make)


@mutant(
    "a RESULT that NNG repeats on a new connection counts as the result of the next job",
    *both("memo,memo"),
    "nng=1",
    "cut=2",
    *BUSY,
    first=2,
)
def repeated_result(stack: ExitStack) -> None:
    def make(deliver: Any) -> Any:
        def mutated(self: MemoSession, worker: Worker, request: Request) -> None:
            deliver(self, worker, request)
            worker.ref.taken = b""  # type: ignore[attr-defined]

        return mutated

    swap(stack, MemoSession, "deliver", make)


@mutant("all memo01 workers get the same id", *both("memo,memo"))
def same_worker_id(stack: ExitStack) -> None:
    swap(stack, Broker, "random_bytes", lambda nonce: lambda self, size: b"n" * size)


# --- lost workers and clients ----------------------------------------------------------------------------------------------


@mutant("requests of a lost worker are requeued at the tail", *LOSSES, *BUSY, first=2)
def requeue_to_the_tail(stack: ExitStack) -> None:
    swap(stack, queues, "push_front", lambda push_front: queues.push)


@mutant("the number of attempts is not limited", "failing=0.9", "attempts=2", *both("mdp2,mdp2"))
def attempts_unbounded(stack: ExitStack) -> None:
    def make(give_back: Any) -> Any:
        def mutated(self: Broker, request: Request, worker: Worker, why: str) -> None:
            request.max_attempts = 1_000_000
            give_back(self, request, worker, why)

        return mutated

    swap(stack, registration, "requeue", make)


@mutant(
    "a request is tried again after a partial has reached its client",
    *both("mdx,mdx,mdx"),
    "partials=1",
    "slow=0.5",
    *LOSSES,
    first=2,
)
def partials_mixed(stack: ExitStack) -> None:
    def make(give_back: Any) -> Any:
        def mutated(self: Broker, request: Request, worker: Worker, why: str) -> None:
            request.own_history().partials = 0
            give_back(self, request, worker, why)

        return mutated

    swap(stack, registration, "requeue", make)


@mutant(
    "held partials outlive their attempt",
    "clients=dcp,mdp1",
    "workers=mdx,mdp2",
    "partials=1",
    "slow=0.5",
    *LOSSES,
    first=4,
)
def held_partials_kept(stack: ExitStack) -> None:
    def make(give_back: Any) -> Any:
        def mutated(self: Broker, request: Request, worker: Worker, why: str) -> None:
            kept = request.history.held_partials
            give_back(self, request, worker, why)
            if kept and request.state != DONE:
                request.own_history().held_partials = kept
                self.held_bytes += kept.size

        return mutated

    swap(stack, registration, "requeue", make)


@mutant("a requeued request is still HELD", *LOSSES, first=2)
def requeued_still_held(stack: ExitStack) -> None:
    def make(requeue: Any) -> Any:
        def mutated(request: Request) -> None:
            request.worker = None

        return mutated

    swap(stack, transitions, "requeue", make)


@mutant("the workers of a lost connection stay registered", *LOSSES)
def lost_connection_ignored(stack: ExitStack) -> None:
    def make(closed: Any) -> Any:
        def mutated(self: Broker, session: Session, why: str) -> None:
            crew = self.session_workers.pop(session, None)
            closed(self, session, why)
            if crew is not None:
                self.session_workers[session] = crew

        return mutated

    swap(stack, Broker, "session_closed", make)


@mutant("the requests of a disconnected client are not removed", "client_crash=0.5", "slow=0.3", *BUSY)
def client_not_cleaned(stack: ExitStack) -> None:
    swap(stack, outcomes, "cancel", lambda abandon: lambda self, request, why, outcome="": None)


@mutant("a cancelled request stays in the queue", *both("mdp2,mdp2"), "give_up=0.5", "slow=0.5", *BUSY)
def cancelled_still_queued(stack: ExitStack) -> None:
    def make(abandon: Any) -> Any:
        def mutated(self: Broker, request: Request, why: str, outcome: str = "cancelled") -> None:
            if request.state == QUEUED:
                outcomes.end(self, request, outcome, why)
            else:
                abandon(self, request, why, outcome)

        return mutated

    swap(stack, outcomes, "cancel", make)


@mutant("a cancelled request is queued again", *both("mdp2,mdp2"), "give_up=0.5", "slow=0.5", *BUSY, first=6)
def ended_requeued(stack: ExitStack) -> None:
    def make(abandon: Any) -> Any:
        def mutated(self: Broker, request: Request, why: str, outcome: str = "cancelled") -> None:
            body, queued = request.body, request.state == QUEUED and not request.session.disconnected
            abandon(self, request, why, outcome)
            if queued and request.service.workers:
                request.state, request.outcome, request.body = QUEUED, "", body
                self.held_bytes += len(body)
                request.session.requests[request] = None
                queues.push_front(request.service, request)

        return mutated

    swap(stack, outcomes, "cancel", make)


@mutant("lost memo01 workers are never removed", *both("memo,memo"), *LOSSES)
def orphans_kept(stack: ExitStack) -> None:
    def make(orphan: Any) -> Any:
        def mutated(self: Broker, worker: Worker, seconds: float) -> None:
            orphan(self, worker, 1e6)

        return mutated

    swap(stack, Broker, "orphan_worker", make)


# --- dispatch and credit ---------------------------------------------------------------------------------------------------


@mutant("the most recently used worker is chosen first", *both("mdp2,mdp2,mdp2,mdp2"), "services=1")
def wrong_end_of_the_lru(stack: ExitStack) -> None:
    def make(pick: Any) -> Any:
        def mutated(service: Service, request: Request) -> Worker:
            return next(reversed(service.idle if service.idle else service.partly_busy))

        return mutated

    swap(stack, dispatch, "pick_worker", make)


@mutant(
    "a client that was served is served again before the others",
    *both("mdx,mdx,mdx"),
    "services=1",
    "slow=0.2",
    "pace=0.2",
    "burst=10",
    first=2,
)
def no_turns(stack: ExitStack) -> None:
    def make(pop: Any) -> Any:
        def mutated(service: Service) -> Request:
            request: Request = pop(service)
            queue = service.client_queues.get(request.session)
            if queue is not None:
                service.round_robin.remove(queue)
                service.round_robin.appendleft(queue)
            return request

        return mutated

    swap(stack, queues, "pop", make)


@mutant("a worker that has answered gets no further request", *both("mdp2,mdp2"))
def credit_not_returned(stack: ExitStack) -> None:
    def make(final: Any) -> Any:
        def mutated(self: Broker, worker: Worker, token: bytes, body: Any) -> bool:
            worker.auto_credit = 0
            return bool(final(self, worker, token, body))

        return mutated

    swap(stack, Broker, "final", make)


@mutant("a worker that forwarded its request gets no further request", *both("dcp,dcp"), "forwarding=0.8", "slots=1")
def forward_keeps_busy(stack: ExitStack) -> None:
    def make(forward: Any) -> Any:
        def mutated(self: Broker, worker: Worker, token: bytes, service: bytes, body: Any, ref: object) -> bool:
            worker.auto_credit = 0
            done = bool(forward(self, worker, token, service, body, ref))
            worker.auto_credit = 1
            return done

        return mutated

    swap(stack, Broker, "forward", make)


@mutant("a DCP ping gives credit for two requests", *both("dcp,dcp"), "slots=4", "slow=0.3", *BUSY)
def ping_asks_for_two(stack: ExitStack) -> None:
    def make(ping: Any) -> Any:
        def mutated(self: DcpSession) -> None:
            ping(self)
            if self.worker is not None and self.worker.alive and self.worker.held:
                self.broker.add_credit(self.worker, 1)

        return mutated

    swap(stack, DcpSession, "_ping", make)


@mutant("an eMQP READY gives credit for two requests", *both("emqp,emqp"), *BUSY, first=6)
def ready_asks_for_two(stack: ExitStack) -> None:
    def make(ready: Any) -> Any:
        def mutated(self: EmqpSession) -> None:
            ready(self)
            ready(self)

        return mutated

    swap(stack, EmqpSession, "_ready", make)


# --- disconnects and heartbeats --------------------------------------------------------------------------------------------


@mutant("DISCONNECT from a worker is ignored", *both("mdp2,mdp2"), "leaving=0.5", "latency=0.05", first=12)
def disconnect_ignored(stack: ExitStack) -> None:
    swap(stack, SingleWorkerSession, "end_worker", lambda part: lambda self, why: None)


@mutant("a silent worker is never declared lost", "worker_freeze=0.5", *both("mdx,mdp2,emqp"))
def silence_not_judged(stack: ExitStack) -> None:
    swap(stack, silence, "allowed_silence", lambda allowed: lambda broker, worker: 0.0)


@mutant(
    "the busy timeout is ignored: a busy worker that sends no heartbeats is declared lost too early",
    *both("mdp1,mdp2"),
    "quiet=1",
    "slow=0.5",
    "busy_timeout=20",
    "beat=0.5",
)
def busy_timeout_ignored(stack: ExitStack) -> None:
    swap(
        stack,
        silence,
        "allowed_silence",
        lambda allowed: lambda broker, worker: 0.0 if worker.polling else worker.max_silence,
    )


def registered_as(strict: bool) -> Any:
    def make(register: Any) -> Any:
        def mutated(state: Any, session: Session, services: Any, ref: object, terms: WorkerTerms, weights: Any) -> Any:
            terms.strict = strict
            return register(state, session, services, ref, terms, weights)

        return mutated

    return make


@mutant(
    "a busy worker of a protocol whose document demands heartbeats is allowed the busy timeout",
    *both("mdx,emqp,dcp"),
    *("worker_freeze=0.5", "slow=0.5", "busy_timeout=20", "beat=0.5"),
    first=2,
)
def busy_is_lenient(stack: ExitStack) -> None:
    swap(stack, registration, "register", registered_as(False))


@mutant(
    "a busy worker of DagBox is declared lost as soon as an idle one",
    *both("dcp,dcp,dcp,dcp"),
    *("quiet=1", "slow=0.5", "busy_timeout=20", "beat=0.5"),
)
def dagbox_is_strict(stack: ExitStack) -> None:
    swap(stack, registration, "register", registered_as(True))


@mutant("the broker sends no heartbeats", *both("mdp1,mdp1"))
def no_beats(stack: ExitStack) -> None:
    swap(stack, Mdp1Session, "send_heartbeat", lambda beat: lambda self, worker: None)


@mutant("a PING is not answered", *both("mdx,mdx"))
def no_pongs(stack: ExitStack) -> None:
    def make(ping: Any) -> Any:
        def mutated(self: MdxSession) -> None:
            if self.worker is not None:
                self.broker.heartbeat(self.worker)

        return mutated

    swap(stack, MdxSession, "_ping", make)


# --- deadlines -------------------------------------------------------------------------------------------------------------


@mutant("a request for a service without workers never expires", "unknown=0.5", "queue_expiry=3", *both("mdx,mdx"))
def expiry_skipped(stack: ExitStack) -> None:
    def make(due: Any) -> Any:
        def mutated(self: Broker, service: Service) -> None:
            service.timer = 0
            if service.queue_length and not service.workers:
                deadlines.watch_service(self, service)

        return mutated

    swap(stack, expiry, "service_due", make)


@mutant("the deadline of a request is ignored", *both("emqp,memo"), "slow=0.8", "give_up=0.5")
def deadline_skipped(stack: ExitStack) -> None:
    def make(due: Any) -> Any:
        def mutated(self: Broker, request: Request, terms: TimeLimits) -> None:
            terms.timer = 0

        return mutated

    swap(stack, expiry, "request_due", make)


# --- limits ----------------------------------------------------------------------------------------------------------------


@mutant("bytes of requests that ended are still counted")
def held_bytes_kept(stack: ExitStack) -> None:
    def make(end: Any) -> Any:
        def mutated(self: Broker, request: Request, outcome: str, reason: str) -> None:
            self.held_bytes += len(request.body)
            end(self, request, outcome, reason)

        return mutated

    swap(stack, outcomes, "end", make)


@mutant("a client at a limit is not paused", *both("mdx,mdx"), "max_outstanding=4", "slow=0.3", "burst=10", "pace=0.2")
def bounds_ignored(stack: ExitStack) -> None:
    swap(stack, backpressure, "pause", lambda pause: lambda state, session, service: None)


@mutant(
    "a request is cancelled with its client, although the client did not ask for a reply",
    *both("emqp,mdx"),
    *("unattended=2", "slow=0.5"),
)
def left_behind(stack: ExitStack) -> None:
    swap(stack, EmqpSession, "awaits_reply", lambda awaits: lambda self, request: True)


@mutant("a DCP client that puts its own identity in front is refused", "clients=dcp,dcp,dcp")
def own_address_refused(stack: ExitStack) -> None:
    def make(pass_on: Any) -> Any:
        def mutated(self: DcpSession, token: bytes, service: bytes, metadata: bytes, body: Any) -> None:
            pass_on(self, token + b"?" if token == self.link.identity else token, service, metadata, body)

        return mutated

    swap(stack, DcpSession, "_pass_on", make)


@mutant("an eMQP client of the document's form gets no reply without the header of EventMQ", "clients=emqp,emqp,emqp")
def document_not_answered(stack: ExitStack) -> None:
    def make(send: Any) -> Any:
        def mutated(self: EmqpSession, request: Request, body: Any) -> None:
            if request.ref.route.wants_reply:
                send(self, request, body)

        return mutated

    swap(stack, EmqpSession, "send_final", make)


@mutant("a HEARTBEAT to an eMQP worker of the document's form has EventMQ's time frame", *both("emqp,emqp"), "pace=0.2")
def beat_with_a_time(stack: ExitStack) -> None:
    def make(beat: Any) -> Any:
        def mutated(self: EmqpSession, worker: Worker) -> None:
            dialect, self.dialect = self.dialect, EVENTMQ
            beat(self, worker)
            self.dialect = dialect

        return mutated

    swap(stack, EmqpSession, "send_heartbeat", make)


@mutant("a paused client is never resumed", *both("mdx,mdx"), "max_outstanding=2", "burst=10", "pace=0.2")
def never_resumed(stack: ExitStack) -> None:
    swap(stack, Broker, "end_turn", lambda turn: lambda self: None)


# --- encoding --------------------------------------------------------------------------------------------------------------


@mutant("the second half of a split message is read one byte too far", "split=0.9", *both("mdp2,mdx"))
def split_loses_a_byte(stack: ExitStack) -> None:
    def make(aside: Any) -> Any:
        def mutated(self: ZmtpLink, data: bytes, start: int, *more: int) -> None:
            aside(self, data, min(start + 1, len(data)), *more)

        return mutated

    swap(stack, ZmtpLink, "_put_aside", make)


@mutant("a partial is dropped", "clients=mdx,mdp2", "workers=mdx,mdp2", "partials=1")
def partial_dropped(stack: ExitStack) -> None:
    def make(partial: Any) -> Any:
        def mutated(self: Broker, worker: Worker, token: bytes, body: Any) -> bool:
            request = worker.held.get(token)
            if request is not None and request.history.first_partial:
                return True
            return bool(partial(self, worker, token, body))

        return mutated

    swap(stack, Broker, "partial", make)


@mutant("an eMQP client gets a reply with the id of another request", "clients=emqp,emqp", "workers=mdx,mdp2")
def wrong_message_id(stack: ExitStack) -> None:
    def make(send: Any) -> Any:
        def mutated(self: EmqpSession, request: Request, body: Any) -> None:
            request.ref.msgid = b"\x01\x02c0"
            send(self, request, body)

        return mutated

    swap(stack, EmqpSession, "send_final", make)


@mutant(
    "a forwarded attempt of a durable job is retried by the broker, in addition to the retries of the job",
    *both("dcp,dcp,dcp"),
    *("durable=0.001", "forwarding=0.5", "failing=0.5", "pace=0.3", "attempts=3"),
)
def forwarded_attempt_repeats(stack: ExitStack) -> None:
    def make(move: Any) -> Any:
        def mutated(broker: Broker, request: Request, name: bytes, body: Any, ref: object) -> None:
            allowed = request.max_attempts
            move(broker, request, name, body, ref)
            request.max_attempts = allowed

        return mutated

    swap(stack, replies, "_move_to", make)
