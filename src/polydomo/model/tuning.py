"""The settings of the protocols. ``limits.py`` defines and explains the defaults."""

from dataclasses import dataclass, field

from polydomo import limits
from polydomo.model.name_patterns import PatternMap
from polydomo.model.objective import Objective

STRICT = "strict"
LENIENT = "lenient"
AUTO = "auto"


@dataclass
class Tuning:
    """The settings of connections and of all protocols; ``server.settings`` creates it. Some values are fixed: only tests use others."""

    handshake_time: float = limits.HANDSHAKE_TIME
    max_handshake: int = limits.MAX_HANDSHAKE
    max_frames: int = limits.MAX_FRAMES
    beacon_interval: float = limits.BEACON_INTERVAL
    mdp_beat: float = limits.MDP_BEAT
    mdx_beat: float = limits.MDX_BEAT
    dcp_beat: float = limits.DCP_BEAT
    dbp_beat: float = limits.DBP_BEAT
    emqp_beat: float = limits.EMQP_BEAT
    beats_missed: int = limits.BEATS_MISSED  # heartbeat intervals of silence after which a worker is lost
    emqp_beats_missed: int = limits.EMQP_BEATS_MISSED
    memo_idle: float = limits.MEMO_IDLE
    memo_queue_expiry: float = limits.MEMO_QUEUE_EXPIRY
    memo_reconnect: float = limits.MEMO_RECONNECT
    busy_timeout: float = limits.BUSY_TIMEOUT
    # How long a busy worker may be silent: STRICT, as long as an idle one, or LENIENT, ``busy_timeout``. MDP's published workers are silent
    # while busy, and so is DagBox's worker of DCP, which AUTO recognises by its dialect.
    mdp_busy: str = LENIENT
    mdx_busy: str = STRICT
    dcp_busy: str = AUTO
    emqp_busy: str = STRICT
    mdx_max_credit: int = limits.MDX_MAX_CREDIT
    dcp_max_held: int = limits.DCP_MAX_HELD
    emqp_max_slots: int = limits.EMQP_MAX_SLOTS
    emqp_reply_always: bool = False  # a REQUEST without ``reply-requested`` is answered, too
    mdx_client_header: bytes = b"MDXC01"  # frame 0; both may be one value
    mdx_worker_header: bytes = b"MDXW01"
    # By service: "majortomo" or "libmdp" skips the detection.
    mdp2_dialects: PatternMap[str] = field(default_factory=lambda: PatternMap({}))
    # Latency objectives, by service.
    objectives: PatternMap[Objective] = field(default_factory=lambda: PatternMap({}))
    bridge_beat: float = limits.BRIDGE_BEAT
    bridge_hops: int = limits.MAX_HOPS  # maximum number of brokers on the route to a service
    bridge_window: int = limits.BRIDGE_WINDOW  # maximum concurrent requests from another broker
    bridge_bytes: int = limits.MAX_CLIENT_BYTES  # and their maximum total size
    bridge_accept: str = "local"  # which bridges are accepted: "local" (only on listeners that other machines cannot reach), "all", "none"
    bridge_patience: float = limits.BRIDGE_PATIENCE
    bridge_topics: list[bytes] = field(default_factory=list)  # topic prefixes to forward
    max_backlog: int = limits.MAX_BACKLOG  # bytes queued for a slow subscriber
    skip_slow: bool = False  # beyond that, it misses messages; otherwise it is disconnected
    dbp_silent: bool = True  # a registration without a heartbeat interval is accepted and does not expire
    dbp_names: list[str] = field(default_factory=list)  # allow list; empty allows every name
    dbp_require: list[str] = field(default_factory=list)  # fields that a registration must have
    dbp_registered_only: bool = False  # only registered nodes may publish and offer services
