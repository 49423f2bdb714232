"""The sections of the settings: each key with its default, its kind and its help.

The defaults are numbers of ``limits.py``, where the reasons are given. ``settings.py`` reads and checks the values.
"""
# ruff: noqa: RUF009 - setting() is field() with a check: what it returns is not shared between instances

from dataclasses import dataclass, field
from typing import TypeVar, cast

from polydomo import limits
from polydomo.protocols.tuning import Tuning
from polydomo.server.setting_types import (
    Broadcast,
    Choice,
    Count,
    CountTable,
    Flag,
    Header,
    Kind,
    ListenAddress,
    Seconds,
    Size,
    Table,
    Targets,
    Text,
    TextList,
    Texts,
)

T = TypeVar("T")

# Frame 0 (or 1) of the other protocols on the shared port.
_OTHER_HEADERS = (b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02", b"DGBX\x01", b"eMQP/1.0")

_BEAT = Seconds(least=0.01, most=3600.0)


def setting(default: T, kind: Kind[T], help: str) -> T:
    """Declares a key of one of the classes below."""
    meta = {"kind": kind, "help": help}
    if isinstance(default, list | dict):
        return cast(T, field(default_factory=default.copy, metadata=meta))
    return field(default=default, metadata=meta)


@dataclass
class Limits:
    max_frame: int = setting(limits.MAX_FRAME, Size(), "the largest frame; larger ones end the connection")
    max_frames: int = setting(limits.MAX_FRAMES, Count(least=16), "the most frames of one message")
    max_message: int = setting(limits.MAX_MESSAGE, Size(least=limits.KIB), "the largest message, all frames together")
    max_handshake: int = setting(
        limits.MAX_HANDSHAKE, Size(least=512), "bytes a peer may send before its handshake is done"
    )
    handshake_time: float = setting(limits.HANDSHAKE_TIME, Seconds(), "how long a peer's handshake may take")
    max_connections: int = setting(
        limits.MAX_CONNECTIONS, Count(), "connections at a time; further ones are closed at once"
    )
    max_outstanding: int = setting(
        limits.MAX_OUTSTANDING, Count(), "open requests of one client before it is no longer read"
    )
    max_queue: int = setting(
        limits.MAX_QUEUE, Count(), "requests waiting for one service before its senders are no longer read"
    )
    max_held_bytes: int = setting(limits.MAX_HELD_BYTES, Size(), "bodies held in all before senders are no longer read")
    max_client_bytes: int = setting(
        limits.MAX_CLIENT_BYTES, Size(), "bodies held for one client before it is no longer read"
    )
    max_memory: int = setting(
        0,
        Size(least=0),
        "everything that is held for peers, in all; 0: half of the machine's or the container's memory",
    )
    max_services: int = setting(limits.MAX_SERVICES, Count(), "names of services, with or without workers")
    max_unsent: int = setting(limits.MAX_UNSENT, Size(), "bytes a peer may leave unread before it is dropped")


@dataclass
class Mdp:
    beat: float = setting(limits.MDP_BEAT, _BEAT, "heartbeat interval of MDP/0.1 and MDP/0.2")
    dialects: dict[str, str] = setting(
        {},
        Table("majortomo", "libmdp"),
        "service to the MDP/0.2 dialect of its workers, so that it need not be guessed",
    )


@dataclass
class Mdx:
    beat: float = setting(limits.MDX_BEAT, _BEAT, "heartbeat interval of MDX")
    client_header: bytes = setting(Tuning.mdx_client_header, Header(*_OTHER_HEADERS), "frame 0 of MDX clients")
    worker_header: bytes = setting(Tuning.mdx_worker_header, Header(*_OTHER_HEADERS), "frame 0 of MDX workers")
    max_credit: int = setting(limits.MDX_MAX_CREDIT, Count(), "requests an MDX worker may hold on one connection")
    front: str = setting("", ListenAddress(), "a further listener, for MDX clients alone")
    back: str = setting("", ListenAddress(), "a further listener, for MDX workers alone")


@dataclass
class Dcp:
    beat: float = setting(limits.DCP_BEAT, _BEAT, "heartbeat interval of DCP")
    max_held: int = setting(limits.DCP_MAX_HELD, Count(), "requests a DCP worker may hold by pinging while busy")


@dataclass
class Dbp:
    beat: float = setting(limits.DBP_BEAT, _BEAT, "heartbeat interval of DBP where a registration names none")
    silent: bool = setting(Tuning.dbp_silent, Flag(), "take registrations without heartbeat timing, which never expire")
    names: list[str] = setting([], TextList(), "names that may register; empty allows every name")
    listen: str = setting("", ListenAddress(), "a further listener, for DBP alone")
    beacon: str = setting(
        "off", Broadcast(), "UDP address to tell where the broker is; on: every machine that can reach it"
    )
    beacon_interval: float = setting(limits.BEACON_INTERVAL, _BEAT, "time between two beacons")
    udp: bool = setting(True, Flag(), "take heartbeats by UDP, at the ports of the listeners")
    broadcast: str = setting("on", Broadcast(), "UDP address of the broker's beats to services that beat by UDP")


@dataclass
class Emqp:
    beat: float = setting(limits.EMQP_BEAT, _BEAT, "heartbeat interval of eMQP")
    max_slots: int = setting(limits.EMQP_MAX_SLOTS, Count(), "READYs one worker may have outstanding")
    beats_missed: int = setting(
        limits.EMQP_BEATS_MISSED, Count(most=1000), "silent intervals after which an eMQP peer is lost"
    )
    front: str = setting(
        "", ListenAddress(), "a further listener, for eMQP clients and schedulers; EventMQ's is tcp://127.0.0.1:47291"
    )
    back: str = setting("", ListenAddress(), "a further listener, for eMQP workers; EventMQ's is tcp://127.0.0.1:47290")
    publish_in: str = setting(
        "", ListenAddress(), "a further listener, for PUBLISH and PUB peers; EventMQ's is tcp://127.0.0.1:47298"
    )
    publish_out: str = setting(
        "", ListenAddress(), "a further listener, for SUB peers; EventMQ's is tcp://127.0.0.1:47299"
    )


@dataclass
class Memo:
    idle: float = setting(limits.MEMO_IDLE, _BEAT, "an idle memo01 worker hears a HEARTBEAT after this")
    queue_expiry: float = setting(limits.MEMO_QUEUE_EXPIRY, Seconds(), "how long a memo01 job waits for a worker")
    reconnect: float = setting(limits.MEMO_RECONNECT, Seconds(), "how long a lost memo01 worker may take to reappear")
    services: list[str] = setting([], TextList(), "services whose replies are kept and used again; * matches anything")
    versions: dict[str, str] = setting({}, Texts(), "versions of memoised services: another one makes old replies void")
    max_bytes: int = setting(
        limits.MEMO_KEEP_BYTES, Size(), "size of all kept replies; the least recently used make room"
    )
    max_age: float = setting(limits.MEMO_KEEP_AGE, Seconds(most=3650 * 86400.0), "how long a reply is kept")


@dataclass
class Http:
    hosts: list[str] = setting(
        [], TextList(), "host names that HTTP clients may use besides addresses and localhost; * is any"
    )
    origins: list[str] = setting(
        [], TextList(), "origins of web pages that may use the broker besides its own; * is any"
    )
    tools: dict[str, str] = setting(
        {}, Texts(), "services without a schema that OpenAPI and MCP show as text in, text out, each with a description"
    )


@dataclass
class Bridge:
    to: list[str] = setting([], Targets(), "other brokers to connect to: each learns the other's services")
    topics: list[str] = setting(
        [], TextList(), "prefixes of topics that cross, both ways: last values, and logs under log."
    )
    key: str = setting(
        "", Text(empty=True), "CURVE: certificate file with this broker's secret key, as the other brokers' principal"
    )
    server_key: str = setting(
        "", Text(empty=True), "CURVE: the other brokers' public key, or a certificate file with it"
    )
    ca: str = setting(
        "", Text(empty=True), "tls+tcp://: PEM file with the authority that signs the other brokers' certificates"
    )
    cert: str = setting("", Text(empty=True), "tls+tcp://: PEM file with this broker's client certificate and its key")
    beat: float = setting(limits.BRIDGE_BEAT, _BEAT, "heartbeat interval between brokers")
    hops: int = setting(
        limits.MAX_HOPS, Count(most=limits.MAX_HOPS), "brokers on the way to a service that is still learned"
    )
    window: int = setting(limits.BRIDGE_WINDOW, Count(), "requests taken from one other broker at a time")
    accept: str = setting(
        Tuning.bridge_accept,
        Choice("local", "all", "none"),
        "brokers that may connect to this one; local: at listeners that no other machine reaches",
    )
    patience: float = setting(
        limits.BRIDGE_PATIENCE, Seconds(), "how long another broker may keep a request while a local worker is idle"
    )


@dataclass
class Values:
    max_topics: int = setting(
        limits.MAX_VALUES, Count(), "topics whose last value is kept; the longest unchanged makes room"
    )
    max_bytes: int = setting(
        limits.MAX_VALUE_BYTES, Size(), "topics and last values in all; the longest unchanged makes room"
    )
    max_unsent: int = setting(limits.MAX_BACKLOG, Size(), "bytes that wait for one subscriber that reads too slowly")
    slow: str = setting(
        "cut", Choice("cut", "skip"), "past that, it is cut off, or skipped: it misses what is published"
    )
    dial: bool = setting(True, Flag(), "subscribe to the publishers that DBP registrations name")


_LEVELS = ("off", "requests", "messages")


@dataclass
class Journal:
    level: str = setting("requests", Choice(*_LEVELS), "what is recorded: nothing, every request, or every message too")
    services: dict[str, str] = setting({}, Table(*_LEVELS), "service to its own level")
    name: str = setting(
        "", Text(empty=True), "the broker's name in its journal; empty: the machine's name and the port"
    )
    bodies: list[str] = setting([], TextList(), "services whose payloads are recorded too, at level messages")
    trace_parts: bool = setting(
        False, Flag(), "read W3C trace context from a part of MDX and DCP requests that both ends agreed on"
    )
    roll_rows: int = setting(limits.JOURNAL_ROLL_ROWS, Count(), "rows after which a segment is closed, and safe")
    roll_bytes: int = setting(limits.JOURNAL_ROLL_BYTES, Size(least=limits.KIB), "bytes in memory after which it is")
    roll_seconds: float = setting(limits.JOURNAL_ROLL_SECONDS, Seconds(least=0.1), "time after which it is")
    merge: bool = setting(True, Flag(), "merge the small segments of an hour when it is over")
    keep_bytes: int = setting(
        limits.JOURNAL_KEEP_BYTES, Size(least=limits.MIB), "size past which the oldest segments are removed"
    )
    keep_age: float = setting(
        limits.JOURNAL_KEEP_AGE, Seconds(least=3600.0, most=3650 * 86400.0), "age past which segments are removed"
    )


@dataclass
class DurableJobs:
    services: list[str] = setting(
        [], TextList(), "services whose plain requests are kept in the job store: names, or beginnings with a star"
    )
    attempts: int = setting(
        limits.JOB_ATTEMPTS, Count(most=limits.MAX_JOB_ATTEMPTS), "attempts of a job that names no retries"
    )
    backoff_first: float = setting(limits.JOB_BACKOFF_FIRST, Seconds(least=0.0), "wait before the second attempt")
    backoff_most: float = setting(limits.JOB_BACKOFF_MOST, Seconds(least=0.0), "the longest wait between two attempts")
    retries: dict[str, int] = setting(
        {}, CountTable(most=limits.MAX_JOB_ATTEMPTS), "service to the attempts of its jobs and durable requests"
    )
    keep: float = setting(limits.JOB_KEEP, Seconds(least=1.0, most=3650 * 86400.0), "how long results are kept")
    keep_dead: float = setting(
        limits.JOB_KEEP_DEAD, Seconds(least=1.0, most=3650 * 86400.0), "how long dead jobs are kept"
    )
    repeat: float = setting(
        limits.JOB_REPEAT, Seconds(least=0.0), "how long the repeat of a durable request finds the first one's result"
    )
    max_jobs: int = setting(limits.MAX_JOBS, Count(), "open jobs; further ones are refused")
    max_bytes: int = setting(limits.MAX_JOB_BYTES, Size(), "bodies of open jobs in all; further ones are refused")
    lease: float = setting(
        limits.LEASE_TIME,
        Seconds(least=0.5, most=600.0),
        "with PostgreSQL: after this long without a sign the leader is replaced",
    )
    address: str = setting(
        "",
        Text(empty=True),
        "with PostgreSQL: where clients reach this broker when it leads; empty: the first listener",
    )
