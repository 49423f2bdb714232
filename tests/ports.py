"""Ports of 127.0.0.1 for tests that cannot let the system choose one."""

import contextlib
import random
import socket
from collections.abc import Iterator

# The system takes ports of outgoing connections from a range above: on a busy machine, any free port of that range may be taken soon.
RANGE = range(20_000, 32_000)


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """For a program that has to be told its port."""
    for port in random.SystemRandom().sample(RANGE, len(RANGE)):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port is free in {RANGE}")


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
