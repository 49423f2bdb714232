"""UDP on loopback for tests: nothing here sends to any other network."""

import socket

from polydomo.server.settings.settings import Settings
from tests import ports

LOOPBACK = "127.255.255.255"  # the broadcast address of loopback
OFTEN = {"beacon_interval": 0.05}  # seconds


def free_port() -> int:
    """A free UDP port: beacons and broadcasts contain their port, so the system cannot choose it when they are sent."""
    return ports.free_port(socket.SOCK_DGRAM)


def listener(port: int) -> socket.socket:
    """Receives broadcasts to the port on loopback, as several programs may at once."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((LOOPBACK, port))
    sock.settimeout(60.0)
    return sock


def settings(beacon: int = 0, broadcast: int = 0) -> Settings:
    """Of a broker that beacons and broadcasts to these ports of loopback, and nowhere else."""
    made = Settings(listen=["tcp://127.0.0.1:0"])
    made.dbp.beacon = f"{LOOPBACK}:{beacon}" if beacon else "off"
    made.dbp.broadcast = f"{LOOPBACK}:{broadcast}" if broadcast else "off"
    return made
