"""The options of a world, which its seed draws: peers, faults of the network and of processes, and settings of the broker.

Each seed draws which faults exist at all (swarm testing). A world with all faults at once seldom gets far enough for the rare ones to
matter, and a world with one fault shows what that fault alone can do.
"""

from dataclasses import dataclass, field, fields
from random import Random

from polydomo import limits

PROTOCOLS = ("mdp1", "mdp2", "mdx", "dcp", "emqp", "memo")


@dataclass
class Options:
    seed: int = 0

    # the peers
    brokers: int = 1
    bridged: bool = False  # each broker connects to the next, and each service is offered at one of them only
    siblings: bool = (
        False  # ... they are processes of one broker: all are connected, and workers of a service can be at any of them
    )
    services: int = 2
    clients: list[str] = field(default_factory=lambda: ["mdx"])  # one protocol per client
    workers: list[str] = field(default_factory=lambda: ["mdx"])
    nng: bool = False  # memo01 peers behave like NNG: they resend requests and reconnect
    catalog: int = 0  # number of DBP services, and of clients that look them up
    taking: int = 0  # number of services whose worker is a DBP service that takes requests
    topics: int = 0  # number of publishers, and of subscribers
    trouble: float = 30.0  # simulated seconds before everything heals
    pace: float = 1.0  # seconds between two bursts of one client
    burst: int = 3  # maximum number of calls in a burst
    big: float = 0.0  # fraction of bodies that are too large to be copied
    retries: int = 0  # retries of calls that are safe to repeat

    # the network
    latency: float = 0.002
    jitter: float = 0.002
    split: float = 0.0  # fraction of writes that arrive in pieces
    clog: float = 0.0  # this and the following are rates per simulated second
    partition: float = 0.0  # in both directions
    one_way: float = 0.0
    cut: float = 0.0  # a connection breaks, and bytes in transit are lost from some byte on, in each direction
    half_open: float = 0.0  # fraction of cuts that one side notices much later

    # the processes
    worker_crash: float = 0.0
    worker_freeze: float = 0.0
    client_crash: float = 0.0
    client_freeze: float = 0.0
    broker_crash: float = 0.0
    broker_freeze: float = 0.0
    broker_stop: float = 0.0  # shuts down, as after SIGTERM
    clock_jump: float = 0.0  # a broker's clock jumps forward, as after the machine was suspended; its wall clock jumps in either direction
    durable: float = (
        0.0  # if not 0, the first service is durable, and a commit of the job store takes this many seconds
    )
    disk_full: float = 0.0  # a broker cannot write its journal for a while; a crash always loses unwritten rows
    slow_turn: float = 0.0  # longest turn of a broker's event loop, in seconds

    # the peers' behaviour
    partials: float = 0.0  # fraction of jobs with partial replies
    failing: float = 0.0  # fraction of jobs that fail
    leaving: float = 0.0  # fraction of jobs after which the worker disconnects and reconnects
    repeating: float = 0.0  # fraction of replies that are sent twice
    forwarding: float = 0.0  # fraction of a DCP worker's jobs that it forwards
    quiet: float = 0.0  # fraction of workers that send no heartbeats while busy
    slow: float = 0.0  # fraction of jobs that take long
    mute_reader: float = 0.0  # rate: a client stops reading for a while
    garbage: float = 0.0  # rate: a peer connects and sends invalid bytes
    greed: float = 0.0  # rate: a peer sends, or makes the broker hold, as much as it can
    unattended: float = 0.0  # rate: a client sends requests without asking for replies, and leaves
    give_up: float = 0.0  # fraction of calls with a very short timeout
    curve: float = 0.0  # fraction of ZMTP peers that authenticate with CURVE
    intruder: float = 0.0  # rate: a peer tries an unknown key, a stolen public key, or something it has no right to
    rights: float = 0.0  # rate: a reload grants or revokes a right
    trespass: float = 0.0  # rate: a peer with few rights or none tries what it may not do
    unknown: float = 0.0  # fraction of calls to a service without workers
    slots: int = 1  # jobs that a worker connection asks for, if its protocol allows it
    near: float = 0.0  # fraction of calls that name a key, whose last worker they prefer
    extended: float = 0.0  # fraction of ZMTP peers that announce polydomo's extensions
    credit: int = 1  # jobs that an MDX worker with extensions runs concurrently
    prefetch: int = 0  # jobs that it prefetches beyond those
    cancelling: float = 0.0  # fraction of calls that the client cancels
    resend: float = 3.0  # seconds after which NNG resends a request

    # the broker's settings
    attempts: int = 3
    queue_expiry: float = 20.0
    busy_timeout: float = 20.0
    beat: float = 1.0
    requeue_after_partial: bool = False
    max_outstanding: int = 64
    max_queue: int = 256
    max_held_bytes: int = 1 << 24
    max_services: int = 64
    max_unsent: int = 1 << 20
    max_memory: int = 0
    turn_work: int = limits.TURN_WORK
    turn_share: int = limits.TURN_SHARE
    least_share: int = limits.LEAST_SHARE
    bridge_window: int = 1024
    bridge_bytes: int = 1 << 24
    choke: int = 1 << 16
    running: int = 0  # limits of every service, per group: requests that run at the same time; 0: any number
    rate: int = 0  # ... starts in any window; 0: any number
    window: float = 1.0
    groups: int = 0  # of which clients choose one for each call, if their protocol carries it
    batch: int = 0  # calls that a worker with batches serves together; 0: there are no such workers
    batch_wait: float = 0.005  # seconds that the first call of a batch waits for others

    def faults(self) -> list[str]:
        """The faults of this world."""
        return [name for name in (*FAULTS, "greed") if getattr(self, name)]


# The range from which the amount of each fault is drawn, if the world has it.
FAULTS: dict[str, tuple[float, float]] = {
    "split": (0.05, 0.9),
    "clog": (0.02, 0.5),
    "partition": (0.01, 0.15),
    "one_way": (0.01, 0.15),
    "cut": (0.02, 0.6),
    "half_open": (0.2, 0.9),
    "worker_crash": (0.02, 0.4),
    "worker_freeze": (0.02, 0.4),
    "client_crash": (0.01, 0.2),
    "client_freeze": (0.01, 0.2),
    "broker_crash": (0.01, 0.08),
    "broker_freeze": (0.01, 0.1),
    "broker_stop": (0.01, 0.06),
    "clock_jump": (0.01, 0.1),
    "disk_full": (0.02, 0.2),
    "slow_turn": (0.001, 0.05),
    "partials": (0.1, 0.8),
    "failing": (0.02, 0.4),
    "leaving": (0.02, 0.3),
    "repeating": (0.02, 0.3),
    "forwarding": (0.1, 0.5),
    "quiet": (0.3, 1.0),
    "slow": (0.02, 0.3),
    "mute_reader": (0.02, 0.2),
    "garbage": (0.05, 0.6),
    "give_up": (0.05, 0.5),
    "unknown": (0.02, 0.2),
    "big": (0.02, 0.2),
}

FORWARD_TO = b"last"  # the service to which DCP workers forward
ONWARD = b"onward"  # the last frame of a request that was forwarded with metadata of the worker


def draw(seed: int) -> Options:
    """Draws the options of a seed. New options are drawn last, so that the older ones stay the same for each seed."""
    rng = Random(f"options {seed}")
    options = Options(seed=seed)
    options.brokers = 2 if rng.random() < 0.1 else 1
    options.services = rng.randint(1, 3)
    spoken = rng.sample(PROTOCOLS, rng.choice((1, 1, 2, 3, len(PROTOCOLS))))
    options.clients = [rng.choice(spoken) for _ in range(rng.randint(1, 5))]
    options.workers = [rng.choice(spoken) for _ in range(rng.randint(1, 6))]
    options.nng = rng.random() < 0.5
    options.catalog = rng.choice((0, 0, 0, 1, 2))
    options.topics = rng.choice((0, 0, 0, 1, 2))
    options.trouble = rng.uniform(4.0, 16.0)
    options.pace = rng.choice((0.3, 1.0, 2.0, 3.0))
    options.burst = rng.choice((1, 2, 3, 8))
    options.retries = rng.choice((0, 0, 2))
    options.latency = rng.choice((0.0001, 0.002, 0.05))
    options.jitter = options.latency * rng.choice((0.1, 1.0, 10.0))
    for name, (least, most) in FAULTS.items():
        if rng.random() < 0.3:
            setattr(options, name, least * (most / least) ** rng.random())
    options.slots = rng.choice((1, 1, 2, 4))
    options.resend = rng.choice((1.0, 5.0))
    options.attempts = rng.choice((1, 2, 3, 3, 3))
    options.queue_expiry = rng.choice((3.0, 20.0))
    options.busy_timeout = rng.choice((5.0, 20.0))
    options.beat = rng.choice((0.5, 1.0, 2.5))
    options.requeue_after_partial = rng.random() < 0.2
    if rng.random() < 0.4:
        options.max_outstanding = rng.choice((2, 4, 8))
    if rng.random() < 0.4:
        options.max_queue = rng.choice((2, 5, 12))
    if rng.random() < 0.2:
        options.max_held_bytes = rng.choice((2_000, 50_000))
    if rng.random() < 0.2:
        options.max_services = options.services + rng.choice((1, 2))
    if rng.random() < 0.3:
        options.choke = 2_000
        options.max_unsent = rng.choice((20_000, 200_000))
    if rng.random() < 0.12:
        options.bridged = True
        options.brokers = rng.choice((2, 2, 3))
        # A bridge cannot be paused at a limit, because it carries a worker. Its window limits it, and must be smaller than max_outstanding.
        options.max_outstanding = 256
        options.bridge_window = rng.choice((2, 8, 200))
        options.max_queue = rng.choice((3, 256))
        options.bridge_bytes = rng.choice((1, 300, 1 << 24))
    if rng.random() < 0.25:
        options.curve = rng.choice((0.3, 1.0))
        options.intruder = rng.choice((0.0, 0.3, 1.0))
        options.rights = rng.choice((0.0, 0.2, 1.0))
    if rng.random() < 0.15:
        options.greed = rng.choice((0.5, 2.0))
        if rng.random() < 0.7:
            options.turn_work, options.turn_share, options.least_share = 400, 100, 20
        if rng.random() < 0.5:
            options.max_memory = 4 << 20
    if options.bridged and rng.random() < 0.5:
        options.siblings = True
    if rng.random() < 0.5:
        options.extended = rng.choice((0.5, 1.0))
        options.near = rng.choice((0.0, 0.5))
        options.credit = rng.choice((1, 2, 4, 16))
        options.prefetch = rng.choice((0, 1, 4))
        options.cancelling = rng.choice((0.0, 0.1, 0.5))
    if rng.random() < 0.15:
        options.durable = rng.choice((0.001, 0.02, 0.3))
    secured = options.curve or options.intruder or options.rights
    # HTTP peers authenticate by TLS, and are served by process 0.
    if rng.random() < 0.2 and not secured and not options.siblings:
        options.clients[-1] = "http"
        if rng.random() < 0.5:
            options.workers[-1] = "http"
    if rng.random() < 0.2 and not secured:
        options.unattended = rng.choice((0.3, 2.0))
    if secured and rng.random() < 0.5:
        options.trespass = rng.choice((0.5, 2.0))
    if rng.random() < 0.15 and not secured:
        options.taking = rng.choice((1, 2))
        options.max_services += options.taking
    if rng.random() < 0.3:
        options.running = rng.choice((0, 1, 2, 4))
        options.rate = rng.choice((0, 2, 5)) if options.running else rng.choice((1, 3, 8))
        options.window = rng.choice((0.2, 1.0, 2.0))
        options.groups = rng.choice((1, 3))
    if rng.random() < 0.25:
        options.batch = rng.choice((2, 4, 16))
        options.batch_wait = rng.choice((0.0, 0.005, 0.3))
    return options


def override(options: Options, text: str) -> None:
    """Sets an option from ``name=value``; the elements of lists are separated by commas. Raises ValueError."""
    name, _, value = text.partition("=")
    known = {each.name: getattr(options, each.name) for each in fields(options)}
    if name not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(known)}")
    old = known[name]
    if isinstance(old, list):
        setattr(options, name, value.split(",") if value else [])
    elif isinstance(old, bool):
        setattr(options, name, value.lower() in ("1", "true", "yes"))
    else:
        setattr(options, name, type(old)(value))
