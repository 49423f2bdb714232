"""The catalog: services registered over DBP, with their addresses and heartbeats.

Pure state: time is an argument, and ``advance`` must be called at ``next_deadline``. Services that workers offer over the other protocols
are not in here; the broker adds them to listings.

    (none) --enlist--> registering --> ready --silence--> late --silence--> lost
                                       ready <---beat---- late
                                       ready, late --delist--> left
    lost, left --enlist--> registering; from any state, the same name at the same address replaces the entry
"""

import json
from heapq import heapify, heappop, heappush

from polydomo.limits import COST_ENTRY, DBP_LATE, MAX_CATALOG_BYTES, MAX_CATALOG_GONE, MAX_CATALOG_INFO, MAX_SERVICES
from polydomo.model.records import LATE, LEFT, LOST, READY, REGISTERING, Session
from polydomo.model.tuning import Tuning
from polydomo.protocols.dbp.info import (
    PublisherInfo,
    RequestsInfo,
    missing_fields,
    publisher,
    requests,
    timing,
    with_address,
    wrong_name,
)

ACTIVE = (READY, LATE)


class CatalogEntry:
    """One registered service, active or not."""

    def __init__(self, name: str, address: str, info: "dict[str, object]", size: int, beat: float, now: float) -> None:
        self.name = name
        self.address = address  # the IP address it registered from; only it may change, renew or remove the entry
        self.info = info  # as registered, with later updates
        self.size = size  # size of ``info`` as JSON
        self.text = ""  # ``info`` as JSON
        self.beat = beat  # heartbeat interval in seconds; 0: no heartbeats agreed, the entry never expires
        self.registered = now
        self.seen = now  # time of its last heartbeat
        self.state = REGISTERING
        self.since = now  # time of the last state change
        self.cause = ""  # cause of the last state change
        self.watch = 0  # number of its current entry in the catalog's heap; 0: none
        self.session: Session | None = None  # the connection that registered it last; may be closed
        self.requests: RequestsInfo | None = None  # where it takes requests; None: it takes none
        self.probed = float("-inf")  # when a datagram last triggered a probe of the service
        self.datagram = 0.0  # time of its last heartbeat over UDP; 0: never
        self.datagram_time = ""  # the time format in it


class Catalog:
    """All entries, by name."""

    def __init__(self, tuning: Tuning) -> None:
        self.tuning = tuning
        self.entries: dict[str, CatalogEntry] = {}
        self.publishers: dict[str, PublisherInfo | str] = {}  # publisher addresses of active services, or an error text
        self.at: dict[str, int] = {}  # number of active entries by the address that registered them
        self.callees: dict[str, RequestsInfo] = {}  # addresses of active services that are sent requests there
        self.dialled_version = 0  # version of ``publishers`` and ``callees``
        self.changed: list[CatalogEntry] = []  # entries whose state changed; the owner takes them from here
        self._gone: dict[str, None] = {}  # names of inactive entries, oldest first
        self._by_datagram: dict[str, None] = {}  # names of services that have sent a heartbeat over UDP
        self._bytes = 0  # total size of the info of active entries
        self._watch: list[tuple[float, int, CatalogEntry]] = []  # when to check an entry; an old number is stale
        self._count = 0

    # --- operations ----------------------------------------------------------------------------------------------------------

    def register(
        self,
        now: float,
        name: str,
        address: str,
        info: "dict[str, object]",
        beat: float,
        session: "Session | None" = None,
    ) -> str:
        """Registers or replaces an entry. Returns "" on success, otherwise the reason for the rejection."""
        wrong = wrong_name(name)
        if wrong:
            return wrong
        if self.tuning.dbp_names and name not in self.tuning.dbp_names:
            return f"{name} may not register: it is not in the setting dbp.names"
        if not beat and not self.tuning.dbp_silent:
            return "a registration must include its heartbeat interval"
        info = with_address(info, address)
        place = requests(info, address, session is not None and session.can_deliver())
        wrong = self._lacks(info)
        if isinstance(place, str) and place:
            wrong = place
        if wrong:
            return wrong
        old = self._active(name)
        if old is not None and old.address != address:
            return f"{name} is already registered from {old.address}"
        text, wrong = self._weigh(info, old)
        if wrong:
            return wrong
        size = len(text)
        if old is None and len(self.entries) - len(self._gone) >= MAX_SERVICES:
            return f"the catalog already has {MAX_SERVICES} services"
        if old is not None:
            self._bytes -= old.size
            old.watch = 0
        else:
            self.at[address] = self.at.get(address, 0) + 1
        self._gone.pop(name, None)
        if isinstance(place, RequestsInfo) and not beat:
            beat = self.tuning.dbp_beat  # otherwise a service that froze would keep its request for ever
        entry = CatalogEntry(name, address, info, size, beat, now)
        entry.session = session
        entry.requests = place if isinstance(place, RequestsInfo) else None
        entry.text = text
        self.entries[name] = entry
        self._bytes += size
        self._move(
            entry, READY, now, f"registered from {address}" if old is None else f"registered again from {address}"
        )
        self._watch_over(entry)
        return ""

    def update(
        self, now: float, name: str, address: str, changes: "dict[str, object]", session: "Session | None" = None
    ) -> str:
        """Updates an entry. Returns "" or the reason for the rejection. The name cannot change; a new heartbeat interval applies at
        once."""
        entry = self._active(name)
        if entry is None:
            return f"{name} is not registered"
        if entry.address != address:
            return f"{name} is registered from {entry.address}"
        info = with_address({**entry.info, **changes, "name": name}, address)
        beat = timing(info, self.tuning.dbp_beat)
        if beat is None:
            return "the heartbeat interval must be a number of seconds above 0"
        if not beat and not self.tuning.dbp_silent:
            return "a registration must include its heartbeat interval"
        registrant = entry.session
        if session is not None and (registrant is None or registrant.disconnected):
            registrant = session
        place = requests(info, address, registrant is not None and registrant.can_deliver())
        wrong = self._lacks(info)
        if isinstance(place, str) and place:
            wrong = place
        if wrong:
            return wrong
        text, wrong = self._weigh(info, entry)
        if wrong:
            return wrong
        size = len(text)
        entry.text = text
        self._bytes += size - entry.size
        entry.info = info
        entry.session = registrant
        entry.requests = place if isinstance(place, RequestsInfo) else None
        if entry.requests is not None and not beat:
            beat = self.tuning.dbp_beat
        self._dials(entry)
        entry.size = size
        entry.beat = beat
        self._beat(entry, now)
        self._watch_over(entry)
        return ""

    def heartbeat(self, now: float, name: str, address: str) -> bool:
        """Handles a heartbeat. Returns False if no active entry at that address has this name."""
        entry = self._active(name)
        if entry is None or entry.address != address:
            return False
        self._beat(entry, now)
        return True

    def udp_heartbeat(self, now: float, name: str, address: str, time: str) -> "CatalogEntry | None":
        """Handles a heartbeat over UDP: "it can keep a registered service alive only from its registered address". Returns None if it is
        ignored."""
        if not self.heartbeat(now, name, address):
            return None
        entry = self.entries[name]
        if entry.beat:
            entry.datagram = now
            entry.datagram_time = time
            self._by_datagram[name] = None
        return entry

    def beats_by_udp(self, now: float, name: str) -> bool:
        """Whether the service sends heartbeats over UDP and has not missed one. Then the broker also sends its heartbeats over UDP."""
        entry = self._active(name)
        return entry is not None and bool(entry.datagram) and now < entry.datagram + entry.beat * DBP_LATE

    def broadcast_interval(self) -> float:
        """The interval of the broker's UDP heartbeats: the shortest interval of the services that use UDP; 0 if there are none.

        Services that switched from UDP to TCP count too, because the broadcast shows them that UDP works again.
        """
        interval = 0.0
        for name in list(self._by_datagram):
            entry = self._active(name)
            if entry is None or not entry.datagram or not entry.beat:
                del self._by_datagram[name]
            elif not interval or entry.beat < interval:
                interval = entry.beat
        return interval

    def broadcast_times(self) -> "list[str]":
        """The time formats of the services that use UDP, each once. Called after ``broadcast_interval``."""
        return sorted({self.entries[name].datagram_time for name in self._by_datagram})

    def remove(self, now: float, name: str, address: str, why: str) -> bool:
        """Removes an entry. Returns False if no active entry at that address has this name."""
        entry = self._active(name)
        if entry is None or entry.address != address:
            return False
        self._retire(entry, LEFT, now, why)
        return True

    def memory(self) -> int:
        """Memory used by the entries. Their information is kept both as text and as objects."""
        return 4 * self._bytes + COST_ENTRY * len(self.entries)

    def lookup(self, name: str) -> "dict[str, object] | None":
        """The registration of an active service, as registered."""
        entry = self._active(name)
        return None if entry is None else entry.info

    def active_entries(self) -> "dict[str, dict[str, object]]":
        """All active services, by name."""
        return {name: entry.info for name, entry in self.entries.items() if entry.state in ACTIVE}

    def active(self, name: str) -> "CatalogEntry | None":
        return self._active(name)

    # --- time ----------------------------------------------------------------------------------------------------------------

    def registered_by(self, session: Session) -> list[str]:
        """The names of active services that a connection registered."""
        return [name for name, entry in self.entries.items() if entry.session is session]

    def next_deadline(self) -> "float | None":
        """When to call ``advance`` next. May be early, because heartbeats do not move the deadline until it is checked."""
        watch = self._watch
        while watch and watch[0][1] != watch[0][2].watch:
            heappop(watch)
        return watch[0][0] if watch else None

    def run_timers(self, now: float) -> None:
        """ "consider the other peer “disconnected” if no heartbeat arrives within some multiple of that interval (usually 3-5)" """
        self.changed = []
        while self._watch and self._watch[0][0] <= now:
            _, number, entry = heappop(self._watch)
            if number != entry.watch:
                continue
            silent = now - entry.seen
            if now >= self._lost_at(entry):
                self._retire(entry, LOST, now, f"no heartbeat for {silent:.1f} s")
                continue
            if entry.state == READY and now >= self._late_at(entry):
                self._move(entry, LATE, now, f"no heartbeat for {silent:.1f} s")
            self._watch_over(entry)

    def extend_deadlines(self, now: float, late: float) -> None:
        """The broker was suspended for this long. That time does not count as silence of services."""
        for entry in self.entries.values():
            entry.seen = min(now, entry.seen + late)

    def _late_at(self, entry: CatalogEntry) -> float:
        return entry.seen + entry.beat * DBP_LATE

    def _lost_at(self, entry: CatalogEntry) -> float:
        return entry.seen + entry.beat * self.tuning.beats_missed

    # --- state changes ----------------------------------------------------------------------------------------------------------

    def _active(self, name: str) -> "CatalogEntry | None":
        entry = self.entries.get(name)
        return entry if entry is not None and entry.state in ACTIVE else None

    def _dials(self, entry: CatalogEntry) -> None:
        """Updates the addresses of an entry that the broker connects to."""
        name = entry.name
        active = entry.state in ACTIVE
        place = publisher(entry.info, entry.address) if active else ""
        if place:
            self.publishers[name] = place
            self.dialled_version += 1
        elif self.publishers.pop(name, None) is not None:
            self.dialled_version += 1
        callee = entry.requests if active and entry.requests is not None and entry.requests.port else None
        if callee is None:
            if self.callees.pop(name, None) is not None:
                self.dialled_version += 1
        elif self.callees.get(name) != callee:
            self.callees[name] = callee
            self.dialled_version += 1

    def _move(self, entry: CatalogEntry, state: str, now: float, cause: str) -> None:
        entry.state = state
        self._dials(entry)
        entry.since = now
        entry.cause = cause
        self.changed.append(entry)

    def _beat(self, entry: CatalogEntry, now: float) -> None:
        entry.seen = now
        if entry.state == LATE:
            self._move(entry, READY, now, "heartbeats resumed")

    def _retire(self, entry: CatalogEntry, state: str, now: float, cause: str) -> None:
        """Marks the entry inactive. A bounded number of inactive entries is remembered."""
        self._move(entry, state, now, cause)
        entry.watch = 0
        self._bytes -= entry.size
        self.at[entry.address] -= 1
        if not self.at[entry.address]:
            del self.at[entry.address]
        self._gone[entry.name] = None
        if len(self._gone) > MAX_CATALOG_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            del self.entries[oldest]

    def _lacks(self, info: "dict[str, object]") -> str:
        """An error if a field of ``dbp.require`` is missing; otherwise ""."""
        fields = missing_fields(info, self.tuning.dbp_require)
        return f"a registration must contain {', '.join(fields)} (the setting dbp.require)" if fields else ""

    def _weigh(self, info: "dict[str, object]", old: "CatalogEntry | None") -> "tuple[str, str]":
        """``info`` as JSON, and an error if it is too large; otherwise ""."""
        text = json.dumps(info)
        size = len(text)
        if size > MAX_CATALOG_INFO:
            return "", f"service information of {size} bytes, the limit is {MAX_CATALOG_INFO}"
        if self._bytes - (old.size if old is not None else 0) + size > MAX_CATALOG_BYTES:
            return "", f"the catalog already has {MAX_CATALOG_BYTES} bytes of service information"
        return text, ""

    def _watch_over(self, entry: CatalogEntry) -> None:
        if not entry.beat:
            entry.watch = 0
            return
        self._count += 1
        entry.watch = self._count
        when = self._lost_at(entry)
        if entry.state == READY:
            when = min(when, self._late_at(entry))
        heappush(self._watch, (when, self._count, entry))
        if len(self._watch) > 2 * len(self.entries) + 64:  # mostly stale entries: a service registers again and again
            self._watch = [place for place in self._watch if place[1] == place[2].watch]
            heapify(self._watch)

    def check_invariants(self) -> None:
        """For tests: checks that redundant state is consistent."""
        active = {name for name, entry in self.entries.items() if entry.state in ACTIVE}
        assert active.isdisjoint(self._gone) and active | set(self._gone) == set(self.entries)
        assert sum(self.at.values()) == len(active) and {self.entries[name].address for name in active} == set(self.at)
        assert self._bytes == sum(self.entries[name].size for name in active)
        watched = [entry.name for _, number, entry in self._watch if number == entry.watch]
        assert len(watched) == len(set(watched))
        assert set(watched) == {name for name in active if self.entries[name].beat}
