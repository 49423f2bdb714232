"""Settings of earlier versions that have no effect any more. A broker with one of them starts, and logs a warning."""

_FIXED = "its value is fixed now; see limits.py"
_BEAT = "one interval counts for MDP, MDX, DCP and eMQP: set beat"
_ROLL = "segments are closed after 5 s, 200,000 rows or 64 MiB, and small ones are merged later"

# key -> why it has no effect, or what to set instead
RETIRED = {
    "mdp.beat": _BEAT,
    "mdx.beat": _BEAT,
    "dcp.beat": _BEAT,
    "emqp.beat": _BEAT,
    "dbp.beat": "a registration that names no interval gets 5 s",
    "bridge.beat": "brokers send heartbeats to each other every second",
    "emqp.beats_missed": "it is 5, or beats_missed if that is more",
    "emqp.max_slots": _FIXED,
    "dcp.max_held": f"{_FIXED}; a worker that names a window can hold more requests",
    "mdx.max_credit": _FIXED,
    "memo.idle": _FIXED,
    "memo.reconnect": _FIXED,
    "bridge.hops": _FIXED,
    "bridge.patience": _FIXED,
    "bridge.window": "it follows from limits.max_outstanding and limits.max_queue",
    "dbp.beacon_interval": "beacons are sent every second",
    "journal.roll_rows": _ROLL,
    "journal.roll_bytes": _ROLL,
    "journal.roll_seconds": _ROLL,
    "journal.merge": "small segments are always merged",
    "limits.max_frame": "a frame may be as large as a message: set limits.max_message",
    "limits.max_frames": _FIXED,
    "limits.max_handshake": _FIXED,
    "limits.handshake_time": _FIXED,
    "limits.max_unattended": _FIXED,
}
FLAGS_WITHOUT_VALUE = {"journal.merge"}
