"""The interface of the directory to DBP sessions: services that register themselves, and those that workers offer over other protocols.
``broker.directory.Directory`` implements it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polydomo.model.records import Session


class DirectoryApi:
    def register(self, session: "Session", name: str, address: str, info: "dict[str, object]", interval: float) -> str:
        """Registers or replaces an entry. Returns "" or the reason for the rejection. ``interval`` 0: no heartbeats were agreed, and the
        entry does not expire. ``address`` is the peer's IP address."""
        raise NotImplementedError

    def update(self, session: "Session", name: str, address: str, changes: "dict[str, object]") -> str:
        """Updates an entry. Returns "" or the reason for the rejection."""
        raise NotImplementedError

    def begin_requests(self) -> None:
        """The answer to a registration or an update was sent: a service that takes requests may get the first one."""
        raise NotImplementedError

    def serve(self, session: "Session", name: str) -> str:
        """The connection to the address of a service that takes requests there is open. Returns "" or why it gets none."""
        raise NotImplementedError

    def heartbeat(self, name: str, address: str) -> bool:
        """A heartbeat of an entry. False if there is no such active entry at that address."""
        raise NotImplementedError

    def beats_by_udp(self, name: str) -> bool:
        """Whether the service sends heartbeats over UDP and has missed none. Then it also gets the broker's over UDP."""
        raise NotImplementedError

    def interval(self, name: str) -> float:
        """The agreed heartbeat interval of an active entry; 0 if there is none."""
        raise NotImplementedError

    def remove(self, name: str, address: str, why: str) -> bool:
        """Removes the entry. Returns False if there is no such active entry at that address."""
        raise NotImplementedError

    def lookup(self, name: str) -> "dict[str, object] | None":
        """The registration of an active service. For a service of another protocol: that protocol and the broker's own address."""
        raise NotImplementedError

    def all(self) -> "dict[str, dict[str, object]]":
        """All active services, by name."""
        raise NotImplementedError

    def text_of(self, name: str) -> str | None:
        """The same as JSON text."""
        raise NotImplementedError

    def with_functions(self, functions: "list[str]") -> "dict[str, str]":
        """The services of the catalog with one of these functions, as JSON by name; "images*" matches all that begin with "images"."""
        raise NotImplementedError

    def size(self) -> int:
        """The number of entries that ``with_functions`` compares."""
        raise NotImplementedError

    def page(self) -> bytes:
        """All active services as one JSON object by name. The text is shared by all clients."""
        raise NotImplementedError

    def first(self) -> str:
        """At most ``MAX_LISTED`` active services."""
        raise NotImplementedError
