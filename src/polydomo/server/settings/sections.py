"""The sections of the settings: each key with its default, its kind and its help.

The defaults are numbers of ``limits.py``, where the reasons are given. ``settings.py`` reads and checks the values.
"""
# ruff: noqa: RUF009 - setting() is field() with a check: its result is not shared between instances

from dataclasses import dataclass, field
from typing import TypeVar, cast

from polydomo import limits
from polydomo.model.objective import Objective
from polydomo.model.service_limits import SCOPES, SERVICE
from polydomo.model.tuning import AUTO, LENIENT, STRICT, Tuning
from polydomo.server.settings.types import (
    Broadcast,
    Choice,
    Count,
    Flag,
    Header,
    Kind,
    ListenAddress,
    ObjectiveText,
    RateText,
    Seconds,
    Size,
    Targets,
    Text,
    TextList,
    Texts,
)

T = TypeVar("T")

# Frame 0 (or 1) of the other protocols on the shared port.
_OTHER_HEADERS = (b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02", b"DGBX\x01", b"eMQP/1.0")


def setting(default: T, kind: Kind[T], help: str) -> T:
    """Declares a key of one of the classes below."""
    meta = {"kind": kind, "help": help}
    if isinstance(default, list | dict):
        return cast(T, field(default_factory=default.copy, metadata=meta))
    return field(default=default, metadata=meta)


@dataclass
class LimitsSection:
    max_message: int = setting(limits.MAX_MESSAGE, Size(least=limits.KIB), "maximum message size, all frames together")
    max_connections: int = setting(
        limits.MAX_CONNECTIONS, Count(), "maximum number of connections; further ones are closed at once"
    )
    max_outstanding: int = setting(
        limits.MAX_OUTSTANDING,
        Count(),
        "open requests of one client before the broker stops reading from it (backpressure)",
    )
    max_queue: int = setting(
        limits.MAX_QUEUE, Count(), "queued requests of one service before the broker stops reading from their senders"
    )
    max_held_bytes: int = setting(
        limits.MAX_HELD_BYTES, Size(), "bytes of all held bodies before the broker stops reading from senders"
    )
    max_client_bytes: int = setting(
        limits.MAX_CLIENT_BYTES, Size(), "bytes of bodies held for one client before the broker stops reading from it"
    )
    max_memory: int = setting(
        0,
        Size(least=0),
        "maximum memory held for all peers; 0: half of the machine's or the container's memory",
    )
    max_disk: int = setting(
        0,
        Size(least=0),
        "most bytes in the data directory: half for jobs, a quarter each for the journal and the memo store; 0: 90 % of the free space",
    )
    max_services: int = setting(
        limits.MAX_SERVICES, Count(), "maximum number of service names, with or without workers"
    )
    max_unsent: int = setting(limits.MAX_UNSENT, Size(), "bytes a peer may leave unread before it is disconnected")


@dataclass
class Mdp:
    busy: str = setting(
        Tuning.mdp_busy,
        Choice(STRICT, LENIENT),
        "a busy worker may be silent for busy_timeout (lenient), as the published ones are, or as long as an idle one (strict)",
    )


@dataclass
class Mdx:
    busy: str = setting(
        Tuning.mdx_busy,
        Choice(STRICT, LENIENT),
        "a busy worker may be silent as long as an idle one (strict), or for busy_timeout (lenient)",
    )
    client_header: bytes = setting(Tuning.mdx_client_header, Header(*_OTHER_HEADERS), "frame 0 of MDX clients")
    worker_header: bytes = setting(Tuning.mdx_worker_header, Header(*_OTHER_HEADERS), "frame 0 of MDX workers")
    front: str = setting("", ListenAddress(), "additional listener for MDX clients only")
    back: str = setting("", ListenAddress(), "additional listener for MDX workers only")


@dataclass
class Dcp:
    busy: str = setting(
        Tuning.dcp_busy,
        Choice(AUTO, STRICT, LENIENT),
        "the same; auto: lenient for DagBox's own workers, which are silent while busy, strict for others",
    )


@dataclass
class Dbp:
    silent: bool = setting(
        Tuning.dbp_silent, Flag(), "accept registrations without heartbeat timing, which never expire"
    )
    names: list[str] = setting([], TextList(), "names that may register; empty allows all")
    require: list[str] = setting(
        [], TextList(), "fields that a registration must have besides its name, such as function, port or heartbeat"
    )
    registered_only: bool = setting(
        Tuning.dbp_registered_only,
        Flag(),
        "only nodes with an active registration, by IP address, may publish and offer services",
    )
    listen: str = setting("", ListenAddress(), "additional listener for DBP only")
    beacon: str = setting(
        "off",
        Broadcast(),
        "UDP address to send the beacon to; on: broadcast to every machine that can reach the broker",
    )
    udp: bool = setting(True, Flag(), "accept heartbeats over UDP, on the ports of the listeners")
    broadcast: str = setting(
        "on", Broadcast(), "UDP address for the broker's heartbeats to services that send theirs over UDP"
    )


@dataclass
class Emqp:
    busy: str = setting(
        Tuning.emqp_busy,
        Choice(STRICT, LENIENT),
        "a busy worker may be silent as long as an idle one (strict), or for busy_timeout (lenient)",
    )
    reply: str = setting(
        "requested",
        Choice("requested", "always"),
        "which REQUESTs are answered: those with the header reply-requested, or all; the document's READY form always is",
    )
    front: str = setting(
        "", ListenAddress(), "additional listener for eMQP clients and schedulers; EventMQ's is tcp://127.0.0.1:47291"
    )
    back: str = setting("", ListenAddress(), "additional listener for eMQP workers; EventMQ's is tcp://127.0.0.1:47290")
    publish_in: str = setting(
        "", ListenAddress(), "additional listener for PUBLISH and PUB peers; EventMQ's is tcp://127.0.0.1:47298"
    )
    publish_out: str = setting(
        "", ListenAddress(), "additional listener for SUB peers; EventMQ's is tcp://127.0.0.1:47299"
    )


@dataclass
class Memo:
    queue_expiry: float = setting(limits.MEMO_QUEUE_EXPIRY, Seconds(), "how long a memo01 job waits for a worker")
    max_bytes: int = setting(
        limits.MEMO_KEEP_BYTES, Size(), "maximum size of all stored replies; the least recently used are evicted"
    )
    max_age: float = setting(limits.MEMO_KEEP_AGE, Seconds(most=3650 * 86400.0), "how long a reply is stored")


@dataclass
class Http:
    hosts: list[str] = setting(
        [], TextList(), "host names that HTTP clients may use besides IP addresses and localhost; * is any"
    )
    origins: list[str] = setting(
        [], TextList(), "origins of web pages that may use the broker, besides its own; * is any"
    )
    tools: dict[str, str] = setting(
        {},
        Texts(),
        "services without a schema to show in OpenAPI and MCP as text in, text out, with their descriptions",
    )


@dataclass
class Bridge:
    to: list[str] = setting([], Targets(), "other brokers to bridge to; each side learns the other's services")
    topics: list[str] = setting(
        [], TextList(), "topic prefixes to forward in both directions; log. forwards log records"
    )
    key: str = setting(
        "", Text(empty=True), "CURVE: file with this broker's secret key, with which it authenticates to other brokers"
    )
    server_key: str = setting("", Text(empty=True), "CURVE: the other brokers' public key, or a file with it")
    ca: str = setting(
        "", Text(empty=True), "tls+tcp://: PEM file with the authority that signs the other brokers' certificates"
    )
    cert: str = setting("", Text(empty=True), "tls+tcp://: PEM file with this broker's client certificate and its key")
    accept: str = setting(
        Tuning.bridge_accept,
        Choice("local", "all", "none"),
        "brokers that may connect to this one; local: only on listeners that other machines cannot reach",
    )


@dataclass
class Values:
    max_topics: int = setting(
        limits.MAX_VALUES, Count(), "maximum number of last values; the one unchanged for longest is evicted"
    )
    max_bytes: int = setting(
        limits.MAX_VALUE_BYTES,
        Size(),
        "maximum size of topics and last values; the one unchanged for longest is evicted",
    )
    max_unsent: int = setting(limits.MAX_BACKLOG, Size(), "maximum bytes queued for a slow subscriber")
    slow: str = setting(
        "cut", Choice("cut", "skip"), "beyond that: disconnect it (cut), or drop messages for it (skip)"
    )
    dial: bool = setting(True, Flag(), "subscribe to the publishers named in DBP registrations")


LEVELS = ("off", "requests", "messages")


@dataclass
class JournalSection:
    level: str = setting("requests", Choice(*LEVELS), "what is recorded: nothing, every request, or also every message")
    name: str = setting(
        "", Text(empty=True), "the broker's name in the journal; empty: the machine's name and the port"
    )
    trace_parts: bool = setting(
        False,
        Flag(),
        "read W3C trace context from an extra part of MDX and DCP requests, if client and worker both use one",
    )
    keep_bytes: int = setting(
        limits.JOURNAL_KEEP_BYTES, Size(least=limits.MIB), "maximum size; beyond it, the oldest segments are removed"
    )
    keep_age: float = setting(
        limits.JOURNAL_KEEP_AGE,
        Seconds(least=3600.0, most=3650 * 86400.0),
        "maximum age of segments; older ones are removed",
    )


@dataclass
class DurableJobs:
    attempts: int = setting(
        limits.JOB_ATTEMPTS, Count(most=limits.MAX_JOB_ATTEMPTS), "default number of attempts of a job"
    )
    backoff_first: float = setting(limits.JOB_BACKOFF_FIRST, Seconds(least=0.0), "delay before the second attempt")
    backoff_most: float = setting(limits.JOB_BACKOFF_MOST, Seconds(least=0.0), "maximum delay between attempts")
    keep: float = setting(limits.JOB_KEEP, Seconds(least=1.0, most=3650 * 86400.0), "how long results are kept")
    keep_dead: float = setting(
        limits.JOB_KEEP_DEAD, Seconds(least=1.0, most=3650 * 86400.0), "how long dead jobs are kept"
    )
    repeat: float = setting(
        limits.JOB_REPEAT, Seconds(least=0.0), "how long a repeated durable request gets the result of the first one"
    )
    max_jobs: int = setting(limits.MAX_JOBS, Count(), "maximum number of open jobs; further ones are rejected")
    max_bytes: int = setting(
        limits.MAX_JOB_BYTES, Size(), "maximum total size of the bodies of open jobs; further jobs are rejected"
    )
    lease: float = setting(
        limits.LEASE_TIME,
        Seconds(least=0.5, most=600.0),
        "with PostgreSQL: a leader that has not renewed its lease for this long is replaced",
    )
    address: str = setting(
        "",
        Text(empty=True),
        "with PostgreSQL: the address for clients when this broker is the leader; empty: the first listener",
    )


@dataclass
class ServiceOptions:
    """The options of ``[service."PATTERN"]``. A service has each option from the most specific pattern that sets it."""

    durable: bool = setting(False, Flag(), "store ordinary requests to the service in the job store")
    retries: int = setting(
        limits.JOB_ATTEMPTS,
        Count(most=limits.MAX_JOB_ATTEMPTS),
        "number of attempts for its jobs and durable requests, instead of durable.attempts; reported failures are retried too",
    )
    memo: bool = setting(False, Flag(), "store its replies, and reuse them for equal requests")
    version: str = setting("", Text(empty=True), "its version; a new one invalidates stored replies")
    dialect: str = setting(
        "", Choice("majortomo", "libmdp"), "MDP/0.2 dialect of its workers; without it, the dialect is detected"
    )
    journal: str = setting("requests", Choice(*LEVELS), "what is recorded of its requests, instead of journal.level")
    bodies: bool = setting(False, Flag(), "record its payloads too, at level messages; the pattern also matches topics")
    running: int = setting(0, Count(most=limits.MAX_RUNNING), "how many of its requests run at the same time")
    rate: tuple[int, float] = setting(
        (0, 0.0), RateText(), 'how many of its requests start in any window of time, such as "90/10s"'
    )
    per: str = setting(
        SERVICE, Choice(*SCOPES), "what running and rate count: all requests of the service, or those of one"
    )
    objective: Objective = setting(
        Objective(), ObjectiveText(), 'its latency objective, such as "99% in 200ms"; shown beside its latencies'
    )
