"""A world: brokers, clients and workers. After a period of faults everything heals, and the world must become healthy, then empty."""

import zlib
from collections.abc import Callable
from itertools import combinations, pairwise
from random import Random

from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from sim.bridging import Bridge
from sim.brokers import BrokerNode
from sim.checker import Breach, check
from sim.clients import Call, Client
from sim.clock import Process, Scheduler
from sim.garbage import Garbler
from sim.greedy import Greedy
from sim.leaving import Leaver
from sim.network import Network
from sim.options import FORWARD_TO, Options
from sim.others import CatalogClient, CatalogService, Keeper, Publisher, Subscriber
from sim.peers import Peer
from sim.record import Record
from sim.security import Intruder, Keys
from sim.trespass import Trespasser
from sim.workers import SEVERAL, Worker

CALLS_END = (
    20.0  # simulated seconds after healing within which every call has its outcome: the longest timeout plus a margin
)
SETTLE = 6.0  # simulated seconds after that, plus some heartbeats, within which every worker is registered again
PROBE = 20.0  # seconds within which a call in a healthy world is answered
LEAVE = 20.0  # seconds after which nothing is left of a world whose peers have disconnected
LEAVE_JOBS = 150.0  # the same with durable jobs, whose attempts go on without clients
WIDE = 64  # requests: a window between two brokers or processes that the requests of a world do not fill
WIDE_BYTES = 1 << 16
MOST_EVENTS = 400_000  # a simulation with more events than this does not end


class World:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.starts: dict[
            tuple[str, bytes, bytes], list[float]
        ] = {}  # of services with limits, by broker, service and group
        self.rng = Random(f"world {options.seed}")
        self.scheduler = Scheduler()
        self.record = Record()
        self.network = Network(self.scheduler, options, Random(f"network {options.seed}"))
        self.breaches: list[Breach] = []
        self.faults: dict[str, int] = {}
        self.outcomes: dict[str, int] = {}
        self.troubled = True
        self.guest_may_call = True  # by the access file that the processes of one broker share
        self.submitted = 0
        self.executions = 0
        self.steps = 0
        self.hurrying = 0.0  # until when a peer exceeds its quota
        self.largest = 41_000 if options.big else 200  # bytes of a body
        self.services = [b"s%d" % i for i in range(options.services)]
        self.taking = [b"d%d" % i for i in range(options.taking)]  # each has one worker, which speaks DBP
        self.services += self.taking
        secured = options.curve or options.intruder or options.rights or options.trespass
        self.keys = Keys(options.seed) if secured else None
        self.nodes = [
            BrokerNode(self, f"b{i}", Random(f"broker {i} {options.seed}"), Bridge) for i in range(options.brokers)
        ]
        if options.bridged:
            joined = combinations(self.nodes, 2) if options.siblings else pairwise(self.nodes)
            for one, other in joined:
                one.bridge_to(other)
        self.clients: list[Client] = []
        self.workers: list[Worker] = []
        self.keepers: list[Keeper] = []  # peers of the catalog and of topics
        self.catalog_names = [f"n{i}" for i in range(options.catalog)]
        self.answers: list[Call] = []  # calls that got a reply
        self.probes: list[Call] = []
        self._cast()

    def _cast(self) -> None:
        options = self.options
        rng = self.rng
        for i, protocol in enumerate(options.clients):
            self.clients.append(Client(self, f"c{i}", rng.choice(self.nodes), protocol))
        number = 0
        for node in self.nodes:
            # Every service has a worker at every broker, or, if brokers are bridged, at one of them.
            offered = [name for name in self.services if name not in self.taking]
            offered += [*([FORWARD_TO] if options.forwarding or options.trespass else [])]
            crew = max(len(offered), len(options.workers))
            for i in range(crew):
                protocol = options.workers[i % len(options.workers)]
                services = [offered[i % len(offered)]]
                if protocol in SEVERAL and rng.random() < 0.4:
                    services = sorted({*services, rng.choice(offered)})
                if options.bridged:
                    services = [offered[i % len(offered)]]
                    node = self.nodes[zlib.crc32(services[0]) % len(self.nodes)]
                    if options.siblings:
                        node = rng.choice(self.nodes)
                    if number >= crew:
                        continue
                self.workers.append(Worker(self, f"w{number}", node, protocol, services))
                number += 1
        for i, service in enumerate(self.taking):
            # At process 0, which has the catalog; where brokers are not bridged, at each of them.
            for j, node in enumerate(self.nodes[:1] if options.bridged else self.nodes):
                self.workers.append(Worker(self, f"wd{i}{j}", node, "dbp", [service]))
        node = self.nodes[0]
        for i, name in enumerate(self.catalog_names):
            # In bridged worlds, the client is at the other end of the chain.
            asked = self.nodes[-1] if options.bridged and not options.siblings else node
            self.keepers += [CatalogService(self, name, node), CatalogClient(self, f"q{i}", asked)]
        for i in range(options.topics):
            publisher = Publisher(self, f"p{i}", node)
            # In bridged worlds, the subscriber is at the other end of the chain.
            self.keepers += [
                publisher,
                Subscriber(self, f"u{i}", self.nodes[-1] if options.bridged else node, publisher),
            ]

    @property
    def peers(self) -> list[Peer]:
        return [*self.clients, *self.workers, *self.keepers]

    def pick_service(self, client: Client) -> bytes:
        if self.rng.random() < self.options.unknown:
            return b"nobody"
        return self.rng.choice(self.services)

    # --- counters and breaches

    def count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def breach(self, rule: str, text: str, tag: str = "", detail: str = "") -> None:
        self.record.add(self.scheduler.now, "checker", "breach", tag, rule, text)
        self.breaches.append(Breach(rule, text, tag, detail))

    def ended(self, call: Call, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if outcome == "reply":
            self.answers.append(call)

    # --- the phases

    def run(self) -> None:
        """Runs all phases, until the first breach; then checks the record as a whole."""
        for phase in (self._trouble, self._recovery, self._health, self._rest):
            phase()
            if self.breaches:
                return
        for node in self.nodes:
            node.finish()
        self.breaches += check(self)

    def _trouble(self) -> None:
        self._start_trouble()
        self._until(self.options.trouble)

    def _recovery(self) -> None:
        self._heal()
        if not self._until(self.scheduler.now + CALLS_END, lambda: not any(client.calls for client in self.clients)):
            return
        for client in self.clients:
            for call in client.calls:
                self.breach(
                    "one-outcome", f"{call.tag} has no outcome {CALLS_END:g} s after everything healed", call.tag
                )
        self._until(self.scheduler.now + SETTLE + 6 * self.options.beat)

    def _health(self) -> None:
        for client in self.clients:
            client.hang_up()  # abandoned requests may be queued before its new ones, so it reconnects
        self._until(self.scheduler.now + 1.0)
        before = {keeper: keeper.number for keeper in self.keepers if isinstance(keeper, Publisher)}
        # Where other clients are paused at a limit, an HTTP client is refused. So it sends its probes when no other probe waits.
        groups = [[client for client in self.clients if client.protocol != "http"]]
        groups += [[client] for client in self.clients if client.protocol == "http"]
        patience = self._patience()
        for group in groups:
            for client in group:
                for service in self.services:
                    self.probes.append(client.submit(service, patience))
                client.flush()
            if not self._until(self.scheduler.now + patience + 1.0, lambda: self._probed(before)):
                return
        for keeper in self.keepers:
            if isinstance(keeper, CatalogService) and not (
                keeper.approved and self.nodes[0].broker.directory.lookup(keeper.name)
            ):
                self.breach("liveness", f"{keeper.name} is not in the catalog of a healthy world")
            elif isinstance(keeper, CatalogClient) and (
                keeper.last is None or (keeper.asked is not None and not keeper.connected)
            ):
                self.breach("liveness", f"{keeper.name} gets no answer in a healthy world")
            elif isinstance(keeper, Subscriber) and keeper.last <= before[keeper.publisher]:
                self.breach("liveness", f"{keeper.name} has received nothing new in a healthy world")
        if self.options.bridged and self.catalog_names:
            self._check_bridged_catalog()
        # Durable requests wait for their jobs, and can fill a small window between two processes until then.
        narrow = self.options.siblings and self._narrow
        for call in self.probes:
            if self.options.durable and (call.service == self.services[0] or narrow):
                continue  # jobs of clients that stopped waiting run first
            if call.outcome != "reply":
                text = f"{call.tag} to {call.service!r} in a healthy world ended as {call.outcome or 'nothing'}"
                self.breach("liveness", text, call.tag)

    def _check_bridged_catalog(self) -> None:
        """A registered service is in the catalog of every broker, and one that has left is in none."""

        def missing(name: str) -> "list[str]":
            return [node.name for node in self.nodes if node.broker.directory.lookup(name) is None]

        self._until(self.scheduler.now + PROBE, lambda: not any(map(missing, self.catalog_names)))
        for name in self.catalog_names:
            if missing(name):
                self.breach("catalog", f"{name} is not in the catalog of {missing(name)}")
        first = next(keeper for keeper in self.keepers if isinstance(keeper, CatalogService))
        first.leave()
        self._until(self.scheduler.now + PROBE, lambda: len(missing(first.name)) == len(self.nodes))
        known = [node.name for node in self.nodes if node.name not in missing(first.name)]
        if known:
            self.breach("catalog", f"{first.name} has left, and is still in the catalog of {known}")

    @property
    def _narrow(self) -> bool:
        """Whether requests can fill the window between two brokers or processes."""
        return self.options.bridge_window < WIDE or self.options.bridge_bytes < WIDE_BYTES

    def _patience(self) -> float:
        """Seconds within which a call in a healthy world is answered. A small window lets one call after the other cross to another broker,
        and each takes its way through the brokers to the worker and back."""
        options = self.options
        if not options.bridged or not self._narrow:
            return PROBE
        crossing = 2 * options.brokers * (options.latency + options.jitter)
        return PROBE + crossing * len(self.clients) * len(self.services)

    def _probed(self, before: "dict[Publisher, int]") -> bool:
        """Whether all probes have an outcome, and all subscribers a new message."""
        if any(not call.outcome for call in self.probes):
            return False
        return all(keeper.last > before[keeper.publisher] for keeper in self.keepers if isinstance(keeper, Subscriber))

    def _is_empty(self) -> bool:
        return all(
            all(session.is_internal or session.runs_shared for session in node.broker.sessions)
            and not node.broker.open_requests
            and not len(node.broker.timers)
            and not node.broker.catalog.active_entries()
            and not node.connections
            for node in self.nodes
        )

    def _rest(self) -> None:
        for node in self.nodes:
            node.close_bridges()
        for peer in self.peers:
            peer.leave()
        leave = LEAVE_JOBS if self.options.durable else LEAVE
        if self.options.unattended:
            leave += 2 * self.options.queue_expiry  # requests without clients wait for a worker that never comes
        if not self._until(self.scheduler.now + leave, self._is_empty):
            return
        for node in self.nodes:
            node.watcher.emptied(connections=True)

    def _until(self, when: float, enough: Callable[[], bool] | None = None) -> bool:
        """Runs the world until ``when``, or until ``enough`` returns True. Returns False if a rule was broken."""
        scheduler = self.scheduler
        while not self.breaches and scheduler.step(when):
            if enough is not None and scheduler.done % 16 == 0 and enough():
                break
            if scheduler.done > MOST_EVENTS:
                self.breach("rest", f"the world is not empty after {MOST_EVENTS} events")
        return not self.breaches

    # --- faults

    def _start_trouble(self) -> None:
        rng = self.rng
        options = self.options

        def way() -> tuple[Process, BrokerNode]:
            one = rng.choice(self.peers)
            if options.bridged and rng.random() < 0.3:
                return self.nodes[0], self.nodes[1]
            return one, one.node

        def one_way() -> None:
            one, node = way()
            seconds = rng.expovariate(0.3)
            if rng.random() < 0.5:
                self.network.block(one, node, seconds)
            else:
                self.network.block(node, one, seconds)

        def partition() -> None:
            one, node = way()
            seconds = rng.expovariate(0.3)
            self.network.block(one, node, seconds)
            self.network.block(node, one, seconds)

        def clog() -> None:
            if self.network.connections:
                connection = rng.choice(self.network.connections)
                rng.choice((connection.near.out, connection.far.out)).clogged = self.scheduler.now + rng.expovariate(
                    1.0
                )

        def cut() -> None:
            alive = [connection for connection in self.network.connections if not connection.over]
            if alive:
                rng.choice(alive).cut(rng, options.half_open)

        def freeze(process: Process, mean: float) -> None:
            if process.up and not process.frozen:
                process.freeze()
                self.scheduler.at(self.scheduler.now + rng.expovariate(1.0 / mean), process.thaw)

        def forge() -> None:
            """Sends a DISCONNECT in the name of a service from another address: it must have no effect."""
            for name in self.catalog_names:
                data = udp.write(dbp.DISCONNECT, name, self.scheduler.now)
                self.network.send_datagram(Process(self.scheduler, "forger"), self.nodes[0], data)

        def fill_disk(node: BrokerNode) -> None:
            node.disk_full = True
            self.scheduler.at(self.scheduler.now + rng.expovariate(0.2), lambda: setattr(node, "disk_full", False))

        self._rate("clog", options.clog, clog)
        self._rate("partition", options.partition, partition)
        self._rate("one-way partition", options.one_way, one_way)
        self._rate("cut", options.cut, cut)
        self._rate("worker crash", options.worker_crash, lambda: rng.choice(self.workers).crash(rng.expovariate(1.0)))
        if self.keepers:
            self._rate(
                "other peer crash",
                options.worker_crash / 2,
                lambda: rng.choice(self.keepers).crash(rng.expovariate(1.0)),
            )
            self._rate("other peer freeze", options.worker_freeze / 2, lambda: freeze(rng.choice(self.keepers), 4.0))
            self._rate("forged datagram", options.garbage, forge)
        self._rate("worker freeze", options.worker_freeze, lambda: freeze(rng.choice(self.workers), 4.0))
        self._rate("client crash", options.client_crash, lambda: rng.choice(self.clients).crash(rng.expovariate(1.0)))
        self._rate("client freeze", options.client_freeze, lambda: freeze(rng.choice(self.clients), 3.0))
        self._rate("broker crash", options.broker_crash, lambda: rng.choice(self.nodes).crash(rng.expovariate(0.5)))
        self._rate("broker freeze", options.broker_freeze, lambda: freeze(rng.choice(self.nodes), 3.0))
        self._rate("broker stop", options.broker_stop, lambda: rng.choice(self.nodes).stop(rng.expovariate(1.0)))
        self._rate(
            "clock jump",
            options.clock_jump,
            lambda: rng.choice(self.nodes).jump(rng.expovariate(0.2), rng.gauss(0, 1e6)),
        )
        self._rate("disk full", options.disk_full, lambda: fill_disk(rng.choice(self.nodes)))
        self._rate(
            "client stops reading", options.mute_reader, lambda: rng.choice(self.clients).mute(rng.expovariate(0.3))
        )
        self._rate("client closes", options.client_crash, lambda: rng.choice(self.clients).hang_up())
        self._rate("intruder", options.intruder, lambda: Intruder(self, rng.choice(self.nodes)).start())
        self._rate("rights", options.rights, self._change_rights)
        self._rate("trespass", options.trespass, lambda: Trespasser(self, rng.choice(self.nodes)).start())

        def be_greedy() -> None:
            for _ in range(rng.choice((1, 12))):
                Greedy(self, rng.choice(self.nodes)).start()

        self._rate("greed", options.greed, be_greedy)
        self._rate("left without waiting", options.unattended, lambda: Leaver(self, rng.choice(self.nodes)).start())
        self._rate("garbage", options.garbage, lambda: Garbler(self, rng.choice(self.nodes)).start())

    def _change_rights(self) -> None:
        guard = self.rng.choice(self.nodes).guard
        if guard is None:
            return
        self.guest_may_call = not guard.allowed
        # the processes of one broker read the same file
        for each in [node.guard for node in self.nodes] if self.options.siblings else [guard]:
            if each is not None and each.allowed != self.guest_may_call:
                each.flip()

    def _rate(self, name: str, rate: float, action: Callable[[], None]) -> None:
        """Runs ``action`` at ``rate`` per simulated second, until everything heals."""
        if not rate:
            return

        def happen() -> None:
            if self.troubled:
                self.count(name)
                action()
                again()

        def again() -> None:
            self.scheduler.at(self.scheduler.now + self.rng.expovariate(rate), happen)

        again()

    def _heal(self) -> None:
        self.troubled = False
        self.record.add(self.scheduler.now, "world", "healed")
        for node in self.nodes:
            node.restart()
        for process in [*self.nodes, *self.peers]:
            process.thaw()
        for peer in self.peers:
            peer.restart()
        self.network.heal()
        for worker in self.workers:
            worker.hurry()
