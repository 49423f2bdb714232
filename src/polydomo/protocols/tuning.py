"""The numbers and choices of the protocols that a user may set; the defaults and their reasons stand in ``limits.py``."""

from dataclasses import dataclass, field

from polydomo import limits


@dataclass
class Tuning:
    """One record for all codecs; ``server.settings`` fills it."""

    mdp_beat: float = limits.MDP_BEAT
    mdx_beat: float = limits.MDX_BEAT
    dcp_beat: float = limits.DCP_BEAT
    dbp_beat: float = limits.DBP_BEAT
    emqp_beat: float = limits.EMQP_BEAT
    beats_missed: int = limits.BEATS_MISSED  # times the interval: the silence after which a worker is lost
    emqp_beats_missed: int = limits.EMQP_BEATS_MISSED
    memo_idle: float = limits.MEMO_IDLE
    memo_queue_expiry: float = limits.MEMO_QUEUE_EXPIRY
    memo_reconnect: float = limits.MEMO_RECONNECT
    busy_timeout: float = limits.BUSY_TIMEOUT
    mdx_max_credit: int = limits.MDX_MAX_CREDIT
    dcp_max_held: int = limits.DCP_MAX_HELD
    emqp_max_slots: int = limits.EMQP_MAX_SLOTS
    mdx_client_header: bytes = b"MDXC01"  # frame 0; both may be one value
    mdx_worker_header: bytes = b"MDXW01"
    mdp2_dialects: dict[bytes, str] = field(default_factory=dict)  # service -> "majortomo" or "libmdp": skips the guess
    bridge_beat: float = limits.BRIDGE_BEAT
    bridge_hops: int = limits.MAX_HOPS  # brokers on the way to a service that is learned
    bridge_window: int = limits.BRIDGE_WINDOW  # requests taken from another broker at a time
    bridge_bytes: int = limits.MAX_CLIENT_BYTES  # ... and bytes of them, after which no more are
    bridge_accept: str = (
        "local"  # whose bridges are taken: "local" (no other machine reaches the listener), "all", "none"
    )
    bridge_patience: float = limits.BRIDGE_PATIENCE
    bridge_topics: list[bytes] = field(default_factory=list)  # prefixes of topics that cross
    max_backlog: int = limits.MAX_BACKLOG  # bytes that wait for a slow subscriber
    skip_slow: bool = False  # past that, it misses messages; otherwise it is cut off
    dbp_silent: bool = True  # a registration that names no heartbeat timing is accepted and does not expire
    dbp_names: list[str] = field(default_factory=list)  # allow list; empty allows every name
