"""What a user may set, where it may stand, and what it must look like.

Settings come from a TOML file, from ``POLYDOMO_*`` variables and from flags; the later of these wins. Each key is declared
once, in the classes below, with its default, its kind and its help; the defaults are numbers of ``limits.py``, where their
reasons stand. A wrong value or an unknown key is a SettingError that names the key, says where it came from, and what
would be right.

    listen = ["tcp://127.0.0.1:5246"]        POLYDOMO_LISTEN=tcp://127.0.0.1:5246,ipc:///run/polydomo.sock
    [limits]
    max_message = "16MiB"                    POLYDOMO_LIMITS_MAX_MESSAGE=16MiB
"""
# ruff: noqa: RUF009 - setting() is field() with a check: what it returns is not shared between instances

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from polydomo import limits
from polydomo.errors import SettingError
from polydomo.protocols.roles import ROLES, SHARED, Role
from polydomo.protocols.tuning import Tuning
from polydomo.server.setting_types import (
    Broadcast,
    Choice,
    Count,
    CountTable,
    Flag,
    Header,
    Kind,
    Place,
    Seconds,
    Size,
    Table,
    Targets,
    Text,
    Texts,
    Urls,
    Words,
)
from polydomo.wire.address import Address, is_loopback, parse_url

T = TypeVar("T")

PREFIX = "POLYDOMO_"
FILE_VARIABLE = "POLYDOMO_CONFIG"  # names the file, as --config does
DEFAULT = "default"

# Kubernetes gives every container such variables for a service that happens to be called polydomo.
_NOT_OURS = re.compile(r"POLYDOMO_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_\w+)?)", re.ASCII)

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
    front: str = setting("", Place(), "a further listener, for MDX clients alone")
    back: str = setting("", Place(), "a further listener, for MDX workers alone")


@dataclass
class Dcp:
    beat: float = setting(limits.DCP_BEAT, _BEAT, "heartbeat interval of DCP")
    max_held: int = setting(limits.DCP_MAX_HELD, Count(), "requests a DCP worker may hold by pinging while busy")


@dataclass
class Dbp:
    beat: float = setting(limits.DBP_BEAT, _BEAT, "heartbeat interval of DBP where a registration names none")
    silent: bool = setting(Tuning.dbp_silent, Flag(), "take registrations without heartbeat timing, which never expire")
    names: list[str] = setting([], Words(), "names that may register; empty allows every name")
    listen: str = setting("", Place(), "a further listener, for DBP alone")
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
        "", Place(), "a further listener, for eMQP clients and schedulers; EventMQ's is tcp://127.0.0.1:47291"
    )
    back: str = setting("", Place(), "a further listener, for eMQP workers; EventMQ's is tcp://127.0.0.1:47290")
    publish_in: str = setting(
        "", Place(), "a further listener, for PUBLISH and PUB peers; EventMQ's is tcp://127.0.0.1:47298"
    )
    publish_out: str = setting("", Place(), "a further listener, for SUB peers; EventMQ's is tcp://127.0.0.1:47299")


@dataclass
class Memo:
    idle: float = setting(limits.MEMO_IDLE, _BEAT, "an idle memo01 worker hears a HEARTBEAT after this")
    queue_expiry: float = setting(limits.MEMO_QUEUE_EXPIRY, Seconds(), "how long a memo01 job waits for a worker")
    reconnect: float = setting(limits.MEMO_RECONNECT, Seconds(), "how long a lost memo01 worker may take to reappear")
    services: list[str] = setting([], Words(), "services whose replies are kept and used again; * matches anything")
    versions: dict[str, str] = setting({}, Texts(), "versions of memoised services: another one makes old replies void")
    max_bytes: int = setting(
        limits.MEMO_KEEP_BYTES, Size(), "size of all kept replies; the least recently used make room"
    )
    max_age: float = setting(limits.MEMO_KEEP_AGE, Seconds(most=3650 * 86400.0), "how long a reply is kept")


@dataclass
class Http:
    hosts: list[str] = setting(
        [], Words(), "host names that HTTP clients may use besides addresses and localhost; * is any"
    )
    origins: list[str] = setting([], Words(), "origins of web pages that may use the broker besides its own; * is any")
    tools: dict[str, str] = setting(
        {}, Texts(), "services without a schema that OpenAPI and MCP show as text in, text out, each with a description"
    )


@dataclass
class Bridge:
    to: list[str] = setting([], Targets(), "other brokers to connect to: each learns the other's services")
    topics: list[str] = setting(
        [], Words(), "prefixes of topics that cross, both ways: last values, and logs under log."
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
    bodies: list[str] = setting([], Words(), "services whose payloads are recorded too, at level messages")
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
        [], Words(), "services whose plain requests are kept in the job store: names, or beginnings with a star"
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


@dataclass
class Listener:
    """An address to listen on, and for whom."""

    address: Address
    role: Role = SHARED
    key: str = "listen"


class Described(NamedTuple):
    """One key, for people: ``value`` and ``default`` are texts that could stand in a variable."""

    key: str
    value: str
    default: str
    source: str
    help: str


@dataclass
class Settings:
    """Every setting of a broker. Made by ``load``; one made directly holds the defaults, unchecked."""

    listen: list[str] = setting(["tcp://127.0.0.1:5246"], Urls(), "addresses to listen on")
    data: str = setting("./polydomo-data", Text(), "directory for what the broker keeps")
    store: str = setting(
        "sqlite", Text(), "where jobs are kept: sqlite (in the data directory), sqlite:PATH, postgresql://..., or off"
    )
    access: str = setting(
        "", Text(empty=True), "access file: who may connect, and what each may do; empty: no access control"
    )
    insecure: bool = setting(False, Flag(), "allow listeners that other machines can reach, without access control")
    log_json: bool = setting(False, Flag(), "write logs as JSON lines")
    log_level: str = setting("info", Choice("debug", "info", "warning", "error"), "the least important lines to log")
    grace: float = setting(
        limits.GRACE, Seconds(least=0.0), "on SIGTERM, how long requests in flight may take to finish"
    )
    attempts: int = setting(
        limits.ATTEMPTS, Count(most=1000), "times a request is handed to a worker before it is given up"
    )
    queue_expiry: float = setting(
        limits.QUEUE_EXPIRY, Seconds(), "how long a request waits for a service without workers"
    )
    busy_timeout: float = setting(
        limits.BUSY_TIMEOUT, Seconds(), "silence allowed to a busy worker that does not beat while busy"
    )
    beats_missed: int = setting(limits.BEATS_MISSED, Count(most=1000), "silent intervals after which a worker is lost")
    requeue_after_partial: bool = setting(
        False, Flag(), "requeue a lost request even if a partial has reached its client"
    )
    limits: Limits = field(default_factory=Limits)
    mdp: Mdp = field(default_factory=Mdp)
    mdx: Mdx = field(default_factory=Mdx)
    dcp: Dcp = field(default_factory=Dcp)
    dbp: Dbp = field(default_factory=Dbp)
    emqp: Emqp = field(default_factory=Emqp)
    memo: Memo = field(default_factory=Memo)
    http: Http = field(default_factory=Http)
    values: Values = field(default_factory=Values)
    bridge: Bridge = field(default_factory=Bridge)
    journal: Journal = field(default_factory=Journal)
    durable: DurableJobs = field(default_factory=DurableJobs)
    sources: dict[str, str] = field(default_factory=dict)  # key -> where its value came from; a default is not in it

    def listeners(self) -> list[Listener]:
        """The shared ones first; then those with a role, each opened by the setting of the role's name."""
        shared = [Listener(parse_url(url)) for url in self.listen]
        places = [(role, self.get(key)) for key, role in ROLES.items() if key]
        return shared + [Listener(parse_url(url), role, role.name) for role, url in places if url]

    def tuning(self) -> Tuning:
        """What the protocols need to know."""
        return Tuning(
            max_message=self.limits.max_message,
            mdp_beat=self.mdp.beat,
            mdx_beat=self.mdx.beat,
            dcp_beat=self.dcp.beat,
            dbp_beat=self.dbp.beat,
            emqp_beat=self.emqp.beat,
            beats_missed=self.beats_missed,
            emqp_beats_missed=self.emqp.beats_missed,
            memo_idle=self.memo.idle,
            memo_queue_expiry=self.memo.queue_expiry,
            memo_reconnect=self.memo.reconnect,
            busy_timeout=self.busy_timeout,
            bridge_beat=self.bridge.beat,
            bridge_hops=self.bridge.hops,
            # past the first bound we would refuse what we asked for; past the others, bridges could fill a line or the broker by themselves
            bridge_window=min(
                self.bridge.window, self.limits.max_outstanding, max(1, self.limits.max_queue // limits.BRIDGE_SHARE)
            ),
            bridge_bytes=min(self.limits.max_client_bytes, max(1, self.limits.max_held_bytes // limits.BRIDGE_SHARE)),
            bridge_accept=self.bridge.accept,
            bridge_patience=self.bridge.patience,
            bridge_topics=[topic.encode("utf-8", "surrogateescape") for topic in self.bridge.topics],
            max_backlog=self.values.max_unsent,
            skip_slow=self.values.slow == "skip",
            dcp_max_held=self.dcp.max_held,
            emqp_max_slots=self.emqp.max_slots,
            mdx_client_header=self.mdx.client_header,
            mdx_worker_header=self.mdx.worker_header,
            mdp2_dialects={name.encode("utf-8", "surrogateescape"): word for name, word in self.mdp.dialects.items()},
            dbp_silent=self.dbp.silent,
            dbp_names=list(self.dbp.names),
        )

    def get(self, key: str) -> Any:
        section, _, name = key.rpartition(".")
        return getattr(getattr(self, section) if section else self, name)

    def describe(self) -> list[Described]:
        """Every key with its value, its default, where the value came from, and what it is for."""
        plain = Settings()
        return [
            Described(key, kind.show(self.get(key)), kind.show(plain.get(key)), self.sources.get(key, DEFAULT), help)
            for key, kind, help in _declared()
        ]


def load(
    file: str | Path | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Settings:
    """Reads and checks all sources. A flag whose value is None was not given; an empty variable counts as not set."""
    settings = Settings()
    environ = environ or {}
    from_flag = file is not None
    path = file if from_flag else environ.get(FILE_VARIABLE) or None
    if path is not None:
        place = "flag --config" if from_flag else f"variable {FILE_VARIABLE}"
        for key, value in _flatten(_read_file(Path(path), place), f"file {path}"):
            _put(settings, key, value, f"file {path}")
    variables = {variable_of(key): key for key in KINDS}
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name != FILE_VARIABLE and not _NOT_OURS.fullmatch(name):
            if name not in variables:
                known = [other.removeprefix(PREFIX) for other in variables]
                raise SettingError(
                    f"variable {name}: there is no such setting{_suggest(name.removeprefix(PREFIX), known, PREFIX)}"
                )
            if text:
                _put(settings, variables[name], text, f"variable {name}")
    for key, value in (flags or {}).items():
        if value is not None:
            if key not in KINDS:
                raise SettingError(f"flag {flag_of(key)}: there is no such setting{_suggest(key, KINDS)}")
            _put(settings, key, value, f"flag {flag_of(key)}")
    _check(settings)
    return settings


def variable_of(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def flag_of(key: str) -> str:
    return "--" + key.replace(".", "-").replace("_", "-")


def _declared() -> Iterator[tuple[str, Kind[Any], str]]:
    for outer in fields(Settings):
        if "kind" in outer.metadata:
            yield outer.name, outer.metadata["kind"], outer.metadata["help"]
    for outer in fields(Settings):
        if isinstance(outer.default_factory, type) and is_dataclass(outer.default_factory):
            for inner in fields(outer.default_factory):
                yield f"{outer.name}.{inner.name}", inner.metadata["kind"], inner.metadata["help"]


KINDS: dict[str, Kind[Any]] = {key: kind for key, kind, _ in _declared()}
_SECTIONS = {key.partition(".")[0] for key in KINDS if "." in key}


def _read_file(path: Path, place: str) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise SettingError(f"{place}: cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"file {path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"file {path}: is not TOML: {error}") from None


def _flatten(table: dict[str, object], source: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if name in _SECTIONS:
            if not isinstance(value, dict):
                raise SettingError(f"{name} ({source}): must be a table, [{name}]")
            for inner, inner_value in value.items():
                yield _known(f"{name}.{inner}", source), inner_value
        elif isinstance(value, dict) and name not in KINDS:
            known = difflib.get_close_matches(name, _SECTIONS, 1)
            hint = (
                f"; did you mean [{known[0]}]?"
                if known
                else f"; there are {', '.join(f'[{s}]' for s in sorted(_SECTIONS))}"
            )
            raise SettingError(f"[{name}] ({source}): there is no such section{hint}")
        else:
            yield _known(name, source), value


def _known(key: str, source: str) -> str:
    if key not in KINDS:
        raise SettingError(f"{key} ({source}): there is no such setting{_suggest(key, KINDS)}")
    return key


def _suggest(name: str, known: Collection[str], prefix: str = "") -> str:
    """The nearest known name; a right name in the wrong section counts as near."""
    ends = {other.rpartition(".")[2]: other for other in known}
    end = name.rpartition(".")[2]
    near = [other for other in known if other.rpartition(".")[2] == end]
    near = (
        near or difflib.get_close_matches(name, known, 1) or [ends[e] for e in difflib.get_close_matches(end, ends, 1)]
    )
    return (
        f"; did you mean {' or '.join(prefix + other for other in near)}?"
        if near
        else "; `polydomo config` lists them all"
    )


def _put(settings: Settings, key: str, value: object, source: str) -> None:
    try:
        read = KINDS[key].read(value)
    except ValueError as error:
        raise SettingError(f"{key} ({source}): {error}, not {_shown(value)}") from None
    except SettingError as error:
        raise SettingError(f"{key} ({source}): {error}") from None
    section, _, name = key.rpartition(".")
    setattr(settings.get(section) if section else settings, name, read)
    settings.sources[key] = source


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _check(settings: Settings) -> None:
    """What no key can tell by itself. A default gives way to a value that was set; two set values must agree."""
    bounds = settings.limits
    if "limits.max_frame" not in settings.sources:
        bounds.max_frame = min(bounds.max_frame, bounds.max_message)
    if "limits.max_unsent" not in settings.sources:
        bounds.max_unsent = max(bounds.max_unsent, bounds.max_message * 5 // 2)
    if "limits.max_held_bytes" not in settings.sources:
        bounds.max_held_bytes = max(bounds.max_held_bytes, bounds.max_message * 2)
    size = Size()
    if bounds.max_frame > bounds.max_message:
        raise _clash(
            settings, "limits.max_frame", f"must not be over limits.max_message, {size.show(bounds.max_message)}"
        )
    for key in ("limits.max_unsent", "limits.max_held_bytes"):
        if settings.get(key) < bounds.max_message:
            raise _clash(settings, key, f"must not be under limits.max_message, {size.show(bounds.max_message)}")
    seen: dict[str, str] = {}
    for listener in settings.listeners():
        key, url = listener.key, str(listener.address)
        source = settings.sources.get(key, DEFAULT)
        if url in seen and not url.endswith(":0"):
            raise SettingError(f"{key} ({source}): {url} is the address of {seen[url]}")
        seen[url] = key
        if not settings.insecure and not settings.access and not is_loopback(listener.address):
            raise SettingError(
                f"{key} ({source}): {url} can be reached from other machines, and there is no access control; run "
                f"`polydomo access init`, `polydomo keys new server`, `polydomo keys new alice`, then "
                f"`polydomo up --listen {url} --access access.toml`; or listen on 127.0.0.1, [::1] or ipc://; "
                "or trust the network with --insecure"
            )


def _clash(settings: Settings, key: str, what: str) -> SettingError:
    value = KINDS[key].show(settings.get(key))
    return SettingError(f"{key} ({settings.sources.get(key, DEFAULT)}): {value} {what}")
