"""What a broker does before it listens: checks the limit of open files, prepares its data directory, opens the UDP ports of DBP."""

import logging
import resource
import socket
from typing import TYPE_CHECKING

from polydomo import limits
from polydomo.errors import SettingError
from polydomo.server import logs
from polydomo.server.connections import beacon, listening
from polydomo.server.connections.udp import Heartbeats
from polydomo.server.logs import say
from polydomo.server.resources import MORE_FILES, open_files
from polydomo.wire.address import TCP, Address, is_loopback

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

LOG = logs.get("server")


def count_files(server: "BrokerServer") -> None:
    """Every connection is an open file: fewer files mean fewer connections. Raises SettingError if there would be next to none."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return
    least = limits.SPARE_FILES + min(limits.LEAST_CONNECTIONS, server.max_connections)
    if files < least:
        raise SettingError(f"this process may open only {files} files, but a broker needs {least}: {MORE_FILES}")
    spare = max(limits.SPARE_FILES, open_files())  # whoever started the broker may have left files open in it
    if files - spare < server.max_connections:
        server.max_connections = max(1, files - spare)
        asked = "limits.max_connections" in server.settings.sources or server.max_connections < limits.FEW_CONNECTIONS
        say(
            LOG,
            logging.WARNING if asked else logging.DEBUG,
            "the limit of open files allows fewer connections than limits.max_connections",
            max_connections=server.max_connections,
            open_files=files,
        )


async def open_datagrams(server: "BrokerServer", routers: "list[listening.Listening]") -> None:
    """Opens the beacon, and heartbeats by UDP beside every listener that speaks DBP over TCP. Raises SettingError."""
    dbp = server.settings.dbp
    routers = [bound for bound in routers if bound.address.kind == TCP]
    reached = [sock for bound in routers for sock in bound.sockets if sock.family == socket.AF_INET]
    if dbp.beacon != "off" and not reached:
        raise SettingError("dbp.beacon: needs a tcp:// listener on IPv4; add one with --listen")
    near = all(is_loopback(bound.address) for bound in routers)
    if dbp.udp and routers:
        to = beacon.place(dbp.broadcast, limits.DBP_BROADCAST_LOCAL if near else limits.DBP_BROADCAST)
        server.heartbeats = Heartbeats(server, to)
        for bound in routers:
            for sock in bound.sockets:
                await server.heartbeats.listen(sock)
    place = beacon.place(dbp.beacon, limits.BEACON_LOCAL if near else limits.BEACON)
    if place is None:
        return
    host, port = reached[0].getsockname()
    if near and not is_loopback(Address(TCP, place[0], place[1])):
        say(
            LOG,
            logging.WARNING,
            "the beacon reaches other machines, but they cannot reach the broker",
            address=str(routers[0].address),
        )
    try:
        server.beacon = beacon.Beacon(place, host, port, dbp.beacon_interval)
    except OSError as error:
        raise SettingError(f"dbp.beacon: cannot send to {place[0]}:{place[1]}: {listening.reason(error)}") from None
    server.beacon.start()


def close_datagrams(server: "BrokerServer") -> None:
    if server.beacon is not None:
        server.beacon.stop()
        server.beacon = None
    if server.heartbeats is not None:
        server.heartbeats.stop()
        server.heartbeats = None
