"""The faults: each is a coroutine that causes a fault, lasts a while, and repairs it.

A fault that cannot be applied (for example, because the broker is down already) returns None and is not counted.
"""

import asyncio
import contextlib
import errno
import os
import random
import resource
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chaos.calls import ECHO, SLOW
from chaos.proxy import BOTH, DOWN, UP, Route, Weather
from chaos.raw import SIGNATURE, SP_REQ, Peer, greeting
from chaos.stage import POOL, Actor, Stage

Harm = Callable[[Stage, random.Random], Awaitable[bool | None]]


@dataclass(frozen=True)
class Fault:
    name: str
    weight: float
    harm: Harm


FAULTS: list[Fault] = []
KILLS_BROKER = "broker killed"


def fault(name: str, weight: float = 1.0) -> Callable[[Harm], Harm]:
    def register(harm: Harm) -> Harm:
        FAULTS.append(Fault(name, weight, harm))
        return harm

    return register


async def pause(dice: random.Random, least: float, most: float) -> None:
    await asyncio.sleep(dice.uniform(least, most))


def pick_actor(stage: Stage, dice: random.Random, *roles: str) -> Actor:
    return dice.choice([actor for actor in stage.actors.values() if actor.role in roles])


def pick_route(stage: Stage, dice: random.Random) -> Route:
    return dice.choice(list(stage.network.routes.values()))


# --- processes --------------------------------------------------------------------------------------------------------------


@fault("client killed", 1.5)
async def kill_client(stage: Stage, dice: random.Random) -> None:
    pick_actor(stage, dice, "client").send(signal.SIGKILL)


@fault("worker killed", 3.0)
async def kill_worker(stage: Stage, dice: random.Random) -> None:
    pick_actor(stage, dice, "worker").send(signal.SIGKILL)


@fault("process of a pool killed", 2.0)
async def kill_pool_process(stage: Stage, dice: random.Random) -> bool:
    running = stage.actors[f"worker-{POOL}"].descendants()
    if not running:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(dice.choice(running), signal.SIGKILL)
    return True


@fault(KILLS_BROKER, 0.7)
async def kill_broker(stage: Stage, dice: random.Random) -> bool:
    if not stage.broker.up:
        return False
    stage.broker.send(signal.SIGKILL)
    return True


@fault("far broker killed", 0.7)
async def kill_far(stage: Stage, dice: random.Random) -> bool:
    if not stage.far.up:
        return False
    stage.far.send(signal.SIGKILL)
    return True


async def freeze(actor: Actor, dice: random.Random, most: float) -> None:
    actor.send(signal.SIGSTOP)
    try:
        await pause(dice, 0.2, most)
    finally:
        actor.send(signal.SIGCONT)


@fault("client frozen", 1.5)
async def freeze_client(stage: Stage, dice: random.Random) -> None:
    await freeze(pick_actor(stage, dice, "client", "catalog"), dice, 6.0)


@fault("worker frozen", 3.0)
async def freeze_worker(stage: Stage, dice: random.Random) -> None:
    await freeze(pick_actor(stage, dice, "worker"), dice, 6.0)


@fault("broker frozen", 1.0)
async def freeze_broker(stage: Stage, dice: random.Random) -> None:
    broker = dice.choice(stage.brokers)
    broker.send(signal.SIGSTOP)
    try:
        await pause(dice, 0.2, 3.0)
    finally:
        broker.send(signal.SIGCONT)


# --- the network ------------------------------------------------------------------------------------------------------------


async def under(route: Route, weather: Weather, dice: random.Random, most: float = 5.0) -> None:
    route.set(weather)
    try:
        await pause(dice, 0.3, most)
    finally:
        route.heal()


@fault("network slow", 2.0)
async def delay(stage: Stage, dice: random.Random) -> None:
    await under(pick_route(stage, dice), Weather(delay=dice.uniform(0.0, 0.3), jitter=dice.uniform(0.0, 0.5)), dice)


@fault("network throttled", 2.0)
async def throttle(stage: Stage, dice: random.Random) -> None:
    await under(pick_route(stage, dice), Weather(rate=dice.choice((1.0, 100.0, 2_000.0, 50_000.0))), dice)


@fault("network blocked", 2.0)
async def clog(stage: Stage, dice: random.Random) -> None:
    """Blocks bytes in one or both directions; then delivers everything that was sent."""
    held = dice.choice((frozenset((UP,)), frozenset((DOWN,)), frozenset(BOTH)))
    await under(pick_route(stage, dice), Weather(held=held), dice)


@fault("network black hole", 2.0)
async def black_hole(stage: Stage, dice: random.Random) -> None:
    swallowed = dice.choice((frozenset((UP,)), frozenset((DOWN,)), frozenset(BOTH)))
    await under(pick_route(stage, dice), Weather(swallowed=swallowed), dice, 8.0)


@fault("connections refused", 1.0)
async def refuse(stage: Stage, dice: random.Random) -> None:
    route = pick_route(stage, dice)
    route.cut()
    await under(route, Weather(refused=True), dice, 3.0)


@fault("connections cut", 3.0)
async def cut(stage: Stage, dice: random.Random) -> bool:
    return pick_route(stage, dice).cut() > 0


@fault("connections cut within a message", 2.0)
async def cut_within(stage: Stage, dice: random.Random) -> bool:
    return pick_route(stage, dice).cut_within(dice.choice((0, 1, 5, 30, 200))) > 0


@fault("connections half open", 2.0)
async def half_open(stage: Stage, dice: random.Random) -> bool:
    route = pick_route(stage, dice)
    found = route.half_open(dice.choice(BOTH))
    try:
        await pause(dice, 0.5, 5.0)
    finally:
        route.heal()
    return found > 0


@fault("network fault on the bridge", 2.0)
async def bridge(stage: Stage, dice: random.Random) -> None:
    """A random network fault on the route of the bridge."""
    route = stage.network.routes["bridge"]
    which = dice.randrange(4)
    if which == 0:
        route.cut()
    elif which == 1:
        await under(route, Weather(held=frozenset(BOTH)), dice)
    elif which == 2:
        await under(route, Weather(swallowed=frozenset((dice.choice(BOTH),))), dice)
    else:
        await under(route, Weather(delay=0.2, jitter=0.3), dice)


@fault("datagrams lost, repeated, reordered", 1.0)
async def datagrams(stage: Stage, dice: random.Random) -> None:
    for route in stage.network.datagrams.values():
        route.weather = Weather(drop=dice.random(), twice=dice.random(), late=dice.random())
    try:
        await pause(dice, 1.0, 6.0)
    finally:
        for route in stage.network.datagrams.values():
            route.heal()


# --- peers that misbehave ---------------------------------------------------------------------------------------------------


async def write_all(stage: Stage, pieces: list[bytes], gap: float, linger: float) -> bool:
    """Opens a connection and writes the pieces with a delay between them. Returns whether it was accepted."""
    try:
        _, writer = await asyncio.open_connection(*stage.broker.address)
    except OSError:
        return False
    try:
        for piece in pieces:
            if writer.is_closing():
                break
            writer.write(piece)
            await asyncio.sleep(gap)
        await asyncio.sleep(linger)
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return True


@fault("no handshake")
async def no_handshake(stage: Stage, dice: random.Random) -> bool:
    """Connections that send nothing, or only a part of the handshake."""
    hello = greeting(b"DEALER")
    silent = [write_all(stage, [hello[: dice.randrange(len(hello))]], 0.0, dice.uniform(1.0, 6.0)) for _ in range(20)]
    return any(await asyncio.gather(*silent))


@fault("one byte per second")
async def trickle(stage: Stage, dice: random.Random) -> bool:
    """Handshakes, and messages after one, sent one byte at a time."""
    request = greeting(b"DEALER") + bytes((1, 0, 1, 6)) + b"MDPC01" + bytes((1, 4)) + b"echo" + bytes((0, 255))
    slow = [write_all(stage, [SIGNATURE[i : i + 1] for i in range(8)], 1.0, 0.0)]
    slow += [write_all(stage, [request, *([b"\x00"] * 6)], 1.0, 0.0) for _ in range(5)]
    slow += [write_all(stage, [SP_REQ[i : i + 1] for i in range(6)], 1.0, 0.0)]
    return any(await asyncio.gather(*slow))


@fault("garbage")
async def garbage(stage: Stage, dice: random.Random) -> bool:
    """Random bytes, with and without a handshake before them."""
    heads = (b"", greeting(b"DEALER"), greeting(b"REQ"), SP_REQ, b"GET / HTTP/1.1\r\n", SIGNATURE)
    wild = [
        write_all(stage, [dice.choice(heads) + dice.randbytes(dice.choice((1, 10, 1000, 50_000)))], 0.0, 0.2)
        for _ in range(30)
    ]
    return any(await asyncio.gather(*wild))


@fault("a client that never reads")
async def never_reads(stage: Stage, dice: random.Random) -> bool:
    """A client that requests more than it could hold and reads nothing."""
    try:
        peer = await Peer.dial(stage.broker.address)
    except OSError:
        return False
    try:
        body = bytes(500_000)
        async with asyncio.timeout(dice.uniform(2.0, 6.0)):
            while True:
                peer.send(b"", b"MDPC01", ECHO.encode(), b"never-reads.1.1|", body)
                await peer.writer.drain()
                await asyncio.sleep(0.01)
    except (OSError, TimeoutError):
        pass
    finally:
        peer.close()
    return True


@fault("a worker with invalid replies", 1.5)
async def leaky_worker(stage: Stage, dice: random.Random) -> bool:
    """A worker that replies twice, replies to requests that it never got, and replies after it has left."""
    try:
        peer = await Peer.dial(stage.broker.address)
    except OSError:
        return False
    mdp1 = dice.random() < 0.5
    head, final, leave = ([b"", b"MDPW01"], b"\x03", b"\x05") if mdp1 else ([b"MDPW02"], b"\x04", b"\x06")
    seen: list[bytes] = []
    lie = [b"", b"leak.1.1|a reply that no client may get"]
    try:
        peer.send(*head, b"\x01", dice.choice((ECHO, SLOW)).encode())
        async with asyncio.timeout(dice.uniform(1.0, 4.0)):
            while True:
                frames = (await peer.receive())[len(head) :]
                if frames[0] != b"\x02":
                    continue
                for token in seen[-3:]:
                    peer.send(*head, final, token, *lie)  # the token of an earlier request
                guess = bytearray(frames[1])
                guess[dice.randrange(len(guess))] ^= 1 << dice.randrange(8)
                peer.send(*head, final, bytes(guess), *lie)
                if dice.random() < 0.5:
                    peer.send(*head, final, frames[1], *frames[2:])
                    peer.send(*head, final, frames[1], *lie)  # a second, different reply
                else:
                    peer.send(*head, leave)
                    peer.send(*head, final, frames[1], *lie)
                seen.append(frames[1])
    except (OSError, TimeoutError):
        pass
    finally:
        peer.close()
    return bool(seen)


@fault("a burst of connections")
async def storm(stage: Stage, dice: random.Random) -> bool:
    """Hundreds of connections that send a part of the handshake and disconnect."""
    hello = greeting(b"DEALER")
    found = False
    for _ in range(10):
        wave = [write_all(stage, [hello[: dice.randrange(len(hello) + 1)]], 0.0, 0.0) for _ in range(30)]
        found = any(await asyncio.gather(*wave)) or found
    return found


# --- what a machine runs out of ---------------------------------------------------------------------------------------------


@fault("no file descriptors left")
async def no_files(stage: Stage, dice: random.Random) -> bool:
    """The broker cannot open files for a while, while many peers connect."""
    broker = stage.broker
    open_files = broker.files()
    if not open_files:
        return False
    broker.limit(resource.RLIMIT_NOFILE, open_files + dice.randrange(4))
    try:
        stage.network.routes[pick_actor(stage, dice, "worker").name].cut()
        await asyncio.gather(
            *(write_all(stage, [greeting(b"DEALER")], 0.0, dice.uniform(0.5, 3.0)) for _ in range(20)),
            pause(dice, 0.5, 4.0),
        )
    finally:
        broker.limit(resource.RLIMIT_NOFILE, None)
    return True


@fault("disk full")
async def disk_full(stage: Stage, dice: random.Random) -> bool:
    """Fills the file system of the broker's journal."""
    if stage.small_disk:
        with contextlib.suppress(FileExistsError):
            fill(stage)
    else:
        stage.broker.limit(resource.RLIMIT_FSIZE, 0)
    try:
        await pause(dice, 1.0, 6.0)
    finally:
        stage.broker.limit(resource.RLIMIT_FSIZE, None)
        stage.ballast.unlink(missing_ok=True)
    return True


def fill(stage: Stage) -> None:
    file = os.open(stage.ballast, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for size in (1 << 20, 4096, 512):
            try:
                while True:
                    os.write(file, bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    finally:
        os.close(file)
