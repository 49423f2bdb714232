"""Which process of a broker this is, and what it listens on."""

import socket
from dataclasses import dataclass, field
from pathlib import Path

from polydomo.model.listener_roles import ROLES
from polydomo.server.connections import listening
from polydomo.server.settings.settings import Listener, Settings
from polydomo.wire.address import IPC

DBP = ROLES["dbp.listen"]


@dataclass
class ProcessPlan:
    """Which process of a broker this is. The default is a broker of one process."""

    index: int = 0
    count: int = 1
    directory: str = ""  # of the socket files that join the processes
    # From the ipc:// address to the file descriptor of its listening socket.
    inherited: "dict[str, int]" = field(default_factory=dict)

    def listeners(self, settings: Settings) -> "list[Listener]":
        """What this process listens on. The catalog is at process 0."""
        return [listener for listener in settings.listeners() if self.index == 0 or listener.role is not DBP]

    async def bind(self, listener: Listener) -> listening.Listening:
        """Raises SettingError."""
        address = listener.address
        if address.kind == IPC and str(address) in self.inherited:
            return listening.Listening(address, [socket.socket(fileno=self.inherited[str(address)])], own_file=False)
        return await listening.bind(address, self.count > 1)

    def socket_of(self, index: int) -> Path:
        return Path(self.directory) / f"{index}.sock"
