"""Everything a seed decides: who is there, how the network and the processes misbehave, and which bounds the broker has.

All faults stand in one object. Each seed draws which of them exist at all (a swarm): a world with every fault at once
seldom gets far enough for the rare ones to matter, and a world with one fault shows what that fault alone can do.
"""

from dataclasses import dataclass, field, fields
from random import Random

from polydomo import limits

PROTOCOLS = ("mdp1", "mdp2", "mdx", "dcp", "emqp", "memo")


@dataclass
class Options:
    seed: int = 0

    # the cast
    brokers: int = 1
    bridged: bool = False  # each broker dials the next, and every service is at one of them alone
    siblings: bool = False  # ... they are the processes of one broker: all are joined, and a service is at any of them
    services: int = 2
    clients: list[str] = field(default_factory=lambda: ["mdx"])  # one protocol for each
    workers: list[str] = field(default_factory=lambda: ["mdx"])
    nng: bool = False  # memo01 peers behave as NNG does: they resend, and outlive their connections
    catalog: int = 0  # DBP services, and as many clients that ask for them
    topics: int = 0  # publishers, and as many subscribers
    trouble: float = 30.0  # simulated seconds before everything heals
    pace: float = 1.0  # seconds between two bursts of one client
    burst: int = 3  # calls of one burst, at most
    big: float = 0.0  # part of the bodies that is too large to be copied
    retries: int = 0  # of calls that are safe to repeat

    # the network
    latency: float = 0.002
    jitter: float = 0.002
    split: float = 0.0  # part of the writes that arrives in pieces
    clog: float = 0.0  # rates: how often in a simulated second
    partition: float = 0.0  # both ways
    one_way: float = 0.0
    cut: float = 0.0  # a connection breaks, and what was under way is lost from some byte on, in each direction
    half_open: float = 0.0  # part of the cuts that one side learns of much later

    # the processes
    worker_crash: float = 0.0
    worker_freeze: float = 0.0
    client_crash: float = 0.0
    client_freeze: float = 0.0
    broker_crash: float = 0.0
    broker_freeze: float = 0.0
    broker_stop: float = 0.0  # leaves in order, as on SIGTERM
    clock_jump: float = 0.0  # of a broker's clock, forward, as after a machine was suspended; its wall clock either way
    durable: float = 0.0  # seconds that a commit of the job store takes: the first service is durable
    disk_full: float = (
        0.0  # a broker's journal cannot be written for a while; what a crash finds unwritten is lost anyway
    )
    slow_turn: float = 0.0  # longest turn of a broker's loop, in seconds

    # the peers' behaviour
    partials: float = 0.0  # part of the jobs that give some
    failing: float = 0.0  # part of the jobs that fail
    leaving: float = 0.0  # part of the jobs after which the worker leaves and comes back
    repeating: float = 0.0  # part of the replies that are sent twice
    forwarding: float = 0.0  # part of a DCP worker's jobs that it passes on
    quiet: float = 0.0  # part of the workers that do not beat while they work
    slow: float = 0.0  # part of the jobs that take long
    mute_reader: float = 0.0  # a client stops reading for a while; a rate
    garbage: float = 0.0  # a peer connects and talks nonsense; a rate
    greed: float = 0.0  # a peer sends or holds as much as it can; a rate
    give_up: float = 0.0  # part of the calls whose caller waits for a moment only
    curve: float = 0.0  # part of the ZMTP peers that use CURVE, and are known to the broker by their key
    intruder: float = 0.0  # a peer tries what it may not: an unknown key, a stolen public key, no right; a rate
    rights: float = 0.0  # a right is given or taken away by a reload; a rate
    unknown: float = 0.0  # part of the calls for a service that nobody offers
    slots: int = 1  # jobs one worker connection asks for, where its protocol lets it
    extended: float = 0.0  # part of the ZMTP peers that announce polydomo's extensions
    credit: int = 1  # jobs that an MDX worker with extensions runs at once
    prefetch: int = 0  # ... and that it holds beyond those
    cancelling: float = 0.0  # part of the calls that their caller cancels
    resend: float = 3.0  # seconds after which NNG repeats a request that has no answer

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

    def faults(self) -> list[str]:
        """The faults that exist in this world."""
        return [name for name in (*FAULTS, "greed") if getattr(self, name)]


# How much of each fault a world has, if it has it: the least and the most.
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

FORWARD_TO = b"last"  # the service that finishes what DCP workers pass on


def draw(seed: int) -> Options:
    """The options of one seed."""
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
    if rng.random() < 0.12:  # drawn last, so that what a seed drew before there were bridges stays the same
        options.bridged = True
        options.brokers = rng.choice((2, 2, 3))
        # At a bound a bridge cannot be slowed, since it carries a worker: its window bounds it, which is to be less than what a client may
        # have open.
        options.max_outstanding = 256
        options.bridge_window = rng.choice((2, 8, 200))
        options.max_queue = rng.choice((3, 256))
        options.bridge_bytes = rng.choice((1, 300, 1 << 24))
    if rng.random() < 0.25:  # drawn last, likewise
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
    if rng.random() < 0.5:  # drawn last, likewise
        options.extended = rng.choice((0.5, 1.0))
        options.credit = rng.choice((1, 2, 4, 16))
        options.prefetch = rng.choice((0, 1, 4))
        options.cancelling = rng.choice((0.0, 0.1, 0.5))
    if rng.random() < 0.15 and not options.siblings:  # several processes refuse durable services
        options.durable = rng.choice((0.001, 0.02, 0.3))
    secured = options.curve or options.intruder or options.rights
    if (
        rng.random() < 0.2 and not secured and not options.siblings
    ):  # HTTP peers authenticate by TLS, and are served by process 0
        options.clients[-1] = "http"
        if rng.random() < 0.5:
            options.workers[-1] = "http"
    return options


def override(options: Options, text: str) -> None:
    """Sets ``name=value``; lists are separated by commas. Raises ValueError."""
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
