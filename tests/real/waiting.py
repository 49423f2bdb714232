"""Waiting for what real programs do."""

import socket
import time
from collections.abc import Callable

from tests.real.peers import PATIENCE


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


def free_port() -> int:
    """For a program that cannot choose a port itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
