"""Mutants of bridges, the catalog, topics, clocks and heartbeats, limits, shutdown and the journal."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from polydomo import limits
from polydomo.broker.broker import Broker
from polydomo.broker.catalog.bridged_entries import BridgedEntries
from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.catalog.service_workers import ServiceWorkers
from polydomo.broker.catalog.udp_heartbeats import BEAT, UdpHeartbeats
from polydomo.broker.cluster.bridging import Bridging
from polydomo.broker.cluster.siblings import Siblings
from polydomo.broker.identity import identity
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.durable_order import DurableOrder
from polydomo.broker.requests import dispatch, queues
from polydomo.broker.requests.admission import Admission
from polydomo.broker.topics.relayed import RelayedPublications
from polydomo.broker.topics.subscriptions import Subscriptions
from polydomo.broker.workers import liveness
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.model.records import Path, Publication, Request, Service, Session, Worker
from polydomo.protocols.bridge.session import BridgeSession
from polydomo.protocols.dbp.session import DbpSession
from polydomo.protocols.dcp.session import DcpSession
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.pubsub.session import SubscriberSession
from polydomo.wire.frames import Body
from sim.breaking import both, mutant, swap
from sim.brokers import BrokerNode
from sim.wiretap import Tap

BRIDGED = ["bridged=1", "brokers=2", *both("mdx,mdx,mdx"), "max_outstanding=256", "max_queue=256"]
SIBLINGS = [*BRIDGED, "siblings=1", "pace=0.3", "slow=0.5", "workers=mdx,mdx,mdx,mdx"]
CATALOG = ["catalog=2", *both("mdx,mdx")]
TOPICS = ["topics=2", *both("mdx,mdx"), "pace=0.3"]


# --- bridges and processes -------------------------------------------------------------------------------------------------


@mutant("a final reply is sent over the bridge twice", *BRIDGED)
def bridge_answers_twice(stack: ExitStack) -> None:
    def make(send: Any) -> Any:
        def mutated(self: BridgeSession, request: Request, body: Any) -> None:
            send(self, request, body)
            send(self, request, body)

        return mutated

    swap(stack, BridgeSession, "send_final", make)


@mutant(
    "all queued requests of one client cross a bridge before those of the next client",
    *BRIDGED,
    *("pace=0.3", "burst=8", "bridge_window=2", "clients=mdx,mdx,mdx,mdx"),
    first=3,
)
def bridge_without_turns(stack: ExitStack) -> None:
    def pop(service: Service) -> Request:
        request = queues.first(service)
        queues.remove(service, request)
        return request

    def make(send_queued: Any) -> Any:
        def mutated(self: Bridging, service: Service) -> None:
            with ExitStack() as inside:
                swap(inside, queues, "pop", lambda _: pop)
                send_queued(self, service)

        return mutated

    swap(stack, Bridging, "send_queued", make)


@mutant(
    "the window of a bridge does not grow again when a request is answered",
    *BRIDGED,
    "pace=0.3",
    "bridge_window=4",
)
def window_not_returned(stack: ExitStack) -> None:
    def make(answered: Any) -> Any:
        def mutated(self: Bridging, worker: Worker, token: bytes, body: Body) -> None:
            before = worker.credit
            answered(self, worker, token, body)
            worker.credit = min(worker.credit, before)

        return mutated

    swap(stack, Bridging, "bridge_final", make)


@mutant("a request that moves to another process also stays in the queue", *SIBLINGS)
def crossing_stays_queued(stack: ExitStack) -> None:
    def make(pop: Any) -> Any:
        def mutated(service: Service) -> Request:
            request: Request = pop(service)
            if service.remote and service.workers:
                queues.push_front(service, request)
            return request

        return mutated

    swap(stack, queues, "pop", make)


@mutant("requests are sent to another process beyond its window", *SIBLINGS, "bridge_window=2")
def room_past_window(stack: ExitStack) -> None:
    def make(on_room: Any) -> Any:
        def mutated(self: Siblings, worker: Worker, name: bytes, count: int) -> None:
            worker.credit += 2
            on_room(self, worker, name, 1000)

        return mutated

    swap(stack, Siblings, "_on_room", make)


@mutant("a lost process is still asked for room", *SIBLINGS, "cut=0.5", "broker_crash=0.2", first=2)
def lost_sibling_still_asked(stack: ExitStack) -> None:
    swap(stack, Siblings, "lost", lambda lost: lambda self, worker: self.bridges.pop(worker, None))


@mutant(
    "a durable request that another process sends again becomes a second job",
    *SIBLINGS,
    *("durable=0.3", "cut=1", "half_open=0"),
    first=11,
)
def relayed_twice(stack: ExitStack) -> None:
    def make(accept_relayed: Any) -> Any:
        def mutated(self: Durable, request: Request, order: DurableOrder) -> None:
            order.job = ""
            accept_relayed(self, request, order)

        return mutated

    swap(stack, Durable, "accept_relayed", make)


@mutant(
    "bytes of answered requests are not returned to the window of a bridge", *BRIDGED, "pace=0.3", "bridge_bytes=300"
)
def bytes_not_returned(stack: ExitStack) -> None:
    swap(stack, BridgeSession, "_back", lambda back: lambda self, key: None)


@mutant(
    "a request within the window of a bridge is refused by a full queue",
    *BRIDGED,
    "clients=mdx,mdx,mdx,mdx,mdx",
    "max_queue=1",
    "attempts=1",
)
def window_not_kept(stack: ExitStack) -> None:
    def make(in_front_of: Any) -> Any:
        def mutated(self: Tap, session: Session) -> Any:
            session.windowed = False
            return in_front_of(self, session)

        return mutated

    swap(stack, Tap, "in_front_of", make)


@mutant("services of a lost bridge are still offered", *BRIDGED, "cut=0.5", "broker_crash=0.1")
def lost_bridge_still_offers(stack: ExitStack) -> None:
    swap(stack, Bridging, "bridge_lost", lambda lost: lambda self, worker, held: None)


@mutant("a service that another broker retracted is still offered", *BRIDGED, "worker_crash=0.6", "leaving=0.3")
def retract_ignored(stack: ExitStack) -> None:
    def make(learn: Any) -> Any:
        def mutated(self: Broker, worker: Worker, service: bytes, path: Path) -> None:
            if path:
                learn(self, worker, service, path)

        return mutated

    swap(stack, Bridging, "bridge_offers", make)


@mutant(
    "a request that is returned over a bridge has no timer",
    *BRIDGED,
    "worker_crash=0.6",
    "cut=0.6",
    "slow=0.3",
    first=22,
)
def returned_without_timer(stack: ExitStack) -> None:
    swap(
        stack,
        Bridging,
        "_serve_again",
        lambda wait: lambda self, service, request=None: None if request is not None else wait(self, service),
    )


@mutant(
    "a request is sent back over the bridge that it came from",
    *BRIDGED,
    "worker_crash=0.6",
    "leaving=0.3",
    "brokers=3",
    first=7,
)
def sent_back_and_forth(stack: ExitStack) -> None:
    def make(way: Any) -> Any:
        def mutated(self: Bridging, service: Service, asking: Worker, peer: bytes) -> Path:
            return (identity(self._state),) if service.remote else way(self, service, asking, peer)

        return mutated

    swap(stack, Bridging, "_shortest_path", make)


@mutant(
    "messages that crossed a bridge before it was lost cross it again",
    *BRIDGED,
    "topics=2",
    "cut=0.5",
    "pace=0.3",
    first=5,
)
def published_again(stack: ExitStack) -> None:
    swap(stack, RelayedPublications, "first_seen", lambda first_seen: lambda self, session, origin, topic, number: True)


# --- the catalog -----------------------------------------------------------------------------------------------------------


@mutant("a heartbeat datagram is accepted from any address", *CATALOG, "garbage=1")
def forged_datagram_counts(stack: ExitStack) -> None:
    swap(stack, UdpHeartbeats, "_judge", lambda judge: lambda self, datagram, host: BEAT)


@mutant("a catalog service is declared lost, although it sends heartbeats", *CATALOG, "beat=0.5", first=2)
def catalog_ignores_heartbeats(stack: ExitStack) -> None:
    swap(stack, Catalog, "_beat", lambda beat: lambda self, entry, now: None)


@mutant("a silent service stays in the catalog", *CATALOG, "beat=0.5", "worker_freeze=1", "worker_crash=1")
def catalog_keeps_the_silent(stack: ExitStack) -> None:
    def make(lost_at: Any) -> Any:
        def mutated(self: Catalog, entry: Any) -> float:
            return float(lost_at(self, entry)) + 1e6

        return mutated

    swap(stack, Catalog, "_lost_at", make)


@mutant("a look-up of one service returns all services", *CATALOG)
def lookup_returns_all(stack: ExitStack) -> None:
    swap(stack, DbpSession, "_info", lambda info: lambda self, body: info(self, []))


BRIDGED_CATALOG = [*BRIDGED, "catalog=2"]
TAKING = ["taking=2", *both("mdx,mdx,mdx"), "pace=0.3", "max_services=64"]


@mutant("a bridge that connects again is not told of the registered services", *BRIDGED_CATALOG, "cut=1", first=6)
def bridge_not_told_of_entries(stack: ExitStack) -> None:
    def make(opened: Any) -> Any:
        def mutated(self: BridgedEntries, worker: Worker) -> None:
            opened(self, worker)
            self.pending.pop(worker, None)

        return mutated

    swap(stack, BridgedEntries, "opened", make)


@mutant("a service that has left stays in the catalogs of other brokers", *BRIDGED_CATALOG)
def bridged_entries_stay(stack: ExitStack) -> None:
    swap(stack, BridgeSession, "withdraw_entry", lambda withdraw: lambda self, name: None)


@mutant("a service of the catalog gets a second request before it has replied", *TAKING)
def two_requests_over_dbp(stack: ExitStack) -> None:
    def make(begin: Any) -> Any:
        def mutated(self: ServiceWorkers) -> None:
            new = list(self._new)
            begin(self)
            for worker in new:
                dispatch.add_credit(self._state, worker)

        return mutated

    swap(stack, ServiceWorkers, "begin", make)


@mutant("a service that is lost from the catalog keeps its request", *TAKING, "worker_freeze=1", "slow=0.5")
def lost_entry_keeps_its_worker(stack: ExitStack) -> None:
    swap(stack, ServiceWorkers, "ended", lambda ended: lambda self, entry: None)


# --- topics ----------------------------------------------------------------------------------------------------------------


@mutant("a subscriber gets messages of every topic", *TOPICS)
def every_topic(stack: ExitStack) -> None:
    swap(stack, Subscriptions, "match", lambda match: lambda self, topic: list(self._of))


@mutant("a subscriber gets every message twice", *TOPICS)
def published_twice(stack: ExitStack) -> None:
    def make(match: Any) -> Any:
        def mutated(self: Subscriptions, topic: bytes) -> list[Session]:
            return [*match(self, topic), *match(self, topic)]

        return mutated

    swap(stack, Subscriptions, "match", make)


@mutant("queued messages of a slow subscriber are sent newest first", *TOPICS, "choke=60", "clog=2", "pace=0.1")
def backlog_overtaken(stack: ExitStack) -> None:
    def make(send: Any) -> Any:
        def mutated(self: SubscriberSession, publication: Publication) -> None:
            if len(self.backlog.messages) > 1:
                self.link.send(publication.message)
            else:
                send(self, publication)

        return mutated

    swap(stack, SubscriberSession, "send_publication", make)


@mutant("subscriptions outlive their connection", *TOPICS, "cut=0.5", "worker_crash=0.5")
def subscription_kept(stack: ExitStack) -> None:
    swap(stack, Subscriptions, "drop", lambda drop: lambda self, session: None)


# --- clocks, silence and heartbeats ----------------------------------------------------------------------------------------


@mutant(
    "time in which the broker was stopped counts as silence of its workers",
    *both("mdx,mdp2,emqp"),
    "broker_freeze=0.3",
    "beat=0.5",
    first=17,
)
def suspension_is_silence(stack: ExitStack) -> None:
    swap(stack, liveness, "excuse_silence", lambda overslept: lambda broker, late: None)


@mutant(
    "a wall clock that is set forward excuses silent workers",
    *both("mdx,mdp2,emqp"),
    *("durable=0.02", "clock_jump=0.3", "worker_freeze=0.5", "beat=0.5"),
)
def wall_clock_excuses_silence(stack: ExitStack) -> None:
    def make(run_timers: Any) -> Any:
        def mutated(broker: Broker) -> None:
            own, first = broker.own_deadline(), broker.next_deadline()
            due = broker.now if own is None else min(own, broker.now)
            if first is not None and due - first > limits.OVERSLEPT:  # the timer of a job, which follows the wall clock
                liveness.excuse_silence(broker, due - first)
            run_timers(broker)

        return mutated

    swap(stack, Broker, "run_timers", make)


@mutant(
    "timers run before pending input has been read",
    *both("mdx,mdp2,emqp"),
    "broker_freeze=0.3",
    "worker_freeze=0.3",
    "beat=0.2",
    first=25,
)
def timers_before_input(stack: ExitStack) -> None:
    def make(turn: Any) -> Any:
        def mutated(self: BrokerNode) -> None:
            if self.up:
                self.broker.now = self.hub.now = self.clock
                self._advance()
            turn(self)

        return mutated

    swap(stack, BrokerNode, "_turn", make)


@mutant("an INFORM is not answered with ACK", *both("emqp,emqp"))
def no_ack(stack: ExitStack) -> None:
    def make(inform: Any) -> Any:
        def mutated(self: EmqpSession, message: "list[bytes]") -> None:
            inform(self, message)
            del self.link.out[-2:-1]

        return mutated

    swap(stack, EmqpSession, "_inform", make)


@mutant("no HEARTBEAT is sent after an INFORM", *both("emqp,emqp"), "pace=0.2")
def no_first_beat(stack: ExitStack) -> None:
    def make(inform: Any) -> Any:
        def mutated(self: EmqpSession, message: "list[bytes]") -> None:
            inform(self, message)
            if self.worker is not None:
                del self.link.out[-1:]

        return mutated

    swap(stack, EmqpSession, "_inform", make)


@mutant(
    "a lost DCP worker is not asked to reconnect",
    *both("dcp,dcp"),
    "worker_freeze=0.6",
    "beat=0.5",
    "quiet=0",
    first=3,
)
def no_reconnect(stack: ExitStack) -> None:
    def make(ping: Any) -> Any:
        def mutated(self: DcpSession) -> None:
            if self.worker is None or self.worker.alive:
                ping(self)

        return mutated

    swap(stack, DcpSession, "_ping", make)


@mutant("a DCP client gets its reply without its metadata", "clients=dcp,dcp", "workers=dcp,mdx")
def metadata_lost(stack: ExitStack) -> None:
    def make(send: Any) -> Any:
        def mutated(self: DcpSession, request: Request, body: Any) -> None:
            request.ref = b""
            send(self, request, body)

        return mutated

    swap(stack, DcpSession, "send_final", make)


# --- limits and shutdown ---------------------------------------------------------------------------------------------------


@mutant(
    "the number of services is not limited",
    *both("mdx,mdx,mdx"),
    "services=3",
    "max_services=3",
    "unknown=0.5",
)
def services_unbounded(stack: ExitStack) -> None:
    def make(unusual: Any) -> Any:
        def mutated(self: Admission, session: Session, name: bytes, *more: Any) -> "Request | None":
            state = self._state
            policy, state.policy = state.policy, replace(state.policy, max_services=1 << 20)
            try:
                request: Request | None = unusual(self, session, name, *more)
                return request
            finally:
                state.policy = policy

        return mutated

    swap(stack, Admission, "resolve", make)


@mutant(
    "a broker that shuts down forgets queued requests",
    "broker_stop=0.3",
    "slow=0.5",
    "pace=0.2",
    "burst=8",
    *both("mdx,mdx"),
)
def shutdown_forgets_queue(stack: ExitStack) -> None:
    def make(shutdown: Any) -> Any:
        def mutated(self: Broker) -> None:
            for worker in list(self.workers):
                worker.session.dismiss(worker)

        return mutated

    swap(stack, Broker, "shutdown", make)


# --- the journal -----------------------------------------------------------------------------------------------------------


@mutant(
    "dropped journal rows are not reported",
    "disk_full=0.5",
    "pace=0.2",
    "burst=8",
    "broker_crash=0",
    first=3,
)
def drops_unreported(stack: ExitStack) -> None:
    def make(drop: Any) -> Any:
        def mutated(self: JournalRecorder) -> None:
            if self.queue.chunks:
                self.queue.chunks.popleft()

        return mutated

    swap(stack, JournalRecorder, "_drop", make)


@mutant("a requeue is not recorded in the journal", "worker_crash=0.6", "slow=0.3", *both("mdx,mdp2"), first=4)
def requeue_unwritten(stack: ExitStack) -> None:
    swap(stack, JournalRecorder, "requeued", lambda requeued: lambda self, *facts: None)


@mutant("a failure is not recorded in the journal", "unknown=0.5", "queue_expiry=3", *both("mdx,mdx"))
def failure_unwritten(stack: ExitStack) -> None:
    def make(ended: Any) -> Any:
        def mutated(self: JournalRecorder, request: Request) -> None:
            if request.outcome != "no-worker":
                ended(self, request)

        return mutated

    swap(stack, JournalRecorder, "ended", make)
