"""Reads and checks the settings of a broker.

Settings come from a TOML file, from ``POLYDOMO_*`` variables and from flags; a later source overrides an earlier one. Each
key is declared once, here or in ``sections.py``, with its default, its kind and its help. A wrong value or an
unknown key raises a SettingError that names the key, its source, and what would be right.

    listen = ["tcp://127.0.0.1:5246"]        POLYDOMO_LISTEN=tcp://127.0.0.1:5246,ipc:///run/polydomo.sock
    [limits]
    max_message = "16MiB"                    POLYDOMO_LIMITS_MAX_MESSAGE=16MiB
"""
# ruff: noqa: RUF009 - setting() is field() with a check: its result is not shared between instances

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from polydomo import limits
from polydomo.broker.policy import Policy
from polydomo.errors import SettingError
from polydomo.model.listener_roles import ROLES, SHARED, Role
from polydomo.model.name_patterns import PatternMap
from polydomo.model.service_limits import LimitPatterns
from polydomo.model.tuning import Tuning
from polydomo.server.resources import available_memory
from polydomo.server.settings import services
from polydomo.server.settings.retired import RETIRED
from polydomo.server.settings.sections import (
    Bridge,
    Dbp,
    Dcp,
    DurableJobs,
    Emqp,
    Http,
    JournalSection,
    LimitsSection,
    Mdp,
    Mdx,
    Memo,
    Values,
    setting,
)
from polydomo.server.settings.toml_file import read_toml
from polydomo.server.settings.types import Choice, Count, Flag, Kind, ProcessCount, Seconds, Size, StoreUrl, Text, Urls
from polydomo.wire.address import Address, is_loopback, parse_url

PREFIX = "POLYDOMO_"
FILE_VARIABLE = "POLYDOMO_CONFIG"  # the file's path, like --config
DEFAULT = "default"

# Kubernetes sets such variables in every container if a service is called polydomo.
_NOT_OURS = re.compile(r"POLYDOMO_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_\w+)?)", re.ASCII)


@dataclass
class Listener:
    """An address to listen on, and the role of its peers."""

    address: Address
    role: Role = SHARED
    key: str = "listen"


class Described(NamedTuple):
    """One setting as displayed: ``value`` and ``default`` have the form used in variables."""

    key: str
    value: str
    default: str
    source: str
    help: str


class Notice(NamedTuple):
    """A value that has no effect, or that should be written in another way. The broker logs it as a warning."""

    message: str
    key: str
    source: str
    why: str

    def __str__(self) -> str:
        return f"{self.key} ({self.source}): {self.message}: {self.why}"


@dataclass
class Settings:
    """Every setting of a broker. Use ``load`` to create it; the constructor gives the defaults, unchecked."""

    listen: list[str] = setting(["tcp://127.0.0.1:5246"], Urls(), "addresses to listen on")
    data: str = setting("./polydomo-data", Text(), "data directory of the broker")
    store: str = setting(
        "sqlite",
        StoreUrl(),
        "where jobs are stored: sqlite (in the data directory), sqlite:PATH, postgresql://..., or off",
    )
    access: str = setting(
        "", Text(empty=True), "access file: which peers may connect, and their rights; empty: no access control"
    )
    insecure: bool = setting(False, Flag(), "allow listeners that other machines can reach without access control")
    processes: int = setting(
        limits.PROCESSES,
        ProcessCount(most=limits.MAX_PROCESSES),
        "broker processes behind the one address, each on its own core; auto: one for each core",
    )
    log_json: bool = setting(False, Flag(), "write logs as JSON lines")
    log_level: str = setting("info", Choice("debug", "info", "warning", "error"), "lowest level of messages to log")
    grace: float = setting(limits.GRACE, Seconds(least=0.0), "on SIGTERM, time for requests in flight to finish")
    attempts: int = setting(
        limits.ATTEMPTS, Count(most=1000), "maximum number of times a request is dispatched to a worker"
    )
    queue_expiry: float = setting(
        limits.QUEUE_EXPIRY, Seconds(), "how long a request waits for a service without workers"
    )
    unattended_expiry: float = setting(
        limits.UNATTENDED_EXPIRY,
        Seconds(),
        "the same for a request whose client does not wait for a reply (eMQP without reply-requested)",
    )
    busy_timeout: float = setting(
        limits.BUSY_TIMEOUT, Seconds(), "allowed silence of a busy worker that sends no heartbeats while busy"
    )
    beat: float = setting(
        0.0,
        Seconds(least=0.0, most=3600.0),
        "heartbeat interval of MDP, MDX, DCP and eMQP; 0: that of each protocol, 2.5 s, and 3 s for eMQP",
    )
    beats_missed: int = setting(
        limits.BEATS_MISSED,
        Count(most=1000),
        "heartbeat intervals without a message after which a worker is lost; eMQP: at least 5",
    )
    requeue_after_partial: bool = setting(
        False, Flag(), "requeue a lost request even if a partial reply has reached its client"
    )
    service: services.Options = setting({}, services.Services(), services.HELP)
    limits: LimitsSection = field(default_factory=LimitsSection)
    mdp: Mdp = field(default_factory=Mdp)
    mdx: Mdx = field(default_factory=Mdx)
    dcp: Dcp = field(default_factory=Dcp)
    dbp: Dbp = field(default_factory=Dbp)
    emqp: Emqp = field(default_factory=Emqp)
    memo: Memo = field(default_factory=Memo)
    http: Http = field(default_factory=Http)
    values: Values = field(default_factory=Values)
    bridge: Bridge = field(default_factory=Bridge)
    journal: JournalSection = field(default_factory=JournalSection)
    durable: DurableJobs = field(default_factory=DurableJobs)
    sources: dict[str, str] = field(default_factory=dict)  # key -> source of its value; absent for defaults
    notices: list[Notice] = field(default_factory=list)  # about values that have no effect

    def listeners(self) -> list[Listener]:
        """The shared listeners first, then those with a role, each enabled by its setting."""
        shared = [Listener(parse_url(url)) for url in self.listen]
        places = [(role, self.get(key)) for key, role in ROLES.items() if key]
        return shared + [Listener(parse_url(url), role, role.name) for role, url in places if url]

    def policy(self) -> Policy:
        """The settings of the broker core."""
        bounds = self.limits
        return Policy(
            attempts=self.attempts,
            queue_expiry=self.queue_expiry,
            unattended_expiry=self.unattended_expiry,
            requeue_after_partial=self.requeue_after_partial,
            max_outstanding=bounds.max_outstanding,
            max_queue=bounds.max_queue,
            max_held_bytes=bounds.max_held_bytes,
            max_client_bytes=bounds.max_client_bytes,
            max_services=bounds.max_services,
            max_memory=bounds.max_memory or available_memory() // limits.MEMORY_PART,
            max_message=bounds.max_message,
            max_values=self.values.max_topics,
            max_value_bytes=self.values.max_bytes,
            limits=LimitPatterns(self.by_service("running"), self.by_service("rate"), self.by_service("per")),
        )

    def tuning(self) -> Tuning:
        """The settings of the protocols."""
        bounds = self.limits
        plain = Tuning()
        return Tuning(
            mdp_beat=self.beat or plain.mdp_beat,
            mdx_beat=self.beat or plain.mdx_beat,
            dcp_beat=self.beat or plain.dcp_beat,
            emqp_beat=self.beat or plain.emqp_beat,
            beats_missed=self.beats_missed,
            emqp_beats_missed=max(self.beats_missed, plain.emqp_beats_missed),
            memo_queue_expiry=self.memo.queue_expiry,
            busy_timeout=self.busy_timeout,
            mdp_busy=self.mdp.busy,
            mdx_busy=self.mdx.busy,
            dcp_busy=self.dcp.busy,
            emqp_busy=self.emqp.busy,
            # above the first bound we would refuse requests that we asked for; above the second, bridges alone could fill a queue
            bridge_window=min(
                plain.bridge_window, bounds.max_outstanding, max(1, bounds.max_queue // limits.BRIDGE_SHARE)
            ),
            bridge_bytes=min(bounds.max_client_bytes, max(1, self.policy().max_held_bytes // limits.BRIDGE_SHARE)),
            bridge_accept=self.bridge.accept,
            bridge_topics=[topic.encode("utf-8", "surrogateescape") for topic in self.bridge.topics],
            max_backlog=self.values.max_unsent,
            skip_slow=self.values.slow == "skip",
            mdx_client_header=self.mdx.client_header,
            mdx_worker_header=self.mdx.worker_header,
            mdp2_dialects=self.by_service("dialect"),
            objectives=self.by_service("objective"),
            emqp_reply_always=self.emqp.reply == "always",
            dbp_silent=self.dbp.silent,
            dbp_names=list(self.dbp.names),
            dbp_require=list(self.dbp.require),
            dbp_registered_only=self.dbp.registered_only,
        )

    def by_service(self, option: str) -> PatternMap[Any]:
        """One option of ``[service."PATTERN"]``, for all patterns that set it."""
        return PatternMap({pattern: found[option] for pattern, found in self.service.items() if option in found})

    def chosen(self, option: str) -> list[str]:
        """The patterns that turn an option on."""
        return [pattern for pattern, found in self.service.items() if found.get(option)]

    def get(self, key: str) -> Any:
        section, _, name = key.rpartition(".")
        return getattr(getattr(self, section) if section else self, name)

    def describe(self) -> list[Described]:
        """Every key with its value, default, source and help text."""
        plain = Settings()
        rows = [
            Described(key, kind.show(self.get(key)), kind.show(plain.get(key)), self.sources.get(key, DEFAULT), help)
            for key, kind, help in _declared()
            if key != services.KEY or not self.service
        ]
        for pattern, found in self.service.items():
            for option, value in found.items():
                key, kind = services.key_of(pattern, option), services.OPTIONS[option]
                source = self.sources.get(key, DEFAULT)
                default = kind.show(services.DEFAULTS[option])
                rows.append(Described(key, kind.show(value), default, source, services.HELPS[option]))
        return rows


def load(
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    names: Mapping[str, str] | None = None,
) -> Settings:
    """Reads and validates all sources. None means that a flag was not given; an empty variable counts as not set. ``names`` has the flags
    whose name is not that of ``flag_of``, by key."""
    settings = Settings()
    moved: dict[str, tuple[Any, str]] = {}  # keys that are options of services now; a later source replaces the value
    environ = environ or {}
    from_flag = file is not None
    path = file if from_flag else environ.get(FILE_VARIABLE) or None
    if path is not None:
        place = "flag --config" if from_flag else f"variable {FILE_VARIABLE}"
        for key, value in _flatten(read_toml(Path(path), place), f"file {path}"):
            _put(settings, key, value, f"file {path}", moved)
    variables = {variable_of(key): key for key in ACCEPTED}
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name != FILE_VARIABLE and not _NOT_OURS.fullmatch(name):
            if name not in variables:
                known = [variable_of(key).removeprefix(PREFIX) for key in KINDS]
                raise SettingError(
                    f"variable {name}: unknown setting{_suggest(name.removeprefix(PREFIX), known, PREFIX)}"
                )
            if text:
                _put(settings, variables[name], text, f"variable {name}", moved)
    for key, value in (flags or {}).items():
        if value is not None:
            name = (names or {}).get(key) or flag_of(key)
            if key not in ACCEPTED:
                raise SettingError(f"flag {name}: unknown setting{_suggest(key, KINDS)}")
            _put(settings, key, value, f"flag {name}", moved)
    for key, (value, source) in moved.items():
        _move(settings, key, value, source)
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


_ORDER = ("file", "variable", "flag")  # of sources; a later one counts more
KINDS: dict[str, Kind[Any]] = {key: kind for key, kind, _ in _declared()}
ACCEPTED = (*KINDS, *RETIRED, *services.MOVED)  # in files, variables and flags
_SECTIONS = {key.partition(".")[0] for key in ACCEPTED if "." in key}


def _flatten(table: dict[str, object], source: str) -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if name in _SECTIONS:
            if not isinstance(value, dict):
                raise SettingError(f"{name} ({source}): must be a table, [{name}]")
            for inner, inner_value in value.items():
                yield _known(f"{name}.{inner}", source), inner_value
        elif isinstance(value, dict) and name not in KINDS:
            sections = sorted({key.partition(".")[0] for key in KINDS if "." in key})
            known = difflib.get_close_matches(name, sections, 1)
            hint = (
                f"; did you mean [{known[0]}]?"
                if known
                else f"; the sections are {', '.join(f'[{section}]' for section in sections)}"
            )
            raise SettingError(f"[{name}] ({source}): unknown section{hint}")
        else:
            yield _known(name, source), value


def _known(key: str, source: str) -> str:
    if key not in ACCEPTED:
        raise SettingError(f"{key} ({source}): unknown setting{_suggest(key, KINDS)}")
    return key


def _suggest(name: str, known: Collection[str], prefix: str = "") -> str:
    """The closest known name. A correct name in the wrong section also matches."""
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


def _put(settings: Settings, key: str, value: object, source: str, moved: dict[str, tuple[Any, str]]) -> None:
    if key in RETIRED:
        settings.notices.append(Notice("setting has no effect any more", key, source, RETIRED[key]))
        return
    try:
        read = (services.MOVED[key].kind if key in services.MOVED else KINDS[key]).read(value)
    except ValueError as error:
        raise SettingError(f"{key} ({source}): {error}, not {_shown(value)}") from None
    except SettingError as error:
        raise SettingError(f"{key} ({source}): {error}") from None
    if key in services.MOVED:
        moved[key] = read, source
        return
    settings.sources[key] = source
    if key == services.KEY:  # each option of each pattern is a value of its own
        for pattern, found in read.items():
            settings.service.setdefault(pattern, {}).update(found)
            settings.sources.update({services.key_of(pattern, option): source for option in found})
        return
    section, _, name = key.rpartition(".")
    setattr(settings.get(section) if section else settings, name, read)


def _move(settings: Settings, key: str, value: Any, source: str) -> None:
    """Takes a key of an earlier version as options of services. A source that counts more has the last word."""
    _, option, translate = services.MOVED[key]
    values = translate(value)
    for pattern, translated in values.items():
        own = services.key_of(pattern, option)
        if _ORDER.index(settings.sources.get(own, "file").split()[0]) <= _ORDER.index(source.split()[0]):
            if own in settings.sources and settings.sources[own].split()[0] == source.split()[0]:
                continue  # both are in the same place: the new form counts
            settings.service.setdefault(pattern, {})[option] = translated
            settings.sources[own] = source
    advice = services.advice(option, values, source.startswith("file"))
    settings.notices.append(Notice("setting has moved to the options of services", key, source, advice))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _check(settings: Settings) -> None:
    """Checks settings against each other. A default adapts to an explicit value; two explicit values must be consistent."""
    bounds = settings.limits
    if "limits.max_unsent" not in settings.sources:
        bounds.max_unsent = max(bounds.max_unsent, bounds.max_message * 5 // 2)
    if "limits.max_held_bytes" not in settings.sources:
        bounds.max_held_bytes = max(bounds.max_held_bytes, bounds.max_message * 2)
    if 0 < settings.beat < 0.01:
        raise _clash(settings, "beat", "must be 0, or from 10ms to 1h")
    size = Size()
    for key in ("limits.max_unsent", "limits.max_held_bytes"):
        if settings.get(key) < bounds.max_message:
            raise _clash(settings, key, f"must not be smaller than limits.max_message, {size.show(bounds.max_message)}")
    seen: dict[str, str] = {}
    for listener in settings.listeners():
        key, url = listener.key, str(listener.address)
        source = settings.sources.get(key, DEFAULT)
        if url in seen and not url.endswith(":0"):
            raise SettingError(f"{key} ({source}): {url} is already used by {seen[url]}")
        seen[url] = key
        if not settings.insecure and not settings.access and not is_loopback(listener.address):
            raise SettingError(
                f"{key} ({source}): {url} can be reached from other machines, but access control is off; run "
                f"`polydomo access init`, `polydomo keys new server`, `polydomo keys new alice`, then "
                f"`polydomo up --listen {url} --access access.toml`; or listen on 127.0.0.1, [::1] or ipc://; "
                "or, on a trusted network, add --insecure"
            )


def _clash(settings: Settings, key: str, what: str) -> SettingError:
    value = KINDS[key].show(settings.get(key))
    return SettingError(f"{key} ({settings.sources.get(key, DEFAULT)}): {value} {what}")
