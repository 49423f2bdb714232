"""Every number that bounds or paces polydomo, each with its reason.

A number that a user may want to change is the default of a setting (see ``server/settings.py``); the others are
fixed here. Sizes are bytes, times are seconds. Nothing else belongs in this file.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- one peer's bytes -------------------------------------------------------------------------------------------------

MAX_MESSAGE: Final = 64 * MIB  # memo01 promises "several megabytes"; 64 MiB leaves room and still fits a small machine.
MAX_FRAME: Final = MAX_MESSAGE  # One frame may be the whole message.
MAX_FRAMES: Final = 1024  # An endless multipart made libzmq grow by 443 MiB; no published peer sends over a few dozen.
MAX_HANDSHAKE: Final = 8 * KIB  # Greeting and READY of every known peer are under 300 bytes; CURVE needs about 1 KiB.
MAX_IDENTITY: Final = 255  # ZMTP: "Identity ... 0 to 255 octets".
HANDSHAKE_TIME: Final = 10.0  # libzmq's own handshake interval is 30 s; a slow link needs 1 s.
MAX_UNSENT: Final = 160 * MIB  # What one peer may leave unread: two of the largest messages and a margin.
CHOKE_UNSENT: Final = 1 * MIB  # From here on a client that does not read is not read from either.
BIG_BODY: Final = 32 * KIB  # From here on copying a body costs more than handling it as a piece of its own.

# --- what the broker holds --------------------------------------------------------------------------------------------

MAX_CONNECTIONS: Final = 20_000  # About 10 KiB each; also bounded by the process's file descriptors.
MAX_OUTSTANDING: Final = 8_192  # Requests one client connection may have open before it is no longer read.
MAX_QUEUE: Final = 100_000  # Requests waiting for one service before its senders are no longer read.
MAX_HELD_BYTES: Final = 1024 * MIB  # Bodies the broker holds in all; past it, senders are no longer read.
MAX_SERVICES: Final = 10_000  # Names, with or without workers; a client inventing names must not fill memory.
MAX_SERVICE_NAME: Final = 255  # One short ZMTP frame; the longest published name has 24 bytes.
MAX_SERVICES_PER_WORKER: Final = 1_000  # memo01, eMQP and DCP workers may offer several.
RESUME_FRACTION: Final = 0.75  # A paused sender is read again below this part of the bound, so that it does not flutter.

# --- promises in time -------------------------------------------------------------------------------------------------

ATTEMPTS: Final = 3  # Times a request is handed to a worker before it is given up.
QUEUE_EXPIRY: Final = 60.0  # How long a request waits for a service that has no worker at all.
BUSY_TIMEOUT: Final = 900.0  # Silence allowed while a worker that does not beat when busy holds a request.
GRACE: Final = 10.0  # On SIGTERM, how long requests in flight may take to finish.
TIMER_TICK: Final = 0.01  # Deadlines are kept in buckets this wide: never early, at most this late.
ZOMBIE_TIME: Final = 5.0  # How long a connection stays open, unheard, after a DISCONNECT; then it is closed.

# --- heartbeats, per protocol -----------------------------------------------------------------------------------------

MDP_BEAT: Final = 2.5  # The Guide's and majortomo's interval.
MDX_BEAT: Final = 2.5  # The draft says "agreed upon"; its parent's.
DCP_BEAT: Final = 2.5  # DagBox: "implementation-defined"; its worker pings faster.
DBP_BEAT: Final = 5.0  # Used where a registration agrees to beat without naming its interval.
EMQP_BEAT: Final = 3.0  # EventMQ's interval (seen).
MEMO_IDLE: Final = 10.0  # memo01's broker answers an idle worker with HEARTBEAT after this (seen).
BEATS_MISSED: Final = 3  # "some multiple of that interval (usually 3-5)"
EMQP_BEATS_MISSED: Final = 5  # EventMQ's managers beat from a busy loop and run late.

MEMO_QUEUE_EXPIRY: Final = 10.0  # "a job waits at most 10 s for a worker" (seen)
MEMO_RECONNECT: Final = 1.0  # A memo01 worker may reappear on a new connection for this long before its job is given back.
MEMO_ANSWER_CACHE: Final = 64  # Answers kept per connection for a resend that crosses its answer.
DCP_MAX_HELD: Final = 8  # Requests a DCP worker may hold by pinging while busy.
EMQP_MAX_SLOTS: Final = 1_000  # READYs one EventMQ worker may have outstanding.
