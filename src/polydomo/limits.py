"""Every limit, size and interval of polydomo, each with its reason.

Numbers that a user may want to change are defaults of settings (see ``server/settings/settings.py``); the others are fixed. Sizes are in
bytes, times in seconds. This file contains nothing else.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- bytes of one peer ------------------------------------------------------------------------------------------------

MAX_MESSAGE: Final = 64 * MIB  # memo01 promises "several megabytes"; 64 MiB leaves room and still fits a small machine.
MAX_FRAME: Final = MAX_MESSAGE  # One frame may be the whole message.
# An endless multipart made libzmq grow by 443 MiB. Published peers send at most a few dozen; a node of a flow that joins 10,000 others gets
# a frame from each. Frames are charged (``WORK_FRAMES``).
MAX_FRAMES: Final = 16_384
MAX_HANDSHAKE: Final = 8 * KIB  # Greeting and READY of every known peer are under 300 bytes; CURVE needs about 1 KiB.
MAX_IDENTITY: Final = 255  # ZMTP: "Identity ... 0 to 255 octets".
MAX_IPC_PATH: Final = 107  # Linux stores a socket's path in 108 bytes, including the final zero.
MAX_JSON_DEPTH: Final = 32  # Nesting depth of JSON passed on to other peers: readable data has less.
SP_MAX_STACK: Final = 8  # 32-bit words of an SP request id, one per device passed: NNG's default limit of hops.
HANDSHAKE_TIME: Final = 10.0  # libzmq's handshake timeout is 30 s; a slow link needs 1 s.
COOKIE_TIME: Final = 60.0  # "The server MUST discard ... the cookie key after a short interval, for example 60 seconds"
HANDSHAKES_PER_SECOND: Final = 2_000.0  # Rate of key agreements for all peers: at 50 µs each, a tenth of a core.
HANDSHAKE_BURST: Final = 32  # Key agreements in a burst: 2 ms.
ACCESS_ANSWERS: Final = 10_000  # Cached decisions of the access rules; bounded because clients choose the names.
MAX_UNSENT: Final = 160 * MIB  # Unsent bytes for one peer before it is disconnected: two of the largest messages.
UNSENT_NOTICE: Final = 64 * KIB  # Unsent bytes for one peer are counted from this size; fewer are in COST_CONNECTION.
CHOKE_UNSENT: Final = 1 * MIB  # Unsent bytes for a client from which the broker stops reading from it.
CUT_AT_ONCE: Final = 64 * KIB  # Bytes of input that are split into messages in one step.
MOST_AT_ONCE: Final = 64  # Messages split off in one step; few, because the fast path stops at the first other message.
CROWD: Final = 8  # With this many peers to write to in a turn, writes to clients with queued requests are batched.
CROWD_CLIENTS: Final = 4  # Minimum number of such clients for batching.
CROWD_TURNS: Final = 4  # Turns whose writes are batched: adds less than 1 ms, and takes a quarter of the system calls.
BIG_BODY: Final = 32 * KIB  # Body size from which copying costs more than writing it as a separate buffer.

# --- HTTP and WebSocket -----------------------------------------------------------------------------------------------

TUNNEL_PIECE: Final = 4 * KIB  # Bytes of a WebSocket that are handled before other connections get their turn.
SP_FRAME: Final = 256 * KIB  # A WebSocket frame to an NNG peer: it accepts frames of up to 1 MiB.
# What the broker parses itself: bodies of HTTP endpoints other than calls and replies, MCP messages, and requests for built-in services.
# Parsing this much JSON takes up to 5 ms. Payloads of calls are not parsed, or in steps.
MAX_CONTROL: Final = 256 * KIB
STEP_TOKENS: Final = 300  # Tokens of a large JSON or CBOR value that are read in one step: about 0.5 ms.
STEP_BYTES: Final = 256 * KIB  # Bytes of a large string that are read in one step.
JSON_PIECE: Final = 192 * KIB  # Bytes of a large frame that are written as JSON at a time. A multiple of 3, for base64.
SMALL_VALUE: Final = 4 * KIB  # JSON and CBOR values of MemoDB up to this size are parsed at once.
MAX_HTTP_HEAD: Final = 16 * KIB  # Request line and headers. nginx accepts 8 KiB per line; a bearer token has under 4.
MAX_HTTP_HEADERS: Final = 100  # A browser sends about 20.
MAX_HTTP_TARGET: Final = 8_000  # RFC 9110 recommends support for "at least 8000 octets".
MAX_CHUNK_LINE: Final = 1 * KIB  # One line of chunked encoding: eight digits, plus ignored extensions or trailers.
CHUNKS_AT_ONCE: Final = 100  # Chunks that are read before the time is measured, each charged as one unit of work.
HTTP_HEAD_TIME: Final = 10.0  # Timeout of a request head; slower senders are disconnected.
HTTP_BODY_TIME: Final = 10.0  # Timeout of a body, plus one second for each HTTP_BODY_RATE bytes.
HTTP_BODY_RATE: Final = 16 * KIB  # Slower than any usable link.
HTTP_IDLE_TIME: Final = 75.0  # An idle keep-alive connection is closed after this time; nginx's default.
HTTP_LINGER: Final = 1.0  # After an error response, the rest of the request is read and discarded for this long.
LOGIN_CODE_TIME: Final = 60.0  # Validity of the single-use code of `polydomo open`; the page uses it at once.
LOGIN_SESSION_TIME: Final = 12 * 3600.0  # A working day; then the user runs `polydomo open` again.
MAX_LOGINS: Final = 1_000  # Login codes and sessions; the oldest are evicted.
MAX_MULTIPART_HEAD: Final = 4 * KIB  # Headers of one part of a multipart body; usually one header.
MAX_HTTP_TIMEOUT: Final = 7 * 86_400.0  # The longest timeout of a call.
HTTP_STREAM_CHECK: Final = 0.1  # Seconds between looks at whether the client of a stream reads again.
HTTP_POLL: Final = 30.0  # Default time that a worker's poll waits for a request; proxies allow 60 s.
HTTP_POLL_MOST: Final = 300.0
HTTP_LEASE: Final = 60.0  # Default time that an HTTP worker may hold a request without a heartbeat.
HTTP_LEASE_MOST: Final = 86_400.0
HTTP_WORKER_IDLE: Final = 10.0  # An HTTP worker that has not polled for this long (several round trips) is gone.
MAX_HTTP_WORKERS: Final = 10_000  # HTTP workers; bounded because a peer can invent any number of names.
MAX_CREDIT: Final = 1_000  # Requests that one WebSocket may hold as a worker.
WEBSOCKET_BEAT: Final = 5.0  # Ping interval of a WebSocket with a worker; browsers answer pings automatically.
WEBSOCKET_BEATS_MISSED: Final = 3
MAX_SCHEMA: Final = 64 * KIB  # The schema of one service; a large one has a few KiB.
MAX_SCHEMA_BYTES: Final = 16 * MIB  # Schemas of all services together.
SCHEMAS_AT_ONCE: Final = 20  # Schemas that a page of schemas takes in one step; one if its text is not built yet.
MAX_SCHEMA_TEXT: Final = 4_096  # Characters of a schema's description.
SHOWN_VALUE: Final = 100  # Characters of a schema's value, or of an argument's name, in an error about arguments.
MAX_SCHEMA_MEDIA: Final = 10  # Media types that a service which may be called with GET replies with.
MAX_PROGRESS_TEXT: Final = 1_000  # Characters of a text of progress, and of a partial reply in an MCP notification.
# Seconds between two reports of the progress of a request. With the last one, which does not wait, that is ten a second at most.
PROGRESS_INTERVAL: Final = 0.125
MAX_TOOL_RESULT: Final = 4 * MIB  # Result and partial replies of an MCP tool call: a language model reads less.
MEMO_KEEP_BYTES: Final = 1024 * MIB  # Stored replies of memoised services; the least recently used are evicted.
# Charged for each stored value besides its size, until the file is measured again: a page of it.
MEMO_RECORD: Final = 4 * KIB
MEMO_KEEP_AGE: Final = 7 * 86_400.0  # How long they are stored.
MEMO_PRUNE: Final = 100  # Clients with shared runs from which disconnected ones are pruned.
SHARED_PARTS: Final = 4 * MIB  # Partial replies of a run that are kept for requests with the same key that join later.
KEYED_LINGER: Final = 10.0  # How long a run continues after its last client disconnected: clients reconnect sooner.
MEMO_TRIM: Final = 0.9  # Eviction goes down to this fraction of the limit, so that not every new reply evicts.
MEMO_RECENT_BYTES: Final = 64 * MIB  # Stored replies also cached in memory; the others take a file lookup of 10 us.
MEMO_USED: Final = 1_000  # Uses of replies that are not written yet; a crash loses only these usage counts.
MEMO_CHECKPOINT_BYTES: Final = 16 * MIB  # Bytes of values between checkpoints, at most.
MEMO_CHECKPOINT: Final = 1_000  # Commits between checkpoints of the write-ahead log: a few MiB.
MAX_EVALUATIONS: Final = 100_000  # Concurrent MemoDB calls; its documentation mentions thousands.
MAX_FAILED_EVALUATIONS: Final = 10_000  # Failed calls that are remembered until a client asks again.
MEMODB_TIMEOUT: Final = 600.0  # Default timeout of a MemoDB call (observed).
MEMODB_POLL: Final = 60.0  # How long POST /worker waits for a call (observed).
MAX_MEMODB_LISTED: Final = 100_000  # Calls or heads in one list.
LISTED_AT_ONCE: Final = 50  # Names of such a list that are read in one step.
HTTP_SAME_HEAD: Final = 1 * KIB  # Heads up to this size are cached, because most requests of a connection repeat it.
IDEMPOTENCY_TIME: Final = 600.0  # How long a reply to a call with an Idempotency-Key is stored: clients retry sooner.
IDEMPOTENCY_KEYS: Final = 10_000  # Number of stored replies.
IDEMPOTENCY_BYTES: Final = 64 * MIB  # Total size of stored replies.
MAX_IDEMPOTENCY_KEY: Final = 255  # Characters; a UUID has 36.
ALARM_STEP: Final = 5.0  # The longest single timer of an alarm, so that little is left of it after its session closed.
HTTP_RETRY_AFTER: Final = 1  # Seconds in Retry-After: a queue drains within a second, or not soon.

MAX_NODE_TEXT: Final = 64 * MIB  # The JSON text of a MemoDB Node, with the Nodes that ``?depth=`` adds.
MAX_NODE_PAGE: Final = 256 * KIB  # Its text on an HTML page; the rest is left out.
MAX_NODE_KEYS: Final = 100_000  # Keys of one map of a Node that is read in steps; sorting them takes about 60 ms.
MAX_STRING_PIECES: Final = 10_000  # Pieces of a CBOR string of indefinite length, which are joined at once.
MAX_NODE_DEPTH: Final = 100  # Nesting depth of a MemoDB Node; Python's stack allows ten times as much.

# --- state of the broker ----------------------------------------------------------------------------------------------

MAX_CONNECTIONS: Final = 20_000  # About 10 KiB each; also bounded by the process's file descriptors.
IDLE_SILENT: Final = 1.0  # At the connection limit, a connection that has sent nothing for this long may be evicted.
IDLE_TIME: Final = (
    60.0  # At the connection limit, a client silent for this long, without an open request, may be evicted.
)
IDLE_NEAR: Final = 0.8  # Fraction of the limit from which idle connections are tracked.
SPARE_FILES: Final = 64  # Open files besides connections: listeners, the event loop, files on disk.
START_FILES: Final = 32  # File descriptors that must be free at startup: 17 with two listeners, and some for loading.
LEAST_CONNECTIONS: Final = 64  # With fewer, the broker does not start, because it would reject the first clients.
FEW_CONNECTIONS: Final = 1_000  # With fewer, because of ``ulimit -n``, the broker logs a warning.
BACKLOG: Final = 16_384  # Connections waiting to be accepted: after a restart, all peers reconnect at once. The system caps it (somaxconn).
PORT_TRIES: Final = 16  # A port chosen by the system may be taken on another address of the name; then retried.
MAX_OUTSTANDING: Final = 8_192  # Open requests of one client connection before the broker stops reading from it.
MAX_QUEUE: Final = 100_000  # Queued requests of one service before the broker stops reading from their senders.
MAX_HELD_BYTES: Final = 1024 * MIB  # Total size of held bodies before the broker stops reading from senders.
MAX_CLIENT_BYTES: Final = 128 * MIB  # Size of held bodies of one client, so that one client cannot block all others.
LAST_ASKED: Final = 512  # Envelopes up to this size are cached per connection: most requests begin like the last one.
MAX_UNATTENDED: Final = 100_000  # Open requests of clients that do not wait for a reply and have disconnected.
UNATTENDED_SOURCE: Final = 2  # One source (address or principal) may have one part in this many of MAX_UNATTENDED.
UNATTENDED_BYTES: Final = 4  # Their bodies may take one part in this many of MAX_HELD_BYTES.
SMALL_BODY: Final = 4 * KIB  # Bodies up to this size are not counted per client: MAX_OUTSTANDING of them take 32 MiB.
MAX_SERVICES: Final = 10_000  # Service names, with or without workers; bounded because clients can invent names.
MAX_SERVICE_NAME: Final = 255  # One short ZMTP frame; the longest published name has 24 bytes.
MAX_SERVICES_PER_WORKER: Final = 1_000  # memo01, eMQP and DCP workers may offer several.
MAX_REGISTRATIONS: Final = 20_000  # Registrations of all workers of one connection; bounds the time to close it.
MAX_CATALOG_INFO: Final = 16 * KIB  # Information of one catalog entry; the published client sends under 1 KiB.
MAX_CATALOG_BYTES: Final = 16 * MIB  # All catalog entries, so that the list of all services fits into one message.
MAX_BROKER_ADDRESS: Final = 256  # Bytes of a broker's address in an entry of the catalog that came over a bridge.
CATALOG_SHARE: Final = 0.25  # Part of MAX_CATALOG_BYTES that the catalog entries of one bridge may have.
ENTRIES_PER_TURN: Final = 64  # Catalog entries that a bridge is told per turn of the loop: 1 MiB of the largest ones.
MAX_FUNCTIONS: Final = 8  # Functions that one DBP info request may ask for; each is compared with all entries.
MAX_CATALOG_GONE: Final = 1_000  # Departed services that are remembered, with the cause.
MAX_SUBSCRIPTIONS: Final = 10_000  # Subscriptions of one subscriber.
MAX_TOPIC: Final = 255  # A topic is a name; long content belongs in the message.
MAX_HOPS: Final = 8  # Brokers on the route of a request, and on the route of a service announcement.
MAX_CARRIERS: Final = 1_000  # Brokers whose publications arrive over bridges.
BRIDGE_PATIENCE: Final = 60.0  # How long a bridge may hold a request while a local worker is idle.
RELAY_JUMP: Final = 100_000_000  # Largest plausible gap in the sequence numbers of another broker's publications.
MAX_BRIDGE_PREFIXES: Final = 100  # Topic prefixes that one bridge forwards.
MAX_RELAYED: Final = 200_000  # Topics of other brokers whose last sequence number is remembered, to drop duplicates from a second bridge.
BRIDGE_WINDOW: Final = 4_096  # Requests that one bridge may hold: 40,000 requests per second with a latency of 100 ms.
BRIDGE_SHARE: Final = 4  # Requests of bridges get at most one part in this many of MAX_QUEUE and MAX_HELD_BYTES.
PROCESSES: Final = 1  # One process serves what most users need; more pay once one core is busy.
MAX_PROCESSES: Final = 64  # Processes of one broker: each is joined to each other, and has a range of request numbers.
PROCESS_NUMBERS: Final = 1 << 30  # Process k numbers its requests from k times this on, so a token names its process.
PROCESS_WORKERS: Final = 1_000_000  # ... and its workers and connections from k times this on.
SPILL_DELAY: Final = 0.002  # Seconds a request waits for a worker of its own process before others are asked for room.
SPILL_QUICK: Final = 0.01  # Mean seconds of a job below which requests are sent ahead to another process.
RELAY_AGAIN: Final = 0.2  # Seconds until a durable request is sent to process 0 again, if it was not there.
SPILL_LOOP: Final = 0.4  # If a worker answers more requests than this per turn, none is sent to another process.
SPILL_SAMPLE: Final = 8  # Workers that are looked at for that.
SPILL_WEIGHT: Final = 0.2  # ... of the last turn in the moving average: some ten turns count.
SPILL_TURN: Final = 256  # Services whose free workers are offered to other processes in one turn of the loop.
JOURNAL_LIST: Final = 60.0  # Seconds between two looks at what the other processes have written to the journal.
PROCESS_LOOK: Final = 0.02  # Seconds between two looks at whether a process that stops has finished its requests.
PROCESS_START: Final = 30.0  # Seconds that the processes of a broker have to start and to join each other.
PROCESS_BACKOFF: Final = 0.1  # Seconds before a process that died is started again; doubled each time ...
PROCESS_BACKOFF_MOST: Final = 5.0  # ... up to this, until it has run for PROCESS_SETTLED.
PROCESS_SETTLED: Final = 10.0
HANDOVER_MESSAGE: Final = 256 * KIB  # Input of a connection before it is passed to another process; one read is less.
HANDOVERS_PER_TURN: Final = 64  # Connections that are taken over in one turn of the loop.
SIBLING_ANSWER: Final = 2.0  # Seconds that another process has for its part of an answer about the whole broker.
MAX_SIBLING_QUESTIONS: Final = 10_000  # Questions to other processes that are open at a time.
MAX_PUBLISHER_TOPICS: Final = 100  # Topics that one DBP registration may name for the broker to subscribe to.
FOLLOW_INTERVAL: Final = 1.0  # Seconds between updates of the connections to publishers; each may open a connection.
MAX_VALUES: Final = 200_000  # Topics with a last value; about 500 bytes each, plus the value.
MAX_VALUE_BYTES: Final = 256 * MIB  # Total size of topics and last values.
MAX_BACKLOG: Final = 4 * MIB  # Bytes queued for one slow subscriber, in addition to those in its socket (CHOKE_UNSENT).
VALUES_PER_TURN: Final = 2_000  # Last values sent to new subscribers in one turn of the loop: under 2 ms.
VALUE_PIECE: Final = 4 * KIB  # A large value counts as one more per this many bytes.
LISTING_ROWS: Final = 400  # Rows of a long listing produced in one turn of the loop: about 6 ms.
DIRECTORY_INTERVAL: Final = 1.0  # A DBP list of all services over DIRECTORY_SMALL bytes is built at most once a second.
DIRECTORY_SMALL: Final = 64 * KIB
MAX_VALUES_ANSWER: Final = 4 * MIB  # Size of the last values in one answer (DBP).
MAX_LOG_QUERY: Final = 4 * KIB  # Size of a query for log records.
MAX_LISTED: Final = 1_000  # Maximum rows of ``polydomo requests``, so that an answer does not stall the loop.
TOPIC_PREVIEW: Final = 256  # Characters of a last value in a list of topics.
MAX_CHAIN: Final = 32  # Services that one request may be forwarded to (DCP); stops workers that forward in a circle.
RESUME_FRACTION: Final = 0.75  # A paused sender is resumed below this fraction of the limit, so that it does not flip.

# --- work and memory shared among connections --------------------------------------------------------------------------

# Work is counted in units of about a microsecond on a machine of 2023.
TURN_WORK: Final = 20_000  # Work of all connections in one turn of the loop: at most 20 ms.
TURN_SHARE: Final = 2_000  # Work of one connection before it waits for the next turn.
SLOW_CALLBACK: Final = 0.0005  # If handling a read took this many seconds, the time beyond its price is charged.
MEASURED_ZMTP: Final = 8 * KIB  # Smaller reads of ZMTP are not timed: they are a few messages, whose price is known.
SMALL_READ: Final = 512  # Input of fewer bytes is handled even if the turn is used up: to put it aside costs as much.
LEAST_SHARE: Final = 200  # The same if many connections wait: 1,000 connections all get a turn within 200 ms.
WORK_MESSAGE: Final = 2  # To split off and dispatch a message.
WORK_FRAMES: Final = 4  # Plus one unit for this many frames (as a power of two: 16).
WORK_BYTES: Final = 12  # Plus one unit for this many bytes (as a power of two: 4 KiB).
WORK_SEALED: Final = 9  # One unit to decrypt this many bytes (as a power of two: 512).
WORK_TEXT: Final = 3  # One unit to parse this many bytes of JSON (as a power of two: 8).
WORK_HTTP: Final = 15  # To read and route the head of an HTTP request.
WORK_STEP: Final = 20  # The least for a step of work that takes several turns (``wire/steps.py``).
WORK_REQUEST: Final = 8  # To accept a request, or to forward a reply.
WORK_PUBLISH: Final = 4  # To publish a message, plus one unit for each subscriber.
WORK_SUBSCRIBE: Final = 8
WORK_RECORD: Final = 30  # To parse, check and forward a log record.
WORK_VIOLATION: Final = 40  # To log a protocol violation.
WORK_ROW: Final = 12  # To build one row of a listing.
WORK_OFFER: Final = 40  # To add or remove a service of a bridge or of the catalog.
WORK_REGISTER: Final = 4  # To register a worker for one service.
DROPS_PER_TURN: Final = 2_000  # Subscriptions of closed connections removed in one turn of the loop: about 4 ms.
MAX_VIOLATIONS: Final = 100  # Protocol violations after which a connection is closed.

DISK_PART: Final = (
    0.9  # The default of ``limits.max_disk``: this fraction of the space that is free or used by the data directory.
)
DISK_JOBS: Final = 0.5  # Fraction of it for the job store; further jobs are rejected.
DISK_JOURNAL: Final = 0.25  # For the journal; the oldest segments are removed.
DISK_MEMO: Final = 0.25  # For the memo store; further values are rejected.
DISK_MEASURED: Final = 1.0  # Seconds between measurements of the job store's file.
MEMORY_PART: Final = 2  # The default of ``limits.max_memory`` is the available memory divided by this.
MEMORY_TIGHT: Final = 0.7  # Fraction of it from which the broker stops reading from the largest consumers.
MEMORY_EASY: Final = 0.6  # Fraction below which it resumes reading.
MEMORY_CUT: Final = 0.9  # Fraction from which the largest consumers are disconnected.
MEMORY_CUT_TO: Final = 0.75  # Disconnecting stops at this fraction.
MEMORY_PATIENCE: Final = 5.0  # Seconds that memory may stay tight before the largest consumer is disconnected.
MEMORY_SHARE: Final = 1 / 64  # Fraction from which a peer counts as one of the largest consumers.
MEMORY_INTERVAL: Final = 0.01  # Seconds between measurements at the end of a turn.
MEMORY_WORK: Final = (
    10_000  # Units of work between measurements at the end of a turn, at most: what they add was not measured.
)
MEMORY_STEP: Final = 4 * MIB  # Incomplete input that may arrive in a turn before memory is measured again, at least.
SMALL_PEER: Final = 256 * KIB  # A peer that holds no more than this is never throttled or disconnected for memory.
LARGEST_PEERS: Final = 10  # Peers that `polydomo status` and /metrics name, of those that hold most.
SCAN_SESSIONS: Final = 500  # Up to this many sessions, each measurement checks all of them.
HELD_INPUT: Final = 4 * KIB  # Incomplete input of a connection is counted from this size; less is in COST_CONNECTION.
COST_CONNECTION: Final = 4 * KIB  # Memory cost of objects besides their bytes, measured with CPython 3.12.
COST_REQUEST: Final = 700
COST_NEAR: Final = 200  # A key of affinity besides its bytes, measured with CPython 3.11.
COST_SUBSCRIPTION: Final = 480
COST_REGISTRATION: Final = 160
COST_SERVICE: Final = 1_500  # A service or a worker.
COST_ENTRY: Final = 1_500  # An entry of the catalog.
COST_VALUE: Final = 500
COST_RECORD: Final = 600  # A log record.
COST_JOB: Final = 1_000  # An open job.
COST_CLIENT_ID: Final = 100  # The id of a request in the journal, until it is written.
COST_EVENT: Final = 500  # An event of the journal that is not packed, until it is written.

# --- monitoring -------------------------------------------------------------------------------------------------------

MONITOR_TICK: Final = 1.0  # Metrics are computed once a second: enough for a live display and for Prometheus.
FOLD_FREQUENT: Final = 128  # Durations of a service that are sorted into buckets at once: 50 us of a turn.
MONITOR_EVENTS: Final = 256  # State changes that are remembered: a few screenfuls.
MONITOR_SHOWN: Final = 12  # State changes shown with the metrics.
MONITOR_GONE: Final = 256  # Departed workers, services and clients (each) that are remembered, with the cause.
MONITOR_TALLIES: Final = 2_000  # Pairs of service and protocol with separate counts; the others share one per protocol.
HISTORY_STEP: Final = (
    10  # Seconds of a sample of the history: a chart of an hour has 360 points, as many as a screen shows.
)
HISTORY_STEPS: Final = 360  # Samples that are kept: one hour.
HISTORY_COARSE: Final = 300  # Seconds of a sample of the last day; a multiple of HISTORY_STEP.
HISTORY_COARSE_STEPS: Final = 288  # Samples of it: 24 hours.
HISTORY_BUCKETS: Final = (
    24  # Buckets of latencies in a sample: percentiles within 1 % if they differ little, 8 % over a factor of 30.
)
HISTORY_SERVICES: Final = 2_000  # Services with a history of their own, as many as have separate counts.
HISTORY_BYTES: Final = 64 * MIB  # Of all samples of a process; beyond it, the history of each service becomes shorter.
HISTORY_MEMORY: Final = 1 / 16  # The same as a fraction of limits.max_memory.
HISTORY_TURN: Final = 25  # Samples encoded in one turn of the loop: about 1 ms.
HISTORY_SAVE: Final = (
    300.0  # Seconds between two copies of it on disk: 31 MB with 1,000 busy services, written by a thread.
)
HISTORY_LOOK: Final = 0.1  # Seconds between two looks whether its samples are encoded, before they are copied.
HISTORY_POINTS: Final = 720  # Points of an answer: a longer one would take more than 20 ms to build.
COST_SERIES: Final = 1_000  # The history of a service besides its samples, measured with CPython 3.12.
RECENT_SLOT: Final = 60  # Seconds of a slot of the recent figures ...
RECENT_SLOTS: Final = 5  # ... and their number: problems show the last five minutes.
ERROR_GROUPS: Final = 20  # Groups of failed requests that are kept for a service.
MAX_ERROR_GROUPS: Final = 1_000  # The same for all services.
ERROR_REASON: Final = 200  # Characters of the reason by which failed requests are grouped.
ERROR_EXAMPLE: Final = 500  # Characters of the reason of the last example.
COST_ERROR_GROUP: Final = 1_500  # A group with its example, measured with CPython 3.12.
FAILING_LEAST: Final = 5  # Failures in five minutes from which a service can be failing: one or two are no problem.
FAILING_SHARE: Final = 0.05  # ... and the share of its requests.
FAILING_SEVERE: Final = 0.5  # The share from which that is an error, not a warning.
QUEUE_GROWN: Final = 20  # A queue that was never shorter in the last minute is a problem if it has grown ...
QUEUE_GROWTH: Final = 1.5  # ... by this factor in five minutes.
PROBLEM_TIME: Final = 3600.0  # Seconds for which a lost worker is shown as a problem.
MAX_PROBLEMS: Final = 200  # Problems in an answer: more cannot be read.
DEAD_SHOWN: Final = (
    1_000  # Dead jobs, the last ones, that are remembered, to show them as a problem until they are retried or dropped.
)
FAILED_FLOWS_SHOWN: Final = 200  # Failed flows, the last ones, that are remembered for the same purpose.
# Fraction of the allowed silence after which a worker is late. The workers of the Guide, libmdp, JeroMQ and majortomo send heartbeats from
# a poll loop: healthy ones are silent for up to two intervals plus timer delays. With three intervals allowed, this is 2.25 intervals.
LATE_FRACTION: Final = 0.75
LOOK_FRACTION: Final = 0.5  # Part of the allowed silence between checks of a worker whose silence does not count now.
HEALTH_WAIT: Final = 30.0  # At shutdown, how long to wait for a health check, at most ``grace``; most run every 10 s.
METRICS_INTERVAL: Final = 1.0  # The metrics page is rendered at most once a second.
METRICS_SERVICES: Final = 250  # Services with separate series: about 30 ms of rendering, 7,000 series.

# --- attempts and timeouts --------------------------------------------------------------------------------------------

ATTEMPTS: Final = 3  # Maximum number of times a request is dispatched to a worker.
QUEUE_EXPIRY: Final = 60.0  # How long a request waits for a service without workers.
UNATTENDED_EXPIRY: Final = (
    3600.0  # The same for a client that does not wait for a reply: a job manager may start much later.
)
BUSY_TIMEOUT: Final = 900.0  # Allowed silence of a worker that holds a request and sends no heartbeats while busy.
GRACE: Final = 10.0  # On SIGTERM, time for requests in flight to finish.
TIMER_TICK: Final = 10  # Milliseconds. Timers have buckets: never early, late by at most this plus 1 % of the wait.
OVERSLEPT: Final = (
    0.5  # A timer this late means that the process or machine was suspended; in a busy loop it is 10 ms late.
)
ZOMBIE_TIME: Final = 5.0  # How long a connection stays open, but is ignored, after a DISCONNECT.

# --- logs -------------------------------------------------------------------------------------------------------------

LOG_LINES: Final = 5  # Log lines with one text about one host per second: enough to notice, too few to fill a disk.
LOG_KEYS: Final = 200  # Pairs of text and host with separate limits, at most 1,000 lines a second; others share one.
LOG_DENIED: Final = 60.0  # Seconds in which the same denial is one log line: a denied worker registers again and again.
LOG_VALUE: Final = 256  # Characters of a value in a log line: enough for a name or a reason, not for a payload.

# --- the journal ------------------------------------------------------------------------------------------------------

JOURNAL_CHUNK: Final = (
    32_768  # Rows passed to the writer thread at a time: a chunk costs 0.3 to 1 ms even if it has few rows.
)
JOURNAL_CHUNKS: Final = 16  # Queued chunks before the oldest is dropped: 0.5 million rows, 50 to 90 MiB.
JOURNAL_GATHER: Final = 1.0  # Seconds after which an incomplete chunk is passed to the writer.
JOURNAL_TICK: Final = 0.25  # Seconds between checks of that, and of the taps.
JOURNAL_JOIN: Final = 0.25  # Seconds between checks whether the writer has finished, at shutdown.
JOURNAL_CLOSE: Final = (
    30.0  # Seconds that writing the last segment may take at shutdown: it may have to load Arrow first.
)
JOURNAL_LOOK: Final = 1.0  # Seconds between checks that the journal's directory still exists.
JOURNAL_ROLL_ROWS: Final = 200_000  # Rows of one segment: a few MiB on disk, quick to read.
JOURNAL_ROLL_BYTES: Final = 64 * MIB  # Bytes of one segment in memory, if bodies are recorded.
JOURNAL_ROLL_SECONDS: Final = 5.0  # Age of one segment: a crash loses at most this.
JOURNAL_KEEP_BYTES: Final = 4096 * MIB  # Days for a busy broker, years for a quiet one.
JOURNAL_KEEP_AGE: Final = 30 * 86_400.0  # A month: long enough to investigate incidents, short enough to stay small.
JOURNAL_CLOCK_STEP: Final = 60.0  # The wall clock has jumped if it moves by more than this against the monotonic clock.
JOURNAL_CLOCK_GAP: Final = 7 * 86_400.0  # It may have jumped if it is this far from the journal's last row at startup.
JOURNAL_CLOCK_TRUST: Final = 86_400.0  # Seconds until retention trusts a clock that jumped: a day to react to it.
JOURNAL_BODY: Final = 4 * KIB  # Bytes recorded of a payload, for services with the option `bodies`.
JOURNAL_RETRY: Final = 1.0  # Seconds between attempts to write a segment, for example on a full disk.
JOURNAL_SMALL: Final = 1 * MIB  # Files below this size are merged when their hour is over.
JOURNAL_MERGED_ROWS: Final = 1_000_000  # Rows of a merged file: about 2 s of one core.
JOURNAL_MERGED_BYTES: Final = 16 * MIB  # Size of a merged file. One task of a reader takes several of them.
JOURNAL_FLUSH: Final = 1.0  # Minimum seconds between segments that are closed early on request.
FINISHED_SHOWN: Final = (
    50  # Finished requests on a page of ``GET /v1/finished``, unless the query names another number.
)
FINISHED_LIMIT: Final = 500  # ... at most: more would be a page of half a megabyte.
FINISHED_TIME: Final = 10.0  # Seconds after which a search of the journal stops; the next page continues it.
FINISHED_SEARCHES: Final = 2  # Searches at one time: each uses a thread and reads whole segments.
STORY_TIME: Final = 5.0  # How long a story waits for rows in memory to be written.
STORY_LOOK: Final = 0.05  # Seconds between checks of that.
TAP_ROWS: Final = 250  # Rows sent to taps per tick, 1,000 per second: more is unreadable, and building them takes 2 ms.
JOURNAL_CLIENT_ID: Final = 128  # Bytes recorded of the id that a client gave its request: three UUIDs.
CLIENT_IDS_AT_ONCE: Final = 500  # Ids that the journal's thread converts before it lets the broker's loop run: 0.02 ms.
JOURNAL_NAMES: Final = 20  # Services of one worker that are recorded in its rows.

# The pipeline.
SOURCE_TASK_ROWS: Final = 200_000  # Rows of the journal that one task of the Spark data source reads.

MAX_LOG_RECORD: Final = 16 * KIB  # One published log record as JSON; a traceback fits.
MAX_LOG_RECORDS: Final = 10_000  # Log records that the broker keeps; the oldest are dropped.
ENDED_REQUESTS: Final = 20_000  # Finished requests whose ids are known, for log records after the reply: about 3 MiB.
MAX_LOG_BYTES: Final = 16 * MIB  # Total size of kept log records.
LOG_QUEUE: Final = 10_000  # Records that a program's log handler queues; further ones are dropped and counted.
LOG_QUEUE_BYTES: Final = 8 * MIB  # Total size of queued records.

# --- heartbeats, per protocol -----------------------------------------------------------------------------------------

MDP_BEAT: Final = 2.5  # The Guide's and majortomo's interval.
MDX_BEAT: Final = 2.5  # The draft says "agreed upon"; MDP's interval.
DCP_BEAT: Final = 2.5  # DagBox: "implementation-defined"; its worker pings faster.
DBP_BEAT: Final = 5.0  # Used if a registration asks for heartbeats without an interval.
EMQP_BEAT: Final = 3.0  # EventMQ's interval (observed).
MEMO_IDLE: Final = 10.0  # The memo01 broker sends HEARTBEAT to an idle worker after this (observed).
BEAT_CROSSES: Final = 0.1  # Fraction of the allowed silence: a heartbeat this soon after a request may have crossed it.
BEATS_MISSED: Final = 3  # "some multiple of that interval (usually 3-5)"
EMQP_BEATS_MISSED: Final = 5  # EventMQ's managers send heartbeats from a busy loop, often late.

BRIDGE_BEAT: Final = 1.0  # Between brokers: a lost one may hold many requests, so it is detected sooner than a worker.
MEMO_QUEUE_EXPIRY: Final = 10.0  # "a job waits at most 10 s for a worker" (observed)
MEMO_RECONNECT: Final = 1.0  # How long a memo01 worker may take to reconnect before its job is requeued.
MEMO_ANSWER_CACHE: Final = 1_024  # Answers cached per connection, which hundreds of workers share, for resends.
MEMO_ANSWER_BYTES: Final = 4 * MIB  # Total size of cached answers; one larger than half of this is not cached.
MEMO_ANSWER_TIME: Final = 5.0  # How long answers are cached, up to twice this: a resend arrives within a round trip.
MEMO_MAX_WORKERS: Final = 4_096  # Workers on one connection; the specification asks for hundreds.
MEMO_SLOTS: Final = 1_000  # Maximum workers that our library registers on one connection; "hundreds".
MEMO_MAX_HEADER: Final = 512 * KIB  # A READY with MAX_SERVICES_PER_WORKER names of full length has 258 KiB.
MEMO_MAX_ID: Final = 255  # Ours have 16 bytes; a foreign one is echoed in DISCONNECT, so it is bounded too.
MEMO_MAX_RUN: Final = 7 * 86_400.0  # "slow jobs taking several minutes or more": a longer timeout is reduced to a week.
MAX_FAILURE_CODE: Final = 64  # Bytes of a failure code from a worker; our longest has 17.
MAX_FAILURE_TEXT: Final = 4 * KIB  # Bytes of a failure text: it goes to the client, the log and the journal.
MDX_MAX_CREDIT: Final = (
    10_000  # Window of an MDX, DCP or eMQP worker on one connection; each request costs about 1 KiB.
)
MAX_RELEASES: Final = 100  # Times a request may come back unstarted without an attempt; an idle worker starts it.
REBALANCE_LOOK: Final = 64  # Free workers that are counted when requests move to them; more move when those are busy.
DCP_MAX_HELD: Final = 8  # Requests that a DCP worker without a window can collect by pinging while busy.
EMQP_MAX_SLOTS: Final = 1_000  # Outstanding READYs of one EventMQ worker.
EMQP_MAX_HEADERS: Final = 16 * KIB  # Headers of one REQUEST, or queues of one INFORM; EventMQ's are under 100 bytes.
EMQP_HEADER_CACHE: Final = 512  # Parsed header frames that are cached: a program uses only a few different ones.
EMQP_CACHED_HEADER: Final = 256  # Size of a header frame that is cached.
EMQP_MAX_TIMEOUT: Final = 7 * 86_400.0  # A longer ``timeout`` header is reduced to a week.
EMQP_MAX_RETRIES: Final = 100  # A larger ``retry-count`` is reduced to this: a job that kills its workers must end.
EMQP_WEIGHT: Final = 10  # EventMQ's default weight of a queue (observed).
EMQP_MAX_WEIGHT: Final = 1_000_000  # Weights are only compared; this bounds the number's length.
DBP_BEAT_LEAST: Final = 0.1  # Heartbeat intervals are clamped to this range; APPROVED tells the service the result.
DBP_BEAT_MOST: Final = 3_600.0  # A longer interval would be useless; a shorter one would cost too much.
DEFAULT_PORT: Final = 5246  # TCP port of a broker, unless another is configured.
BEACON_PORT: Final = 5245  # UDP port on which the published clients listen for a beacon (observed).
BEACON: Final = "255.255.255.255:5245"  # Broadcast to the whole network, as the published broker does (observed).
BEACON_LOCAL: Final = "127.255.255.255:5245"  # Used by a broker that only listens on loopback.
BEACON_INTERVAL: Final = 1.0  # The published broker's interval (observed).
DISCOVER_TIME: Final = 2.5  # How long to listen for beacons: two intervals and a margin.
DBP_BROADCAST_PORT: Final = 5247  # UDP port on which services receive the broker's heartbeats.
DBP_BROADCAST: Final = "255.255.255.255:5247"  # Not 5245, where the published client takes every datagram for a beacon.
DBP_BROADCAST_LOCAL: Final = "127.255.255.255:5247"
UDP_PROBE: Final = 1.0  # Minimum seconds (or the service's interval, if longer) between probes caused by datagrams.
MAX_DATAGRAM: Final = 512  # A heartbeat has at most 300 bytes; a longer datagram is ignored.
DBP_LATE: Final = 1.5  # Intervals without a heartbeat after which a service is late: one missed, plus a margin.

# --- the client and worker libraries ------------------------------------------------------------------------------------

DBP_ANSWER_TIME: Final = 5.0  # The catalog answers at once; a broker that takes longer does not speak DBP.
SCHEMA_TIME: Final = 5.0  # How long a worker waits for the broker to accept a schema.
SCHEMA_TRIES: Final = 20  # Attempts to send a schema: the registration on the other connection must arrive first.
SCHEMA_WAIT: Final = 0.1  # Seconds between these attempts.
DEADLINE_TOLERANCE: Final = 0.01  # A timeout reported this much before the deadline of a call is that deadline.
CALL_TIME: Final = 30.0  # Default timeout of a call.
CONNECT_TIME: Final = 5.0  # How long a call waits for a connection: longer than a restart of the broker.
BEAT_LATE: Final = 0.25  # Heartbeat intervals: a worker's thread looks so often, and sends a heartbeat that the event loop is so late with.
SILENT_BEATS: Final = 2.0  # Heartbeat intervals without any heartbeat after which a worker warns: brokers allow three.
SUSPENSION_LOOK: Final = 0.1  # While a client waits for a broker: interval of the timer that shows suspensions.
CONNECT_TIME_LOCAL: Final = 1.0  # The same for a command to a broker on the same machine.
POOL_PROCESSES: Final = 1_000  # Processes of one worker: each has a connection and two pipes.
MAX_BATCH: Final = 1_000  # Calls of one batch: with those of the next batch, a fifth of an MDX worker's window.
BATCH_WAIT: Final = 0.005  # How long a batch waits for further calls, by default: about a call of a small model.
MAX_BATCH_WAIT: Final = 60.0  # The most that a batch waits: callers give up after half of that, by default.
POOL_OVERTIME: Final = (
    1.0  # After the end of its time, a call is cancelled by the broker first; then its worker kills it.
)
POOL_OUTPUT_PIECE: Final = 65_536  # Bytes read from a pipe at once: what a pipe holds.
DISCOVERY_PATIENCE: Final = 1.0  # After this silence, a discovered broker gives way to the next one, if there is one.
POOL_CONNECTIONS: Final = 16  # Connections of one client over a protocol without request ids; further calls are queued.
ENVELOPE: Final = 64 * KIB  # Room for the envelope of any protocol, and for what frames cost each.
MAX_BODY: Final = MAX_MESSAGE - ENVELOPE  # Bytes of one body, unless the broker announces another limit.
MAX_ANSWER: Final = MAX_MESSAGE + ENVELOPE  # Accepted from a broker, whose envelope may be longer than ours.
MAX_SP_ANSWER: Final = 1024 * MIB  # The same over SP, where a broker cannot announce its limit.
LIMIT_UNASKED: Final = MIB  # Over SP, the library asks for the broker's limit before it sends a larger body.
LIMIT_ASKED_TIME: Final = 2.0  # How long it waits for the answer; then the default applies.
FRAME_HEAD: Final = 9  # Bytes of the flags and the length of a frame, at most.
FREE_HEADS: Final = 1_000  # Frames of a body whose heads fit into ``ENVELOPE`` besides the envelope.
MAX_BODY_FRAMES: Final = MAX_FRAMES - 24  # Frames of one body; the rest is room for the envelope of any protocol.
STREAM_BACKLOG: Final = MAX_MESSAGE  # Unread partial replies of one stream, in bytes.
BACKOFF_FIRST: Final = 0.05  # First delay before reconnecting: a dropped connection should not cost a second.
BACKOFF_MOST: Final = 5.0  # Longest delay: a restarted broker is found soon, and thousands of peers do not hammer it.
CLOSE_TIME: Final = 1.0  # A closing connection is aborted after this time if its peer has stopped reading.
# A peer that has read this much in that time has not stopped: half a megabit per second.
CLOSE_PROGRESS: Final = 64 * KIB
CLOSE_MOST: Final = 10.0  # How long a closing connection may take in total to send its remaining output.
SWEEP_INTERVAL: Final = 1.0  # The server looks for overdue connections this often.
LISTED: Final = 5  # Services that a worker names in a log line; the others are counted.
REJECTED: Final = 2  # Registrations in a row that end at once: the broker rejects them, and the worker logs that once.
SETTLED: Final = 5.0  # After a connection that lasted this long, the backoff starts again at the first delay.
KEEPALIVE_IDLE: Final = 15  # Whole seconds of silence before TCP keepalive probes the broker's machine.
KEEPALIVE_INTERVAL: Final = 5  # Seconds between probes.
KEEPALIVE_COUNT: Final = 3  # Unanswered probes after which the connection is lost: 30 s in total.
MDP_PATIENCE: Final = 4 * MDP_BEAT  # Silence after which a worker considers the broker gone: "usually 3-5" intervals.
EMQP_PATIENCE: Final = 4 * EMQP_BEAT  # The same for eMQP.
MDX_PATIENCE: Final = 4 * MDX_BEAT  # The same for MDX.
DBP_PATIENCE: Final = 4 * DBP_BEAT  # The same for a service of DBP that takes requests.
DCP_PATIENCE: Final = 4 * DCP_BEAT  # The same for DCP, whose specification names no multiple.

# --- durable jobs -------------------------------------------------------------------------------------------------------

JOB_ATTEMPTS: Final = 5  # Default attempts of a job: 1, 2, 4 and 8 s apart, then it is dead.
MAX_JOB_ATTEMPTS: Final = 4_095  # The attempt number has 12 bits in the worker's token.
JOB_BACKOFF_FIRST: Final = 1.0  # Seconds before the second attempt.
JOB_BACKOFF_MOST: Final = 300.0  # The longest delay between attempts: five minutes.
JOB_BACKOFF_FACTOR: Final = 2.0  # Each delay is twice the previous one.
MAX_JOBS: Final = 1_000_000  # Open jobs in the broker's memory, about 1 KiB each; further ones are rejected.
MAX_JOB_BYTES: Final = 1024 * MIB  # Total size of the bodies of open jobs.
JOB_PREVIEW: Final = 4 * KIB  # Characters of a body or a result that the detail of a job shows.
JOB_PREVIEW_JSON: Final = 64 * KIB  # A body up to this size is parsed, to see whether it is JSON.
JOB_MEMORY: Final = 0.5  # Fraction of limits.max_memory that open jobs may take; further ones are rejected.
SUBMIT_PART: Final = 1_000  # Jobs in one message: about 20 ms of work on the broker's loop.
SUBMIT_HEADER: Final = 192 * KIB  # Of the header of such a message, as the libraries write it: within MAX_CONTROL.
SUBMIT_BYTES: Final = 8 * MIB  # Of the bodies in such a message, unless it has one job.
SUBMIT_AT_ONCE: Final = 4  # Such messages of one call that are under way: the store writes their jobs together.
MAP_OUTSTANDING: Final = 64  # Open calls of ``client.map``: enough for a worker with batches, few for a broker.
MAX_JOB_KEY: Final = 255  # Bytes of an idempotency key.
NEAR_KEYS: Final = 100_000  # Keys of `near` whose last worker is known: about 25 MiB. The longest unused is forgotten.
MAX_RUNNING: Final = 1_000_000  # Of the limits of a service: more never run.
MAX_RATE_COUNT: Final = 100_000  # Starts in a window: each is kept until it leaves the window.
MAX_RATE_WINDOW: Final = 86_400.0  # A day: a longer window would outlive most brokers.
MAX_LIMITS: Final = 1_000  # Limits that operators have set: each is a pattern to match with every new name.
PERMIT_TIME: Final = (
    2.0  # Seconds for which process 0 allows another process a start: one that stood still for longer asks again.
)
COST_LANE: Final = 1_500  # Bytes of a group (or principal) of a service with limits, without its requests.
# Groups (or principals) of a service with limits that are forgotten in one turn: less than 1 ms.
LANES_FORGOTTEN: Final = 1_000
COST_START: Final = 40  # Bytes of a start that is kept.
MAX_MARK: Final = 255  # Bytes of a request's group, or of what it is near to: as short as a name.
MAX_JOB_DELAY: Final = 10 * 365 * 86_400.0  # Ten years: a longer delay is probably in the wrong unit.
MAX_JOB_PRIORITY: Final = 1_000_000  # Priorities are only compared; this bounds the number's length.
JOB_STORY: Final = 20  # Attempts recorded in a job's story; the oldest are dropped.
JOB_RELEASED: Final = 64  # Jobs of a service queued beyond its workers' capacity; hides the round trip to the store.
JOB_KEEP: Final = 7 * 86_400.0  # How long the result of a job is kept: a week.
JOB_KEEP_DEAD: Final = 30 * 86_400.0  # How long a dead job is kept: a month, so that an operator can look at it.
JOB_REPEAT: Final = 600.0  # How long a repeated durable request finds the first one's result; clients reconnect sooner.
JOB_PARTS: Final = 10_000  # Partial replies of a job that are kept; the oldest are dropped.
JOB_PARTS_BYTES: Final = 16 * MIB  # Their size. The result has all of them, up to the limit of a message.
PARTS_PENDING: Final = 64 * MIB  # Partial replies of all jobs that wait to be stored; others are only in the results.
PARTS_GATHER: Final = 0.05  # Seconds in which partial replies are collected for one write, after the first one: 20 syncs a second at most.
PARTS_PAGE: Final = MIB  # Partial replies in one answer of ``polydomo.stream``, or a single larger one.
PARTS_PAGE_COUNT: Final = 1_000  # The same, in number.
JOB_PURGE: Final = 60.0  # Seconds between removals of expired results.
JOB_PURGE_ROWS: Final = 5_000  # Rows removed at a time, so that a removal does not block commits for long.
JOB_REFUSED_WAIT: Final = 1.0  # Seconds before a job is offered again to a service whose queue was full.
MAX_RESULT_WAIT: Final = 86_400.0  # The longest wait of a client for a result: a day.
MAX_WORKER_NAME: Final = 100  # Characters of a worker's name: a host name and a number fit.
RESULT_POLL: Final = 30.0  # A client polls for a result at this interval, so that it detects a lost broker.
MAX_SCHEDULES: Final = 10_000  # Schedules in one store.
SCHEDULE_RUNS: Final = 10  # Next runs in the answer about one schedule: each may search the days of eight years.
SCHEDULE_LEAST: Final = 0.1  # Seconds: the shortest interval of a schedule.
MAX_PATTERN_NAMES: Final = 10_000  # Names whose match with the patterns of a setting is cached.
STORE_PENDING: Final = 50_000  # Pending writes before new jobs are rejected.
STORE_PENDING_BYTES: Final = 256 * MIB  # Total size of the bodies of pending writes.
STORE_GROUP: Final = 5_000  # Writes per transaction: about 50 ms of work, so that the first of them does not wait long.
STORE_GATHER: Final = 0.2  # A group waits this part of the last commit's time for clients that were just answered.
STORE_GATHER_MOST: Final = 0.005  # The longest such wait, in seconds.
STORE_RETRY: Final = 0.5  # Seconds between attempts to use a store that failed.
STORE_AGAIN: Final = (
    1.0  # Seconds before a write that failed alone is put again; twice as long after each further failure ...
)
STORE_AGAIN_MOST: Final = 60.0  # ... up to this: what never succeeds costs one transaction and one traceback a minute.
JOBS_CLOCK_STEP: Final = 60.0  # Changes of the wall clock above this are logged: they move the due times of jobs.
STORE_REACHED: Final = (
    1.0  # At startup, seconds that the broker waits for a connection to a shared job store before it listens.
)
STORE_OPENING: Final = 5.0  # At startup, seconds that the broker waits for the jobs of an open store before it listens.
STORE_ANSWER: Final = 20.0  # Seconds before a client gets an error if the store does not answer.
LEASE_TIME: Final = 6.0  # Seconds a lease is valid without renewal: the maximum duration of a failover.
LEASE_RENEW: Final = 1.5  # Seconds between renewals: three may fail.

# --- flows --------------------------------------------------------------------------------------------------------------

MAX_FLOW_NODES: Final = 100_000  # Nodes of one flow: a day of work in seconds each; larger graphs are several flows.
MAX_FLOW_EDGES: Final = 1_000_000  # Edges of one flow: ten for each node.
MAX_NODE_NAME: Final = 255  # Bytes of the name of a node.
MAX_GROWTH: Final = 5_000  # Nodes that one answer of a worker, or a run of a schedule, adds: one transaction of 0.3 s.
MAX_FLOW_LEVELS: Final = (
    1_000  # Answers with more work inside of each other: a recursion that does not end is found soon.
)
FLOW_PART: Final = 500  # Nodes in one message to the broker: about 10 ms of work on its loop.
FLOW_PART_EDGES: Final = 20_000  # Edges in one message, unless it has one node: a few milliseconds on the loop.
FLOW_SLICE: Final = (
    500  # Nodes of a flow that one transaction releases, skips or cancels besides those that ended in it.
)
FLOW_EDGES: Final = 5_000  # Edges that one transaction follows: about 20 ms.
FLOW_INPUT: Final = 16 * KIB  # Results that a released node gets at once; larger ones are read when it starts.
FLOW_INPUT_KEPT: Final = 512  # Bytes of them that a node keeps until it starts; larger ones are read again then.
FLOW_INPUTS: Final = 16  # Predecessors of a node up to which this is tried.
FLOW_NEEDS: Final = 2_048  # Characters of the numbers of the nodes that a node needs, in its job and in the journal.
FLOW_STORING: Final = 86_400.0  # Seconds after which a flow that its client has not sent completely is removed: a day.
FLOW_STEPS: Final = 500  # Steps or nodes of a flow in one answer.
FLOW_LOOK: Final = 5_000  # Open nodes of a flow, the oldest first, among which those that run are looked for: 0.5 ms.

# --- Spark ----------------------------------------------------------------------------------------------------------------

SPARK_BATCH_ROWS: Final = 1_000  # Rows per request: 1.5 million rows per second and task, and a body of modest size.
SPARK_OUTSTANDING: Final = 64  # Open requests per task: 12,000 requests per second with a round trip of 5 ms.
SPARK_RETRIES: Final = 3  # Retries of a call within a task; Spark also retries tasks.
SPARK_CALL_TIME: Final = 60.0  # Timeout of a call within a task: longer than usual, because it carries a batch of rows.
SPARK_HEARD: Final = 10_000  # Publications written to the spool at a time, and read in one batch of a stream.
SPARK_LOOK: Final = 0.5  # Seconds between two looks at a broker's ended jobs or log records, for a stream of them.
SPARK_REWIND: Final = 60.0  # Seconds of ended jobs that a stream reads again when another broker leads: clocks differ.
SPARK_RECONNECT: Final = 0.5  # Seconds before a stream that lost its broker reconnects.
FLEET_LOOK: Final = 1.0  # Seconds between checks of the queue of a service that a fleet on Spark serves.
FLEET_QUIET: Final = 30.0  # Seconds with idle workers and an empty queue before a fleet stops half of the idle ones.
FLEET_BACKOFF: Final = (
    0.5,
    30.0,
)  # Seconds before a worker of a fleet that failed is started again: first and longest.
FLEET_FAILURES: Final = 1_000_000  # Maximum restarts of one worker of a fleet by Spark: practically unlimited.
FLEET_HELLO: Final = 30.0  # Timeout for a worker to connect to the driver and send its name.
FLEET_LEAVE: Final = 20.0  # Seconds beyond the grace time until workers that do not leave are cancelled.
SQL_BATCH_ROWS: Final = 10_000  # Rows of one partial reply of the service spark.sql.
SQL_LEAST_ROWS: Final = 1_000  # Minimum rows of one, except at the end of a result, because partitions can be tiny.
SQL_MAX_ROWS: Final = 10_000_000  # Default maximum of rows per result.
SQL_MAX_BYTES: Final = 4096 * MIB  # Default maximum of bytes per result.
SQL_MAX_TIME: Final = 600.0  # Default timeout of a query.
SQL_LAST_WORDS: Final = 3.0  # Seconds until Spark's JVM, whose connections have closed, must have ended.
# Seconds between attempts to open a new Spark session after the JVM ended: a query that ends it may be repeated at once.
SQL_RESTART: Final = (1.0, 60.0)
SQL_STOP: Final = (
    10.0  # Seconds that a stop waits for a session that is being opened, to close it: a local one takes 3 to 8.
)
SQL_STUCK: Final = 60.0  # Seconds until a cancelled query must have ended; then Spark's JVM is ended.
SQL_LOOK: Final = 0.1  # Seconds between checks whether the client of a query is still connected, so that it is cancelled within a second.

# --- tables ---------------------------------------------------------------------------------------------------------------

TABLE_FILE_BYTES: Final = 256 * MIB  # In-memory size of a file merged by maintenance: about 30 MiB on disk.
