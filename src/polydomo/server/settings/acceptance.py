"""At which listeners a broker accepts anonymous peers and PLAIN: ``server.anonymous`` and ``server.plain`` of the access file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from polydomo.errors import SettingError
from polydomo.wire.address import TCP, Address, parse_url

LOCAL = "local"


@dataclass(frozen=True)
class Origin:
    """Where a connection came from."""

    local: bool  # from this machine: loopback or ipc
    listener: Address | None = None  # as in the settings; None in tests without listeners


@dataclass(frozen=True)
class Acceptance:
    """Accepted are connections of every listener, connections from this machine, or those of the listed listeners."""

    everywhere: bool = False
    local: bool = False
    listeners: tuple[Address, ...] = ()

    def accepts(self, origin: Origin) -> bool:
        if self.everywhere or (self.local and origin.local):
            return True
        return origin.listener is not None and any(names(listed, origin.listener) for listed in self.listeners)

    def __bool__(self) -> bool:
        """Whether any connection can be accepted."""
        return self.everywhere or self.local or bool(self.listeners)


NOWHERE = Acceptance()
EVERYWHERE = Acceptance(everywhere=True)


def names(listed: Address, listener: Address) -> bool:
    """Whether an address in the access file stands for this listener. Port 0 stands for every port, since the system chooses it."""
    return listed == (replace(listener, port=0) if listed.kind == TCP and listed.port == 0 else listener)


def read_acceptance(value: object, listeners: Sequence[Address] | None) -> Acceptance:
    """``value`` is true, false, "local" or a list of addresses, each of which must be one of ``listeners``; without ``listeners``, only
    their form is checked. Raises SettingError."""
    if isinstance(value, bool):
        return EVERYWHERE if value else NOWHERE
    if value == LOCAL:
        return Acceptance(local=True)
    if not isinstance(value, list) or not all(isinstance(url, str) for url in value):
        raise SettingError(
            f'must be true, false, "{LOCAL}" or a list of listeners, such as ["ipc:///run/polydomo.sock"]'
        )
    found = tuple(parse_url(url) for url in value)
    for url, address in zip(value, found, strict=True):
        if listeners is not None and not any(names(address, listener) for listener in listeners):
            known = ", ".join(dict.fromkeys(str(listener) for listener in listeners))
            raise SettingError(f"the broker does not listen on {url}; its listeners are {known}")
    return Acceptance(listeners=found)
