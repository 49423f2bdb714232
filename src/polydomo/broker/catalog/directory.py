"""The directory: all services as DBP shows them, both those registered in the catalog and those that workers offer.

A registration cannot hide a service that workers offer, unless it comes from the address of one of these workers. The list of all services
is built once and shared by all clients; if it is long, at most once per ``DIRECTORY_INTERVAL``.
"""

import json
from itertools import islice

from polydomo.broker.catalog.bridged_entries import BridgedEntries, BridgedEntry
from polydomo.broker.catalog.changes import CatalogChanges
from polydomo.broker.catalog.service_workers import ServiceWorkers
from polydomo.broker.guard.access import Access
from polydomo.broker.guard.rules import REGISTER
from polydomo.broker.observe.schemas import Schemas
from polydomo.broker.state import State
from polydomo.limits import DIRECTORY_INTERVAL, DIRECTORY_SMALL, MAX_LISTED, WORK_OFFER
from polydomo.model.directory_api import DirectoryApi
from polydomo.model.records import Service, Session
from polydomo.protocols.dbp.info import has_function, takes_requests
from polydomo.protocols.dbp.session import host_of

Row = dict[str, object]


class Directory(DirectoryApi):
    def __init__(
        self,
        state: State,
        access: Access,
        changes: CatalogChanges,
        workers: ServiceWorkers,
        bridged: BridgedEntries,
        schemas: Schemas,
    ) -> None:
        self._state = state
        self._access = access
        self._catalog = changes.catalog
        self._changes = changes
        self._workers = workers
        self._bridged = bridged
        self._schemas = schemas
        self._page = b""
        self._made = float("-inf")  # when

    # --- registrations

    def register(self, session: Session, name: str, address: str, info: Row, interval: float) -> str:
        state = self._state
        session.link.charge(WORK_OFFER)
        refusal = self._access.denial(session, REGISTER, name)
        if refusal:
            return refusal
        refusal = self._refusal(name, address)
        if not refusal and takes_requests(info):
            refusal = self._workers.refusal(session, name)
        if not refusal:
            refusal = self._catalog.register(state.now, name, address, info, interval, session)
        self._changes.report()
        return refusal or self._follow(name, address)

    def update(self, session: Session, name: str, address: str, changes: Row) -> str:
        state = self._state
        refusal = self._access.denial(session, REGISTER, name)
        if refusal:
            return refusal
        session.link.charge(WORK_OFFER)
        if takes_requests(changes):
            refusal = self._workers.refusal(session, name)
        if not refusal:
            refusal = self._catalog.update(state.now, name, address, changes, session)
        self._changes.report()
        return refusal or self._follow(name, address)

    def _follow(self, name: str, address: str) -> str:
        """Registers or ends the worker of an entry that has changed. An entry whose worker is refused is removed."""
        entry = self._catalog.active(name)
        self._bridged.changed(name)
        refusal = self._workers.follow(entry) if entry is not None else ""
        if refusal:
            self.remove(name, address, refusal)
        return refusal

    def begin_requests(self) -> None:
        self._workers.begin()

    def serve(self, session: Session, name: str) -> str:
        entry = self._catalog.active(name)
        if entry is None or entry.requests is None:
            return f"{name} takes no requests"
        return self._workers.serve(session, entry)

    def heartbeat(self, name: str, address: str) -> bool:
        known = self._catalog.heartbeat(self._state.now, name, address)
        self._changes.report()
        return known

    def beats_by_udp(self, name: str) -> bool:
        return self._catalog.beats_by_udp(self._state.now, name)

    def interval(self, name: str) -> float:
        entry = self._catalog.active(name)
        return 0.0 if entry is None else entry.beat

    def remove(self, name: str, address: str, why: str) -> bool:
        known = self._catalog.remove(self._state.now, name, address, why)
        self._changes.report()
        return known

    # --- listings

    def lookup(self, name: str) -> Row | None:
        """The information about an active service."""
        text = self.text_of(name)
        found: Row | None = json.loads(text) if text is not None else None
        return found

    def text_of(self, name: str) -> str | None:
        """The same as JSON."""
        service = self._offered(name)
        entry = self._catalog.active(name)
        if entry is not None and (service is None or _comes_from(service, entry.address)):
            return entry.text
        elsewhere = self._bridged.find(name)
        if (
            elsewhere is not None
            and entry is None
            and (service is None or _is_registered_where_offered(service, elsewhere))
        ):
            return elsewhere.shown
        return None if service is None else self._text(name, service)

    def page(self) -> bytes:
        """All active services as a JSON object, by name."""
        now = self._state.now
        if len(self._page) > DIRECTORY_SMALL and now < self._made + DIRECTORY_INTERVAL:
            return self._page
        texts: dict[str, str] = {}
        for service in self._state.services.values():
            if service.workers or service.remote:
                try:
                    name = service.name.decode()
                except UnicodeDecodeError:
                    continue  # JSON cannot represent it
                texts[name] = self._text(name, service)
        for name in self._catalog.active_entries():
            entry = self._catalog.entries[name]
            offered = self._offered(entry.name)
            if offered is None or _comes_from(offered, entry.address):
                texts[entry.name] = entry.text
        for name in self._bridged.by_name:
            text = self.text_of(name)
            if text is not None:
                texts[name] = text
        page = ", ".join([f"{json.dumps(name)}: {text}" for name, text in texts.items()])
        self._page = b"{" + page.encode() + b"}"
        self._made = now
        return self._page

    def all(self) -> dict[str, Row]:
        """All active services, by name."""
        found: dict[str, Row] = json.loads(self.page())
        return found

    def first(self) -> str:
        """At most ``MAX_LISTED`` active services, as a JSON list."""
        found: dict[str, str] = {}
        for entry in islice(self._catalog.entries.values(), MAX_LISTED):
            text = self.text_of(entry.name)
            if text is not None:
                found[entry.name] = text
        for name in islice(self._bridged.by_name, MAX_LISTED - len(found)):
            text = self.text_of(name)
            if text is not None:
                found[name] = text
        for service in islice(self._state.services.values(), MAX_LISTED - len(found)):
            name = service.name.decode(errors="replace")
            text = self.text_of(name)
            if text is not None:
                found[name] = text
        return f"[{', '.join(found.values())}]"

    def with_functions(self, functions: "list[str]") -> "dict[str, str]":
        """The entries with one of these functions, of this broker and of others, as JSON by name: at most ``MAX_LISTED``."""
        found: dict[str, str] = {}
        for name in (*self._catalog.entries, *self._bridged.by_name):
            if len(found) >= MAX_LISTED:
                break
            if name in found:
                continue
            entry = self._catalog.active(name)
            elsewhere = self._bridged.find(name) if entry is None else None
            info = entry.info if entry is not None else elsewhere.info if elsewhere is not None else {}
            if has_function(info, functions):
                text = self.text_of(name)
                if text is not None:
                    found[name] = text
        return found

    def size(self) -> int:
        """The number of entries that a look-up by function compares."""
        return len(self._catalog.entries) + len(self._bridged.by_name)

    def _refusal(self, name: str, address: str) -> str:
        """Why a service may not register under this name from this address; "" if it may register."""
        service = self._offered(name)
        if service is not None and service.workers and not _comes_from(service, address):
            return f"{name} is offered by workers at another address"
        return ""

    def _offered(self, name: str) -> Service | None:
        """The service that workers or other brokers offer under this name."""
        service = self._state.services.get(name.encode("utf-8", "surrogatepass"))
        return service if service is not None and (service.workers or service.remote) else None

    def _text(self, name: str, service: Service) -> str:
        """A service that workers offer, as JSON."""
        protocols = {worker.session.protocol for worker in service.workers}
        if service.remote:
            protocols.add("bridge")
        row: Row = {
            "name": name,
            "protocol": ",".join(sorted(protocols)),
            "address": self._state.address,
            "workers": len(service.workers),
        }
        schema = self._schemas.find(service.name)
        if schema is None:
            return json.dumps(row)
        row["description"] = schema.description
        return f'{json.dumps(row)[:-1]}, "schema": {{"input": {schema.input_text}, "output": {schema.output_text}}}}}'


def _is_registered_where_offered(service: Service, entry: BridgedEntry) -> bool:
    """Whether the service has workers only at other brokers, and one of them is where the entry is registered: otherwise the entry could
    hide a service that it has nothing to do with."""
    return not service.workers and any(path[-1] == entry.path[-1] for path in service.remote.values())


def _comes_from(service: Service, address: str) -> bool:
    """Whether a worker of the service is at this address."""
    return any(host_of(worker.session.link.peer) == address for worker in service.workers)
