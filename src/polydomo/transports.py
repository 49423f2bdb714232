"""Writing to transports of asyncio and of uvloop."""

import asyncio
from collections.abc import Callable, Iterable


def writer_of(transport: asyncio.WriteTransport) -> "Callable[[Iterable[bytes | bytearray | memoryview]], None]":
    """The function that writes pieces to a transport: ``writelines``, but not that of asyncio's own event loop, which before Python 3.12.9
    and 3.13.2 never says that bytes are unsent (CPython issue 127655): the output for a peer that does not read grew without limit."""
    if not type(transport).__module__.startswith("asyncio."):
        return transport.writelines
    return lambda pieces: transport.write(b"".join(pieces))
