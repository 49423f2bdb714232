"""One catalog over bridges: the entries that other brokers announce, and those that this broker announces to them.

A broker announces its own entries, and those that it learned from others, with the brokers on the route, as it does with offers of services
(``cluster.bridging``). An entry is passed on over its shortest route, never to a broker on that route. When a bridge is lost, so are the
entries that it announced. Only a broker's own entries expire by silence: the broker where a service registered decides.

What another broker announces is information: it cannot replace an entry of this broker, the broker never connects to an address in it, and
it needs the right of the bridge (``register``, carried) for its name.
"""

import json
from itertools import islice

from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.guard.access import Access
from polydomo.broker.guard.rules import REGISTER
from polydomo.broker.identity import identity
from polydomo.broker.reserved_names import is_reserved
from polydomo.broker.state import State
from polydomo.limits import (
    CATALOG_SHARE,
    COST_ENTRY,
    ENTRIES_PER_TURN,
    MAX_BROKER_ADDRESS,
    MAX_CATALOG_BYTES,
    MAX_CATALOG_INFO,
    MAX_SERVICES,
    WORK_OFFER,
)
from polydomo.model import peer_json
from polydomo.model.records import Path, Session, Worker
from polydomo.protocols.dbp.info import wrong_name
from polydomo.protocols.dbp.session import host_of

ANY_HOST = ("tcp://0.0.0.0:", "tcp://[::]:", "tcp://*:")


class BridgedEntry:
    """A service that is registered at another broker."""

    __slots__ = ("address", "info", "path", "shown", "text")

    def __init__(self, path: Path, address: str, info: "dict[str, object]", text: str) -> None:
        self.path = path  # the brokers on the route, the nearest first; it is registered at the last one
        self.address = address  # of that broker, as it names it
        self.info = info
        self.text = text  # ``info`` as JSON
        broker = {"identity": path[-1].decode(), "address": address, "hops": len(path)}
        self.shown = json.dumps({**info, "broker": broker})  # with its broker named

    @property
    def cost(self) -> int:
        return COST_ENTRY + 4 * len(self.text)


class Announcement:
    """What a bridge was told about a service."""

    __slots__ = ("address", "path", "text")

    def __init__(self, path: Path, address: str, text: str) -> None:
        self.path = path
        self.address = address
        self.text = text


class BridgedEntries:
    def __init__(self, state: State, access: Access, catalog: Catalog) -> None:
        self._state = state
        self._access = access
        self._catalog = catalog
        self.learned: dict[Worker, dict[str, BridgedEntry]] = {}  # bridge -> the entries that it announced
        self.by_name: dict[str, dict[Worker, BridgedEntry]] = {}
        self.pending: dict[Worker, dict[str, None]] = {}  # bridge -> services about which it may have to be told
        self._told: dict[Worker, dict[str, Announcement]] = {}
        self._bytes: dict[Worker, int] = {}

    # --- bridges come and go

    def opened(self, worker: Worker) -> None:
        if not worker.session.carries_catalog():
            return
        self.learned[worker] = {}
        self._told[worker] = {}
        self._bytes[worker] = 0
        self.pending[worker] = dict.fromkeys([*self._catalog.active_entries(), *self.by_name])

    def lost(self, worker: Worker) -> None:
        learned = self.learned.pop(worker, {})
        self._told.pop(worker, None)
        self._bytes.pop(worker, None)
        self.pending.pop(worker, None)
        for name in learned:
            self._remove(worker, name)

    # --- what other brokers announce

    def announced(self, worker: Worker, name: bytes, path: Path, address: bytes, content: bytes) -> None:
        """A service is registered at another broker; an empty path: not any more."""
        learned = self.learned.get(worker)
        if learned is None:
            return
        session = worker.session
        session.link.charge(WORK_OFFER * (1 + len(self.learned)) + (len(content) >> 6))
        text = name.decode(errors="replace")
        entry = self._read(session, text, path, address, content)
        old = learned.get(text)
        size = self._bytes[worker] - (len(old.text) if old is not None else 0)
        if entry is not None and not self._has_room(worker, text, size + len(entry.text)):
            entry = None
        if old is not None:
            session.kept_bytes -= old.cost
            self._bytes[worker] = size
        if entry is None:
            if old is not None:
                del learned[text]
                self._remove(worker, text)
            return
        session.kept_bytes += entry.cost
        self._bytes[worker] = size + len(entry.text)
        learned[text] = entry
        self.by_name.setdefault(text, {})[worker] = entry
        self.changed(text)

    def _read(self, session: Session, name: str, path: Path, address: bytes, content: bytes) -> BridgedEntry | None:
        """None for what is not believed: a wrong name or route, a name outside the bridge's rights, or information over the limit."""
        tuning = self._state.tuning
        if not path or len(path) > tuning.bridge_hops or identity(self._state) in path or wrong_name(name):
            return None
        if not session.is_sibling and (
            is_reserved(name.encode())
            or (tuning.dbp_names and name not in tuning.dbp_names)
            or self._access.denial(session, REGISTER, name)
        ):
            return None
        if len(content) > 4 * MAX_CATALOG_INFO or len(address) > MAX_BROKER_ADDRESS:
            return None
        try:
            info = peer_json.read(content)
        except ValueError:
            return None
        if not isinstance(info, dict):
            return None
        info["name"] = name
        text = json.dumps(info)
        if len(text) > MAX_CATALOG_INFO:
            return None
        return BridgedEntry(path, _reachable(address.decode(errors="replace"), path, session), info, text)

    def _has_room(self, worker: Worker, name: str, size: int) -> bool:
        """Whether the bridge may have ``size`` bytes of entries, and one of this name. One bridge cannot use up the room of the others."""
        if worker.session.is_sibling:
            return True
        others = sum(self._bytes.values()) - self._bytes[worker]
        known = name in self.by_name or len(self.by_name) < MAX_SERVICES
        return known and size <= MAX_CATALOG_BYTES * CATALOG_SHARE and others + size <= MAX_CATALOG_BYTES

    def _remove(self, worker: Worker, name: str) -> None:
        entries = self.by_name.get(name)
        if entries is not None and entries.pop(worker, None) is not None:
            if not entries:
                del self.by_name[name]
            self.changed(name)

    def rights_changed(self) -> None:
        """Forgets what a bridge may not announce any more, and tells each what it may know now."""
        for worker, learned in self.learned.items():
            session = worker.session
            if session.is_sibling:
                continue
            for name in [name for name in learned if self._access.denial(session, REGISTER, name)]:
                self.announced(worker, name.encode(), (), b"", b"")
            self.pending[worker] = dict.fromkeys([*self._catalog.active_entries(), *self.by_name, *self._told[worker]])

    # --- what this broker announces

    def changed(self, name: str) -> None:
        """The service was registered, changed, left or was lost, here or elsewhere."""
        for worker in self._told:
            self.pending.setdefault(worker, {})[name] = None

    def end_turn(self) -> None:
        """Tells the bridges of changes, some in each turn: a new bridge learns of a large catalog in steps."""
        for worker in list(self.pending):
            names = self.pending[worker]
            if not worker.session.can_announce():
                continue
            for name in list(islice(names, ENTRIES_PER_TURN)):
                del names[name]
                self._tell(worker, name)
            if not names:
                del self.pending[worker]

    def has_more_work(self) -> bool:
        return any(worker.session.can_announce() for worker in self.pending)

    def _tell(self, worker: Worker, name: str) -> None:
        told = self._told[worker]
        now = self._to_tell(worker, name)
        before = told.get(name)
        if now is None:
            if before is not None:
                del told[name]
                worker.session.withdraw_entry(name.encode())
        elif before is None or (before.path, before.address, before.text) != (now.path, now.address, now.text):
            told[name] = now
            worker.session.announce_entry(name.encode(), now.path, now.address.encode(), now.text.encode())

    def _to_tell(self, asking: Worker, name: str) -> Announcement | None:
        """The entry over the shortest route that does not pass the other broker; None if there is none, or if it may not know it."""
        session = asking.session
        if not self._access.may_know(session, name.encode()):
            return None
        here = identity(self._state)
        own = self._catalog.active(name)
        if own is not None:
            return Announcement((here,), self._state.address, own.text)
        best: BridgedEntry | None = None
        for worker, entry in self.by_name.get(name, {}).items():
            if session.is_sibling and worker.session.is_sibling:
                continue  # all processes of a broker are joined to each other
            if worker is asking or session.peer_identity in entry.path:
                continue
            if best is None or len(entry.path) < len(best.path):
                best = entry
        if best is None or len(best.path) >= self._state.tuning.bridge_hops:
            return None
        return Announcement((here, *best.path), best.address, best.text)

    # --- look-ups

    def find(self, name: str) -> BridgedEntry | None:
        """The entry over the shortest route; of several, the one that was announced first."""
        best: BridgedEntry | None = None
        for entry in self.by_name.get(name, {}).values():
            if best is None or len(entry.path) < len(best.path):
                best = entry
        return best

    def check_invariants(self) -> None:
        """For tests: checks that redundant state is consistent."""
        for worker, learned in self.learned.items():
            assert worker.alive
            assert self._bytes[worker] == sum(len(entry.text) for entry in learned.values())
            assert worker.session.kept_bytes == sum(entry.cost for entry in learned.values())
            assert all(self.by_name[name][worker] is entry for name, entry in learned.items())
        assert sum(map(len, self.by_name.values())) == sum(map(len, self.learned.values()))
        assert set(self._told) == set(self._bytes) == set(self.learned) >= set(self.pending)


def _reachable(address: str, path: Path, session: Session) -> str:
    """A broker that listens on all interfaces does not know the address at which others reach it: for a neighbour, it is the bridge's."""
    if len(path) == 1 and not session.is_sibling and address.startswith(ANY_HOST):
        host = host_of(session.link.peer)
        return f"tcp://{f'[{host}]' if ':' in host else host}:{address.rpartition(':')[2]}"
    return address
