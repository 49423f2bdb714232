"""The search for the broker that has a given key, among all those whose beacons arrive.

Any program on the network can send a beacon and answer a handshake, but only a broker with the secret key can complete it. So no answer of
a program that has not proved the key ends the search: not an ERROR command, not a violation of the protocol, and not silence.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from polydomo.client import discovery
from polydomo.errors import AccessDenied, NotConnected, PolydomoError, ProtocolViolation
from polydomo.limits import DISCOVERY_PATIENCE
from polydomo.wire.address import Address

if TYPE_CHECKING:
    from polydomo.client.connection import Connection


async def search(
    at: Address, attempt: "Callable[[Address, float], Coroutine[Any, Any, Connection]]", timeout: float
) -> "Connection":
    """Tries the brokers one after the other. ``attempt`` gets an address and the remaining seconds, and raises NotConnected or
    ProtocolViolation.

    One that is silent for ``DISCOVERY_PATIENCE`` gives way to the next one, if there is one, and is tried again after it. Raises
    AccessDenied if a broker has denied access, or else NotConnected, when the time is over.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    failure: PolydomoError | None = None
    trial: asyncio.Task[Connection] | None = None
    result: Connection | None = None
    async with discovery.listening(at) as beacons:
        following = loop.create_task(beacons.new.get())
        try:
            while True:
                await asyncio.wait([following], timeout=max(deadline - loop.time(), 0))
                if not following.done() or (failure is not None and loop.time() >= deadline):
                    raise _summary(at, timeout, failure)
                found = following.result()
                following = loop.create_task(beacons.new.get())
                trial = loop.create_task(attempt(found, max(deadline - loop.time(), 0.001)))
                await asyncio.wait([trial], timeout=DISCOVERY_PATIENCE)
                if not trial.done():  # the trial ends at the deadline
                    await asyncio.wait([trial, following], return_when=asyncio.FIRST_COMPLETED)
                if not trial.done():
                    trial.cancel()
                    beacons.new.put_nowait(found)
                    continue
                try:
                    result = trial.result()
                    return result
                except (NotConnected, ProtocolViolation) as error:
                    if not isinstance(failure, AccessDenied):
                        failure = error
        finally:
            following.cancel()
            if trial is not None and result is None:
                _stop(trial)


def _stop(trial: "asyncio.Task[Connection]") -> None:
    trial.cancel()
    if trial.done() and not trial.cancelled() and trial.exception() is None:
        trial.result().discard()  # it has connected at the moment in which the search was cancelled


def _summary(at: Address, timeout: float, failure: PolydomoError | None) -> PolydomoError:
    if failure is None:
        return discovery.no_beacon(at, timeout)
    text = (
        f"{at}: no broker with this server key accepted the connection within {timeout:g} s; one answer was: {failure}"
    )
    if isinstance(failure, AccessDenied):
        return AccessDenied(failure.status, text)
    return NotConnected(text)
