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
MAX_IPC_PATH: Final = 107  # Linux keeps a socket's path in 108 bytes, the last of them zero.
MAX_JSON_DEPTH: Final = (
    32  # Objects within objects that others are given: a person reads fewer, and the stack takes far more.
)
SP_MAX_STACK: Final = 8  # Words of an SP request id that came through devices: NNG's own default bound on hops.
HANDSHAKE_TIME: Final = 10.0  # libzmq's own handshake interval is 30 s; a slow link needs 1 s.
COOKIE_TIME: Final = 60.0  # "The server MUST discard ... the cookie key after a short interval, for example 60 seconds"
HANDSHAKES_PER_SECOND: Final = 2_000.0  # Key agreements that peers may cause: at 50 µs each, a tenth of a core.
HANDSHAKE_BURST: Final = 32  # ... and at once: 2 ms.
ACCESS_ANSWERS: Final = (
    10_000  # Answers of the access rules that are remembered: clients choose the names they ask for.
)
MAX_UNSENT: Final = 160 * MIB  # What one peer may leave unread: two of the largest messages and a margin.
UNSENT_NOTICE: Final = 64 * KIB  # From here on what one peer leaves unread is counted; less is part of its connection.
CHOKE_UNSENT: Final = 1 * MIB  # From here on a client that does not read is not read from either.
CUT_AT_ONCE: Final = 64 * KIB  # Of what came in, this much is cut into messages in one step ...
MOST_AT_ONCE: Final = (
    64  # ... and into this many at most, so that what stands behind the first that is another is not cut up in vain.
)
CROWD: Final = (
    8  # Peers to be written to at the end of one turn of the loop, from which on clients with requests in line ...
)
CROWD_CLIENTS: Final = 4  # ... if they are so many, so that it is worth it ...
CROWD_TURNS: Final = (
    4  # ... are written to in every fourth turn: they wait under 1 ms, and it takes a quarter of the system calls.
)
BIG_BODY: Final = 32 * KIB  # From here on copying a body costs more than handling it as a piece of its own.

# --- HTTP and WebSocket -----------------------------------------------------------------------------------------------

TUNNEL_PIECE: Final = (
    4 * KIB
)  # Of what arrives over a WebSocket this much is handled before others may have their turn.
MAX_HTTP_HEAD: Final = 16 * KIB  # Request line and headers. nginx takes 8 KiB per line; a bearer token has under 4 KiB.
MAX_HTTP_HEADERS: Final = 100  # A browser sends about 20.
MAX_HTTP_TARGET: Final = 8_000  # RFC 9110 recommends support for "at least 8000 octets".
MAX_CHUNK_LINE: Final = 1 * KIB  # A chunk size has eight digits; extensions and trailers are skipped.
HTTP_HEAD_TIME: Final = 10.0  # A request head must arrive within this time: slow senders are disconnected.
HTTP_BODY_TIME: Final = 10.0  # ... and a body within this time and one second for each HTTP_BODY_RATE bytes.
HTTP_BODY_RATE: Final = 16 * KIB  # Slower than any usable link.
HTTP_IDLE_TIME: Final = 75.0  # A kept-alive connection without a request is closed; nginx's default.
HTTP_LINGER: Final = 1.0  # After an error response the rest of the request is read and dropped for this long.
LOGIN_CODE_TIME: Final = 60.0  # The one-time code of `polydomo open` is exchanged by the page at once.
LOGIN_SESSION_TIME: Final = 12 * 3600.0  # A working day; then the dashboard is opened again.
MAX_LOGINS: Final = 1_000  # Codes and sessions that are remembered; the oldest give way.
MAX_MULTIPART_HEAD: Final = 4 * KIB  # Headers of one part of a multipart body; ours have one.
MAX_HTTP_TIMEOUT: Final = 7 * 86_400.0  # The longest deadline that a call may name.
HTTP_POLL: Final = 30.0  # How long a worker's poll waits for a request, unless it says otherwise: proxies allow 60 s.
HTTP_POLL_MOST: Final = 300.0
HTTP_LEASE: Final = 60.0  # How long an HTTP worker may keep a request without a heartbeat, unless it says otherwise.
HTTP_LEASE_MOST: Final = 86_400.0
HTTP_WORKER_IDLE: Final = 10.0  # An HTTP worker that has not asked for work for this long is gone: several round trips.
MAX_HTTP_WORKERS: Final = 10_000  # HTTP workers at a time; a name costs its inventor nothing.
MAX_CREDIT: Final = 1_000  # Requests that one WebSocket may hold as a worker.
WEBSOCKET_BEAT: Final = 5.0  # A WebSocket that carries a worker is pinged this often; browsers answer by themselves.
WEBSOCKET_BEATS_MISSED: Final = 3
MAX_SCHEMA: Final = 64 * KIB  # The schema of one service; a large one has a few KiB.
MAX_SCHEMA_BYTES: Final = 16 * MIB  # ... and of all services together.
MAX_SCHEMA_TEXT: Final = 4_096  # Characters of its description.
MAX_PROGRESS_TEXT: Final = 1_000  # Characters of a partial reply that MCP progress shows; the result has it whole.
MEMO_KEEP_BYTES: Final = 1024 * MIB  # Replies of memoised services in all; the least recently used make room.
MEMO_KEEP_AGE: Final = 7 * 86_400.0  # ... and for how long.
MAX_MEMO_NAMES: Final = 10_000  # Service names whose match with memo.services is remembered.
MEMO_PRUNE: Final = 100  # Clients of memoised services that are looked through for those that have gone.
MEMO_TRIM: Final = 0.9  # ... down to this part of it, so that not every new reply has to look for room.
MEMO_RECENT_BYTES: Final = 64 * MIB  # Kept replies in memory as well: the others take a lookup in the file, some 10 us.
MEMO_USED: Final = (
    1_000  # Replies whose use is not written down yet; a crash forgets how often they were used, nothing else.
)
MEMO_CHECKPOINT: Final = 1_000  # Commits after which the write-ahead log is moved into the file: a few MiB.
MAX_EVALUATIONS: Final = 100_000  # MemoDB calls being evaluated; its document speaks of thousands.
MAX_FAILED_EVALUATIONS: Final = 10_000  # ... and failures that are kept until a client asks again.
MEMODB_TIMEOUT: Final = 600.0  # How long a MemoDB call may run, unless it says otherwise (seen).
MEMODB_POLL: Final = 60.0  # How long POST /worker waits for a call (seen).
MAX_MEMODB_LISTED: Final = 100_000  # Calls or heads in one list.
HTTP_SAME_HEAD: Final = 1 * KIB  # A head up to this size is kept: most requests of a connection have the same.
IDEMPOTENCY_TIME: Final = (
    600.0  # How long the reply to a call with an Idempotency-Key is kept: longer than clients retry.
)
IDEMPOTENCY_KEYS: Final = 10_000  # ... and how many,
IDEMPOTENCY_BYTES: Final = 64 * MIB  # ... and their size in all.
MAX_IDEMPOTENCY_KEY: Final = 255  # Characters; a UUID has 36.
ALARM_STEP: Final = 5.0  # The longest timer that an alarm sets: what is left of it after its session has gone.
HTTP_RETRY_AFTER: Final = 1  # Whole seconds in Retry-After: queues drain within a second or not soon.

MAX_NODE_DEPTH: Final = (
    100  # Lists and maps within each other in a MemoDB Node; Python's stack takes ten times as many.
)

# --- what the broker holds --------------------------------------------------------------------------------------------

MAX_CONNECTIONS: Final = 20_000  # About 10 KiB each; also bounded by the process's file descriptors.
IDLE_SILENT: Final = 1.0  # At that limit a connection that has said nothing for this long gives way to a new one,
IDLE_TIME: Final = 60.0  # ... and so does a client that has been silent for this long and waits for nothing.
IDLE_NEAR: Final = 0.8  # Part of the limit from which on it is noted who is idle.
SPARE_FILES: Final = 64  # Open files that are no connections: listeners, the loop's own, what is kept on disk.
START_FILES: Final = (
    32  # Files that must be free when a broker starts: it opens 17 with two listeners, and a few more while it loads.
)
LEAST_CONNECTIONS: Final = 64  # With fewer a broker does not start: it would turn away the first clients.
FEW_CONNECTIONS: Final = 1_000  # ... and with fewer than these, because of ``ulimit -n``, it warns.
BACKLOG: Final = 1024  # Peers that may wait to be accepted: after a restart they all come at once.
PORT_TRIES: Final = (
    16  # A port the system chooses may be taken at the next address of the same name; then another is tried.
)
MAX_OUTSTANDING: Final = 8_192  # Requests one client connection may have open before it is no longer read.
MAX_QUEUE: Final = 100_000  # Requests waiting for one service before its senders are no longer read.
MAX_HELD_BYTES: Final = 1024 * MIB  # Bodies the broker holds in all; past it, senders are no longer read.
MAX_CLIENT_BYTES: Final = 128 * MIB  # ... and those of one client, so that one alone cannot stop all the others.
LAST_ASKED: Final = (
    512  # Bytes of the last request's envelope that a connection keeps: most requests begin like the one before.
)
SMALL_BODY: Final = (
    4 * KIB
)  # Bodies up to this size are not counted for one client: MAX_OUTSTANDING of them are just 32 MiB.
MAX_SERVICES: Final = 10_000  # Names, with or without workers; a client inventing names must not fill memory.
MAX_SERVICE_NAME: Final = 255  # One short ZMTP frame; the longest published name has 24 bytes.
MAX_SERVICES_PER_WORKER: Final = 1_000  # memo01, eMQP and DCP workers may offer several.
MAX_REGISTRATIONS: Final = 20_000  # ... and all workers of one connection together: it must be possible to close it.
MAX_CATALOG_INFO: Final = 16 * KIB  # What one service may tell of itself; the published client's is under 1 KiB.
MAX_CATALOG_BYTES: Final = 16 * MIB  # ... and all of them together, so that the list of all services fits one message.
MAX_CATALOG_GONE: Final = 1_000  # Services that left or were lost and are still remembered, with the cause.
MAX_SUBSCRIPTIONS: Final = 10_000  # Prefixes one subscriber may ask for.
MAX_TOPIC: Final = 255  # A topic is a name; long content belongs in the message.
MAX_HOPS: Final = 8  # Brokers that a request may go through, and that may lie between a service and who hears of it.
MAX_CARRIERS: Final = 1_000  # Brokers whose publications arrive over bridges.
BRIDGE_PATIENCE: Final = 60.0  # How long a bridge may keep a request while a local worker is idle.
RELAY_JUMP: Final = 100_000_000  # Numbers of another broker's publications go up one by one; no bridge loses this many.
MAX_BRIDGE_PREFIXES: Final = 100  # Topics that may cross one bridge.
MAX_RELAYED: Final = (
    200_000  # Topics of other brokers whose last number is remembered, so that none comes twice over two bridges.
)
BRIDGE_WINDOW: Final = (
    4_096  # Requests that one bridge may hold at a time: they keep a link of 100 ms busy at 40,000 requests a second.
)
BRIDGE_SHARE: Final = (
    4  # ... and this part of MAX_QUEUE and MAX_HELD_BYTES: they are taken though that is reached, and must not fill it.
)
MAX_PUBLISHER_TOPICS: Final = 100  # Topics that one DBP registration may name for the broker to subscribe to.
FOLLOW_INTERVAL: Final = 1.0  # Seconds between two looks at where services publish: each change may mean a connection.
MAX_VALUES: Final = 200_000  # Topics whose last value is kept; about 500 bytes each beside the value itself.
MAX_VALUE_BYTES: Final = 256 * MIB  # ... and their topics and values in all.
MAX_BACKLOG: Final = (
    4 * MIB
)  # What waits for one subscriber that reads too slowly, beside what its socket holds (CHOKE_UNSENT).
VALUES_PER_TURN: Final = (
    2_000  # Last values given to late subscribers in one turn of the loop: under 2 ms, so that nobody waits for them;
)
VALUE_PIECE: Final = 4 * KIB  # a large value counts for one more per so many bytes.
LISTING_ROWS: Final = 400  # ... and of longer lists this many are made in one turn of the loop, about 6 ms.
DIRECTORY_INTERVAL: Final = (
    1.0  # A list of all services (DBP) of over DIRECTORY_SMALL bytes is made once a second at most.
)
DIRECTORY_SMALL: Final = 64 * KIB
MAX_VALUES_ANSWER: Final = 4 * MIB  # Last values in one answer (DBP).
MAX_LOG_QUERY: Final = 4 * KIB  # What a request for log records may say.
MAX_LISTED: Final = 1_000  # Rows that ``polydomo requests`` shows at most: an answer must not stall the loop.
TOPIC_PREVIEW: Final = 256  # Characters of a last value that a list of topics shows.
MAX_CHAIN: Final = (
    32  # Services one request may be passed on to (DCP): two workers that pass it to each other must come to an end.
)
RESUME_FRACTION: Final = (
    0.75  # A paused sender is read again below this part of the bound, so that it does not flutter.
)

# --- work and memory shared among connections --------------------------------------------------------------------------

# Work is counted in units of about a microsecond: what it takes on a machine of 2023.
TURN_WORK: Final = 20_000  # One turn of the loop, all connections together: a peer that waits for its end waits 20 ms.
TURN_SHARE: Final = 2_000  # ... of which one connection gets this much before it waits for the next turn,
LEAST_SHARE: Final = 200  # ... or, where many wait, this much: 1,000 connections have all had their turn within 200 ms.
WORK_MESSAGE: Final = 2  # To find a message's end and its handler,
WORK_FRAMES: Final = 4  # ... and one unit for this many of its frames (as a power of two: 16),
WORK_BYTES: Final = 12  # ... and one for this many of its bytes (as a power of two: 4 KiB).
WORK_SEALED: Final = 9  # To decrypt this many bytes, one unit (as a power of two: 512).
WORK_TEXT: Final = 3  # To read this many bytes of JSON, one unit (as a power of two: 8).
WORK_REQUEST: Final = 8  # To accept a request, or to pass a reply on.
WORK_PUBLISH: Final = 4  # To publish a message, and one more for each subscriber.
WORK_SUBSCRIBE: Final = 8
WORK_RECORD: Final = 30  # To read, check and pass on a log record.
WORK_VIOLATION: Final = 40  # To log that a peer broke its protocol.
WORK_ROW: Final = 12  # To make one row of an answer about the broker itself.
WORK_OFFER: Final = 40  # To learn, or forget, a service behind a bridge, or in the catalog.
WORK_REGISTER: Final = 4  # To register a worker for one service.
DROPS_PER_TURN: Final = (
    2_000  # Subscriptions of connections that are gone, dropped in one turn of the loop: about 4 ms.
)
MAX_VIOLATIONS: Final = 100  # Messages that break the protocol, after which a connection is closed.

MEMORY_PART: Final = 2  # ``limits.max_memory`` is by default one part in this many of the memory there is.
MEMORY_TIGHT: Final = 0.7  # Part of it from which on the largest consumers are not read,
MEMORY_EASY: Final = 0.6  # ... and below which they are read again.
MEMORY_CUT: Final = 0.9  # Part of it from which on the largest consumers are cut off,
MEMORY_CUT_TO: Final = 0.75  # ... until no more than this is held.
MEMORY_PATIENCE: Final = 5.0  # Seconds that memory may stay tight before the largest consumer is cut off all the same.
MEMORY_SHARE: Final = 1 / 64  # Part of it that makes a peer one of the largest consumers.
MEMORY_INTERVAL: Final = 0.01  # Seconds between two measurements: what arrives meanwhile is a few MiB.
SMALL_PEER: Final = 256 * KIB  # A peer that holds no more than this is never throttled or cut off for it.
SCAN_SESSIONS: Final = 500  # Up to this many sessions are looked at one by one for every measurement.
HELD_INPUT: Final = 4 * KIB  # Unfinished input of one connection is booked from here on; less is part of its own size.
COST_CONNECTION: Final = 4 * KIB  # What things take in memory beside their bytes: measured with CPython 3.12.
COST_REQUEST: Final = 700
COST_SUBSCRIPTION: Final = 480
COST_REGISTRATION: Final = 160
COST_SERVICE: Final = 1_500  # ... or a worker,
COST_ENTRY: Final = 1_500  # ... of the catalog,
COST_VALUE: Final = 500
COST_RECORD: Final = 600  # ... of the log.
COST_ROW: Final = 250  # ... of the journal, until it is written.

# --- monitoring -------------------------------------------------------------------------------------------------------

MONITOR_TICK: Final = 1.0  # Figures are made once a second: what a person can follow, and Prometheus asks less often.
MONITOR_EVENTS: Final = 256  # Changes of state that are remembered: some screens full.
MONITOR_SHOWN: Final = 12  # ... and shown with the figures.
MONITOR_GONE: Final = 256  # Workers, services and clients each that have gone and are still remembered, with the cause.
MONITOR_TALLIES: Final = (
    2_000  # Pairs of service and protocol counted apart; beyond them all others share one count for each protocol.
)
# Part of the allowed silence after which a worker is late. The Guide's, libmdp's, JeroMQ's and majortomo's workers beat from a poll loop:
# healthy ones are silent for up to two intervals, plus the lateness of a timer on each side. With three intervals allowed this is 2.25.
LATE_FRACTION: Final = 0.75
LOOK_FRACTION: Final = (
    0.5  # Part of the allowed silence between two looks at a worker whose silence does not count now.
)
HEALTH_WAIT: Final = 30.0  # How long a broker that leaves waits for the next health check, never past ``grace``. Most come every 5 to 10 s.
METRICS_INTERVAL: Final = 1.0  # A page of metrics is rendered once a second at most, however many ask for it.
METRICS_SERVICES: Final = 250  # Services with figures of their own there: about 30 ms of rendering, 7,000 series.

# --- promises in time -------------------------------------------------------------------------------------------------

ATTEMPTS: Final = 3  # Times a request is handed to a worker before it is given up.
QUEUE_EXPIRY: Final = 60.0  # How long a request waits for a service that has no worker at all.
BUSY_TIMEOUT: Final = 900.0  # Silence allowed while a worker that does not beat when busy holds a request.
GRACE: Final = 10.0  # On SIGTERM, how long requests in flight may take to finish.
TIMER_TICK: Final = (
    10  # Milliseconds. Deadlines are kept in buckets: never early, late by at most this and 1 % of the wait.
)
OVERSLEPT: Final = (
    0.5  # A loop this late for its timers was stopped, or its machine was suspended; a busy one is late by some 10 ms.
)
ZOMBIE_TIME: Final = 5.0  # How long a connection stays open, unheard, after a DISCONNECT; then it is closed.

# --- logs -------------------------------------------------------------------------------------------------------------

LOG_LINES: Final = 5  # Lines of one kind about one host in a second: enough to see it, too few to fill a disk.
LOG_KEYS: Final = (
    200  # Kinds of lines counted apart; beyond them all share one count. 1,000 lines a second at the very worst.
)
LOG_VALUE: Final = 256  # Characters of one value in a line: a name or a reason fits, a payload does not.

# --- the journal ------------------------------------------------------------------------------------------------------

JOURNAL_CHUNK: Final = (
    32_768  # Rows handed to the writer's thread at a time: a chunk costs 1 ms, however few rows it has.
)
JOURNAL_CHUNKS: Final = 16  # Chunks in line before the oldest is dropped: 0.5 million rows, about 200 MiB.
JOURNAL_GATHER: Final = 1.0  # Seconds until what was gathered goes to the writer, if it is less than a chunk.
JOURNAL_TICK: Final = 0.25  # Seconds between two looks at that, and at who taps.
JOURNAL_LOOK: Final = 1.0  # ... and between two looks at whether the journal's directory is still there.
JOURNAL_ROLL_ROWS: Final = 200_000  # Rows of one segment: a few MiB on disk, quick to read as a whole.
JOURNAL_ROLL_BYTES: Final = 64 * MIB  # ... and its bytes in memory, where bodies are recorded.
JOURNAL_ROLL_SECONDS: Final = 5.0  # ... and its age: what a crash may lose.
JOURNAL_KEEP_BYTES: Final = 4096 * MIB  # Days of a busy broker, years of a quiet one.
JOURNAL_KEEP_AGE: Final = 30 * 86_400.0  # A month: long enough to ask what happened, short enough to stay small.
JOURNAL_CLOCK_STEP: Final = 60.0  # A wall clock that moves by more than this against the monotonic one has jumped,
JOURNAL_CLOCK_GAP: Final = 7 * 86_400.0  # ... and so, perhaps, has one that a start finds this far from the last row.
JOURNAL_CLOCK_TRUST: Final = (
    86_400.0  # Seconds until a clock that jumped may age the journal: a day to see the warning.
)
JOURNAL_BODY: Final = 4 * KIB  # Bytes of a payload that are recorded, where a setting names its service.
JOURNAL_RETRY: Final = 1.0  # Seconds between two tries to write a segment: a full disk does not empty sooner.
JOURNAL_SMALL: Final = 1 * MIB  # A batch below this size is merged with its neighbours when its hour is over ...
JOURNAL_MERGED_ROWS: Final = 1_000_000  # ... into one of at most this many rows: about 2 s of one core ...
JOURNAL_MERGED_BYTES: Final = 16 * MIB  # ... and this size. A reader's task takes several of them.
JOURNAL_FLUSH: Final = 1.0  # ... and at least between two segments that are closed early because somebody asked.
STORY_TIME: Final = 5.0  # How long a story waits for what is in memory to be written,
STORY_LOOK: Final = 0.05  # ... and how often that is looked at.
TAP_ROWS: Final = (
    250  # Rows that watchers are shown per tick, 1,000 a second: more nobody reads, and making them takes 2 ms.
)
JOURNAL_NAMES: Final = 20  # Services of one worker that its rows name.

# The pipeline.
PIPELINE_TASK_ROWS: Final = 2_000_000  # Rows of one run and hour that one task handles; more are divided among several.
SOURCE_TASK_ROWS: Final = 200_000  # Rows of the journal that one task of the Spark data source reads.
PIPELINE_IN_PROCESS_ROWS: Final = (
    2_000_000  # Rows of a batch below which starting Spark costs more than computing without it.
)

MAX_LOG_RECORD: Final = 16 * KIB  # One record that a peer publishes, as JSON; a traceback fits.
MAX_LOG_RECORDS: Final = 10_000  # Records the broker remembers, the oldest make room,
ENDED_REQUESTS: Final = (
    20_000  # Ended requests whose ids can still be made, for log records that come after the reply: some 3 MiB.
)
MAX_LOG_BYTES: Final = 16 * MIB  # ... and their size in all.
LOG_QUEUE: Final = 10_000  # Records that a program's handler holds while the broker cannot be reached; then they are dropped, and counted,
LOG_QUEUE_BYTES: Final = 8 * MIB  # ... and their size in all.

# --- heartbeats, per protocol -----------------------------------------------------------------------------------------

MDP_BEAT: Final = 2.5  # The Guide's and majortomo's interval.
MDX_BEAT: Final = 2.5  # The draft says "agreed upon"; its parent's.
DCP_BEAT: Final = 2.5  # DagBox: "implementation-defined"; its worker pings faster.
DBP_BEAT: Final = 5.0  # Used where a registration agrees to beat without naming its interval.
EMQP_BEAT: Final = 3.0  # EventMQ's interval (seen).
MEMO_IDLE: Final = 10.0  # memo01's broker answers an idle worker with HEARTBEAT after this (seen).
BEAT_CROSSES: Final = (
    0.1  # Part of the silence allowed: a beat so soon after a request may have crossed it, and tells nothing.
)
BEATS_MISSED: Final = 3  # "some multiple of that interval (usually 3-5)"
EMQP_BEATS_MISSED: Final = 5  # EventMQ's managers beat from a busy loop and run late.

BRIDGE_BEAT: Final = 1.0  # Between brokers: a lost one holds many requests, so it is noticed sooner than a worker.
MEMO_QUEUE_EXPIRY: Final = 10.0  # "a job waits at most 10 s for a worker" (seen)
MEMO_RECONNECT: Final = (
    1.0  # A memo01 worker may reappear on a new connection for this long before its job is given back.
)
MEMO_ANSWER_CACHE: Final = (
    1_024  # Answers kept per connection for a resend that crosses its answer; hundreds share a connection.
)
MEMO_ANSWER_BYTES: Final = 4 * MIB  # ... and their payloads in all; one of more than half of it is not kept.
MEMO_ANSWER_TIME: Final = (
    5.0  # ... and for how long, up to twice this: a resend and its answer cross within a round trip.
)
MEMO_MAX_WORKERS: Final = 4_096  # Workers on one connection; the document asks for hundreds.
MEMO_SLOTS: Final = 256  # Workers our library registers on one connection at most; "hundreds".
MEMO_MAX_HEADER: Final = 512 * KIB  # A READY with MAX_SERVICES_PER_WORKER names of full length has 258 KiB.
MEMO_MAX_ID: Final = 255  # Ours have 16 bytes; a foreign one is echoed in DISCONNECT, so it is bounded too.
MEMO_MAX_RUN: Final = 7 * 86_400.0  # "slow jobs taking several minutes or more": a longer timeout is cut to a week.
MAX_FAILURE_CODE: Final = 64  # Bytes kept of a code by which a worker reports a failure; the longest of ours has 11.
MAX_FAILURE_TEXT: Final = 4 * KIB  # ... and of its text: it goes to the client, the log and the journal.
MDX_MAX_CREDIT: Final = (
    10_000  # Requests an MDX worker may ask for on one connection; each costs the broker about 1 KiB.
)
MAX_RELEASES: Final = (
    100  # Times that a request may come back unstarted without that counting as an attempt: an idle worker starts it.
)
DCP_MAX_HELD: Final = 8  # Requests a DCP worker may hold by pinging while busy.
EMQP_MAX_SLOTS: Final = 1_000  # READYs one EventMQ worker may have outstanding.
EMQP_MAX_HEADERS: Final = (
    16 * KIB
)  # Headers of one REQUEST, and the queues of one INFORM: EventMQ's own are under 100 bytes.
EMQP_HEADER_CACHE: Final = (
    512  # Header frames whose reading is remembered: a program uses a handful of them over and over.
)
EMQP_CACHED_HEADER: Final = 256  # ... if they are no longer than this.
EMQP_MAX_TIMEOUT: Final = 7 * 86_400.0  # A ``timeout`` header past a week is cut to a week.
EMQP_MAX_RETRIES: Final = (
    100  # A ``retry-count`` above this is cut to it: a job that kills its worker must end some day.
)
EMQP_WEIGHT: Final = 10  # EventMQ's weight for a queue that names none (seen).
EMQP_MAX_WEIGHT: Final = 1_000_000  # Weights are only compared; this keeps a number of any length out.
DBP_BEAT_LEAST: Final = 0.1  # Heartbeat timings are brought between these two, and APPROVED tells the service so:
DBP_BEAT_MOST: Final = 3_600.0  # an hour is long enough to be useless, and a tenth of a second busy enough.
BEACON_PORT: Final = 5245  # UDP, where the published clients listen for a broker (seen).
BEACON: Final = (
    "255.255.255.255:5245"  # Beacons go to every machine of the network, as the published broker's do (seen);
)
BEACON_LOCAL: Final = "127.255.255.255:5245"  # of a broker that only its own machine can reach, no farther than that.
BEACON_INTERVAL: Final = 1.0  # The published broker's (seen).
DISCOVER_TIME: Final = 2.5  # How long a person waits for beacons: two of them, and a margin.
DBP_BROADCAST_PORT: Final = 5247  # UDP, where services hear our beats;
DBP_BROADCAST: Final = (
    "255.255.255.255:5247"  # Our beats; not to 5245, where the published client takes every datagram for a beacon.
)
DBP_BROADCAST_LOCAL: Final = "127.255.255.255:5247"
UDP_PROBE: Final = (
    1.0  # Seconds, or its interval if that is more, between two questions that datagrams make us ask a service.
)
MAX_DATAGRAM: Final = 512  # A beat has at most 300 bytes; what is longer is no beat, whatever it says.
DBP_LATE: Final = (
    1.5  # Intervals without a beat after which a service is late: one was missed, and it had time to be slow.
)

# --- the client and worker libraries ------------------------------------------------------------------------------------

DBP_ANSWER_TIME: Final = 5.0  # The catalog answers at once; what takes longer does not speak DBP.
SCHEMA_TIME: Final = 5.0  # How long a worker waits for the broker to take a schema.
SCHEMA_TRIES: Final = 20  # Times it is sent: the registration on the other connection comes first, sooner or later,
SCHEMA_WAIT: Final = 0.1  # ... and the time between.
CALL_TIME: Final = 30.0  # A call that names no timeout: a person would have given up by then.
CONNECT_TIME: Final = 5.0  # How long a call waits for a connection: a broker restarts well within it.
CONNECT_TIME_LOCAL: Final = (
    1.0  # ... and a command to a broker on its own machine: a person wants to be told that there is none.
)
POOL_CONNECTIONS: Final = (
    16  # Connections of one client over a protocol without request ids; further calls wait in line.
)
ENVELOPE: Final = 64 * KIB  # Room for the envelope of any protocol, and for what frames cost each.
MAX_BODY: Final = MAX_MESSAGE - ENVELOPE  # Bytes of one body, unless the broker announces another limit.
MAX_ANSWER: Final = (
    MAX_MESSAGE + ENVELOPE
)  # Accepted from a broker: a message just below its limit may arrive in a longer envelope.
MAX_BODY_FRAMES: Final = MAX_FRAMES - 24  # Frames of one body; the rest is room for the envelope of any protocol.
STREAM_BACKLOG: Final = MAX_MESSAGE  # Parts of one stream that its reader has not taken yet, in bytes.
BACKOFF_FIRST: Final = 0.05  # The first wait before connecting again: a dropped connection should not cost a second.
BACKOFF_MOST: Final = (
    5.0  # The longest: a broker that comes back is found soon, and thousands of peers do not hammer it.
)
CLOSE_TIME: Final = 1.0  # A closing connection may take this long to write what it was given; then it is cut.
SETTLED: Final = 5.0  # A connection that lived this long was a good one: the next backoff starts from the first wait.
KEEPALIVE_IDLE: Final = 15  # Seconds (whole, as the kernel wants them) before a silent broker's machine is probed;
KEEPALIVE_INTERVAL: Final = 5  # then this often,
KEEPALIVE_COUNT: Final = 3  # and after so many unanswered probes the connection is lost: 30 s in all.
MDP_PATIENCE: Final = 4 * MDP_BEAT  # Silence after which a worker takes the broker for gone: "usually 3-5" intervals.
EMQP_PATIENCE: Final = 4 * EMQP_BEAT  # ... and of eMQP.
MDX_PATIENCE: Final = 4 * MDX_BEAT  # The same, in the same words.
DCP_PATIENCE: Final = 4 * DCP_BEAT  # DCP names no multiple.

# --- durable jobs -------------------------------------------------------------------------------------------------------

JOB_ATTEMPTS: Final = 5  # Attempts of a job that names no retry policy: 1, 2, 4 and 8 s apart, then it is dead.
MAX_JOB_ATTEMPTS: Final = 4_095  # The attempt number has 12 bits in the token that a worker is given.
JOB_BACKOFF_FIRST: Final = 1.0  # Seconds before the second attempt.
JOB_BACKOFF_MOST: Final = 300.0  # The longest wait between two attempts: five minutes.
JOB_BACKOFF_FACTOR: Final = 2.0  # Each wait is twice the one before.
MAX_JOBS: Final = 1_000_000  # Open jobs that the broker holds in memory, about 1 KiB each; further ones are refused.
MAX_JOB_BYTES: Final = 1024 * MIB  # ... and their bodies in all.
MAX_JOB_KEY: Final = 255  # Bytes of an idempotency key.
MAX_JOB_DELAY: Final = 10 * 365 * 86_400.0  # Ten years: a longer delay is a mistake in the unit.
MAX_JOB_PRIORITY: Final = 1_000_000  # Priorities are only compared; this keeps a number of any length out.
JOB_STORY: Final = 20  # Attempts that a job's story keeps; the oldest are dropped.
JOB_RELEASED: Final = (
    64  # Jobs of one service in the broker's queue beyond what its workers can hold: they hide the round trip.
)
JOB_KEEP: Final = 7 * 86_400.0  # How long the result of a job is kept: a week of holidays, then it is fetched.
JOB_KEEP_DEAD: Final = 30 * 86_400.0  # ... and a dead job: a month, so that somebody looks at it.
JOB_REPEAT: Final = (
    600.0  # How long an unfetched result waits for the repeat of a plain request: clients reconnect within seconds.
)
JOB_PURGE: Final = 60.0  # Seconds between two removals of results that were kept long enough.
JOB_PURGE_ROWS: Final = 5_000  # Rows removed at a time, so that a removal never blocks a commit for long.
JOB_REFUSED_WAIT: Final = 1.0  # Seconds before a job is offered again to a service whose queue was full.
MAX_RESULT_WAIT: Final = 86_400.0  # A client may wait for a result for a day at a time.
MAX_WORKER_NAME: Final = 100  # Characters of a worker's name: a host name and a number fit.
RESULT_POLL: Final = (
    30.0  # A client waits for a result in pieces of this length, so that it notices a broker that went away.
)
MAX_SCHEDULES: Final = 10_000  # Schedules in one store.
SCHEDULE_LEAST: Final = 0.1  # Seconds: the shortest interval of a schedule.
MAX_DURABLE_NAMES: Final = 10_000  # Names for which it is remembered whether `durable.services` covers them.
STORE_PENDING: Final = 50_000  # Writes that wait for the disk before new jobs are refused.
STORE_PENDING_BYTES: Final = 256 * MIB  # ... and their bodies in all.
STORE_GROUP: Final = (
    5_000  # Writes committed at a time: about 50 ms of work, so that the first of them does not wait long.
)
STORE_RETRY: Final = 0.5  # Seconds between two tries after the store failed.
STORE_OPENING: Final = 5.0  # Seconds that a broker which starts waits for its store before it listens.
STORE_ANSWER: Final = 20.0  # Seconds a client waits for a store that does not answer before it is told so.
LEASE_TIME: Final = 6.0  # Seconds a broker leads without renewing its lease: how long a failover takes at most.
LEASE_RENEW: Final = 1.5  # Seconds between two renewals: three may fail.

# --- Spark ----------------------------------------------------------------------------------------------------------------

SPARK_BATCH_ROWS: Final = (
    1_000  # Rows of one request: 1.5 million rows per second and task, and small enough for any worker.
)
SPARK_OUTSTANDING: Final = (
    64  # Requests that a task has open: a round trip of 5 ms still allows 12,000 requests per second.
)
SPARK_RETRIES: Final = 3  # Times that a call of a task is repeated; Spark repeats tasks anyway.
SPARK_CALL_TIME: Final = 60.0  # Seconds for one call of a task: a batch of rows takes longer than one.
SPARK_HEARD: Final = 10_000  # Publications written to the spool together, and in one batch of a stream.
SPARK_LOOK: Final = (
    0.5  # Seconds between two looks at the ended jobs or the log records of a broker, for a stream of them.
)
SPARK_REWIND: Final = 60.0  # Seconds of ended jobs that a stream reads again when another broker leads: clocks differ.
SPARK_RECONNECT: Final = 0.5  # Seconds until a stream that lost its broker connects again.
FLEET_LOOK: Final = 1.0  # Seconds between two looks at the queue of a service that a fleet on Spark serves.
FLEET_QUIET: Final = 30.0  # Seconds with idle workers and an empty queue before a fleet gives up half of the idle ones.
FLEET_BACKOFF: Final = (
    0.5,
    30.0,
)  # Seconds before a worker of a fleet that failed is started again: first and longest.
FLEET_FAILURES: Final = 1_000_000  # Times that Spark may start one worker of a fleet again: without limit, in practice.
FLEET_HELLO: Final = 30.0  # Seconds for a worker to reach the driver, and for the driver to hear its name.
FLEET_LEAVE: Final = 20.0  # Seconds beyond the grace time until workers that do not leave are cancelled.
SQL_BATCH_ROWS: Final = 10_000  # Rows of one partial reply of the service spark.sql.
SQL_LEAST_ROWS: Final = 1_000  # ... and fewer only at the end of a result: partitions can be tiny.
SQL_MAX_ROWS: Final = 10_000_000  # Rows of one result, unless the service is told otherwise, ...
SQL_MAX_BYTES: Final = 4096 * MIB  # ... its bytes, ...
SQL_MAX_TIME: Final = 600.0  # ... and the seconds that a query may take.
SQL_LOOK: Final = (
    0.4  # Seconds between two looks at whether the client of a query is still there: cancelled within a second.
)

# --- tables ---------------------------------------------------------------------------------------------------------------

TABLE_FILE_BYTES: Final = 256 * MIB  # In memory, of one file that maintenance makes of several: some 30 MiB on disk.
