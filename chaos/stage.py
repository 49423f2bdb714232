"""The stage: two brokers (``polydomo up``) with a bridge between them, a route for every actor, and the actors. All are processes that
are restarted when they die. *The* broker is the near one; the far one has one service and one worker.
"""

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import raw
from chaos.calls import FAR
from chaos.proxy import Network
from polydomo.client.catalog import AsyncCatalog
from polydomo.errors import PolydomoError
from polydomo.keys import write_pair
from polydomo.protocols import registry
from tests.certificates import Authority

ROOT = Path(__file__).parent.parent
LIBRARY = tuple(registry.names())
STRANGERS = ("pyzmq-mdp1", "pyzmq-mdp2", "pynng-memo", "http", "websocket")
ENCRYPTED = ("curve", "tls", "pyzmq-curve")  # MDX of the library with CURVE and inside TLS; MDP/0.1 of pyzmq with CURVE
CLIENTS = (*LIBRARY, "blocking", *STRANGERS, *ENCRYPTED)
POOL = "pool"  # DCP of the library, with functions that run in processes
WORKERS = (*LIBRARY, *STRANGERS, *ENCRYPTED, POOL)
ONE_CONNECTION = ("mdx", "dcp", "emqp")  # protocols whose workers hold several calls at a time
KEYS = "CHAOS_KEYS"  # the environment variable that names the directory with keys and certificates
ACCESS = """
[server]
curve = "server.key_secret"
tls = { cert = "server.pem", key = "server.pem", ca = "ca.pem" }
anonymous = true
[principals.peer]
curve = "peer.key"
certificate = "CN=peer"
[[allow]]
who = ["anonymous"]
call = true
offer = true
publish = true
subscribe = true
register = true
inspect = true
[[allow]]
who = ["peer"]
call = true
offer = true
"""
OWN_SERVICES = 4  # that a worker of the library offers: echo, slow, stream, poison
START_TIME = 120.0  # for a process that shares a busy machine
# How the errors begin that a broker logs because its disk is full, or it may open no file.
FULL = (
    "cannot write the journal",
    "journal rows dropped",
    "the last rows of the journal could not be written",
    "the job store is not available",
)
BALLAST = "ballast"
WATCH = 0.1  # seconds between checks for processes that have died


@dataclass
class Load:
    """The load on the broker, and the timeouts of its peers."""

    lanes: int = 3  # calls open at a time, of each client
    rate: float = 25.0  # calls a second, of each client
    seats: int = 2  # calls that each worker serves at a time, of each of its services
    timeout: float = 4.0  # of each call
    beat: float = 0.5  # of every protocol that has one
    crowd: int = 200  # idle peers


class Actor:
    """A process that is restarted, as a new incarnation, whenever it dies."""

    process: subprocess.Popen[bytes]
    frozen = False

    def __init__(self, stage: "Stage", role: str, kind: str, url: str, words: list[str]) -> None:
        self.stage = stage
        self.role = role
        self.kind = kind
        self.name = f"{role}-{kind}"
        self.url = url
        self.words = words
        self.incarnation = 0
        self.odd: list[str] = []  # incarnations that ended by something other than SIGKILL or SIGTERM

    def start(self) -> None:
        self.incarnation += 1
        name = f"{self.name}.{self.incarnation}"
        record = self.stage.directory / f"{name}.record"
        self.log = self.stage.directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "chaos.actors", self.role, self.kind, self.url, name, str(record)]
                + ["--seed", str(self.stage.dice.randrange(1 << 30)), *self.words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": "src", KEYS: str(self.stage.keys)},
            )

    def look(self) -> None:
        """Restarts it if it has died."""
        if self.process.poll() is not None:
            if self.process.returncode != -signal.SIGKILL:
                self.odd.append(f"{self.name}.{self.incarnation} ended with status {self.process.returncode}")
            self.frozen = False
            self.start()

    def handles(self, number: signal.Signals) -> bool:
        """Whether it has a handler for the signal, or has ended. One that was restarted a moment ago may still load its modules."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return True
        caught = next((line for line in status.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
        return self.process.poll() is not None or bool(int(caught.split()[1], 16) >> (number - 1) & 1)

    def descendants(self) -> list[int]:
        """The processes that its own ones started: of a pool, those that run functions."""
        try:
            return [grandchild for child in children(self.process.pid) for grandchild in children(child)]
        except OSError:
            return []  # one of them has just ended

    def send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.frozen = number == signal.SIGSTOP or (self.frozen and number != signal.SIGCONT)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass
class Ended:
    """A finished run of the broker."""

    status: int
    asked: bool


class Broker:
    """``polydomo up``. After a kill it restarts at the same port, with a short delay."""

    process: subprocess.Popen[bytes]
    port = 0
    back_at = 0.0  # when it will be restarted

    def __init__(self, name: str, directory: Path, data: Path, load: Load, *words: str) -> None:
        self.name = name
        self.directory = directory
        self.data = data
        self.load = load
        self.words = words
        self.runs = 0
        self.ended: list[Ended] = []
        self.asked = False  # the test stops it

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def up(self) -> bool:
        return self.process.poll() is None

    def start(self) -> None:
        load = self.load
        beat = f"{load.beat:g}s"
        words = [f"--{name}-beat={beat}" for name in ("mdp", "mdx", "dcp", "emqp", "dbp")]
        words += [
            "--beats-missed=4",
            "--queue-expiry=3s",
            "--memo-queue-expiry=3s",
            "--memo-idle=1s",
            "--busy-timeout=6s",
        ]
        words += ["--limits-handshake-time=3s", "--limits-max-unsent=8MiB", "--limits-max-message=3MiB", "--grace=5s"]
        words += [
            "--dbp-broadcast=off",
            "--journal-level=messages",
            f"--journal-name={self.name}",
            "--journal-roll-seconds=1s",
        ]
        words += [f"--bridge-beat={beat}", *self.words]
        self.runs += 1
        self.asked = False
        self.log = self.directory / f"{self.name}.{self.runs}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYDOMO_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "polydomo", "up", "--listen", f"tcp://127.0.0.1:{self.port}"]
                + ["--data", str(self.data), "--log-json", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "PYTHONPATH": str(ROOT / "src")},
            )

    def entries(self) -> list[dict[str, Any]]:
        """The log of this run so far."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    async def ready(self) -> None:
        end = time.monotonic() + START_TIME
        while not any(entry["message"] == "ready" for entry in self.entries()):
            if not self.up or time.monotonic() > end:
                raise RuntimeError(f"the broker did not start: {self.log.read_text(errors='replace')[-2000:]}")
            await asyncio.sleep(0.02)
        place = next(entry["address"] for entry in self.entries() if entry["message"] == "listening")
        self.port = int(place.rpartition(":")[2])

    def send(self, number: signal.Signals) -> None:
        if self.up:
            self.asked = self.asked or number in (signal.SIGKILL, signal.SIGTERM)
            self.process.send_signal(number)

    def look(self, dice: random.Random) -> None:
        if self.up:
            return
        if not self.back_at:
            self.ended.append(Ended(self.process.returncode, self.asked))
            self.back_at = time.monotonic() + dice.random()
        elif time.monotonic() >= self.back_at:
            self.back_at = 0.0
            self.start()

    def memory(self, name: str = "VmRSS") -> int:
        """In bytes; ``VmHWM`` is the maximum so far. 0 if the process is not running."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
        return 0

    def files(self) -> int:
        with contextlib.suppress(OSError):
            return len(os.listdir(f"/proc/{self.process.pid}/fd"))
        return 0

    def limit(self, kind: int, soft: int | None) -> None:
        """Lowers a limit of the running process; None: restores the maximum."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            hard = resource.prlimit(self.process.pid, kind)[1]
            resource.prlimit(self.process.pid, kind, (hard if soft is None else soft, hard))

    def complaints(self) -> list[str]:
        """The errors that every run logged."""
        found = []
        for run in range(1, self.runs + 1):
            for line in (self.directory / f"{self.name}.{run}.log").read_text(errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    found.append(f"{self.name} {run}: {line}")  # a traceback that bypassed the log
                    continue
                if entry["level"] == "error" and not entry["message"].startswith(FULL):
                    found.append(f"{self.name} {run}: {line}")
        return found


@dataclass
class Stage:
    directory: Path
    load: Load
    dice: random.Random
    data: Path
    small_disk: bool = False  # ``data`` is a separate file system that can be filled
    actors: dict[str, Actor] = field(default_factory=dict)

    async def open(self) -> None:
        self.network = Network(self.dice)
        load = self.load
        self.far = Broker("far", self.directory, self.data / "far", load)
        self.far.start()
        await self.far.ready()
        bridge = await self.network.route("bridge", self.far.address)
        access = self._make_keys()
        words = (f"--bridge-to={bridge.url}", f"--access={access}")
        self.broker = Broker("broker", self.directory, self.data / "near", load, *words)
        self.broker.start()
        await self.broker.ready()
        common = ["--timeout", f"{load.timeout:g}", "--beat", f"{load.beat:g}"]
        for kind in WORKERS:
            await self._cast("worker", kind, ["--lanes", str(load.seats), *common])
        for kind in CLIENTS:
            await self._cast("client", kind, ["--lanes", str(load.lanes), "--rate", f"{load.rate:g}", *common])
        await self._cast("worker", "far", ["--lanes", str(load.seats), *common], self.far)
        datagrams = await self.network.datagram_route("catalog-dbp", self.broker.address)
        await self._cast("catalog", "dbp", ["--lanes", str(datagrams.port), *common])
        if load.crowd:  # connects directly to the broker: the proxy would need as many file descriptors again
            self._add("crowd", "idle", f"tcp://127.0.0.1:{self.broker.port}", ["--lanes", str(load.crowd), *common])
        self._watching = asyncio.create_task(self._watch())

    @property
    def keys(self) -> Path:
        return self.directory / "keys"

    def _make_keys(self) -> Path:
        """Keys and certificates of the broker and of the encrypted peers; returns the access file."""
        self.keys.mkdir(parents=True, exist_ok=True)
        for name in ("server", "peer"):
            write_pair(self.keys, name)
        authority = Authority(self.keys)
        authority.certificate("server", "DNS:localhost", "IP:127.0.0.1")
        authority.certificate("peer")
        file = self.keys / "access.toml"
        file.write_text(ACCESS)
        return file

    @property
    def brokers(self) -> list[Broker]:
        return [self.broker, self.far]

    async def _cast(self, role: str, kind: str, words: list[str], broker: Broker | None = None) -> None:
        route = await self.network.route(f"{role}-{kind}", (broker or self.broker).address)
        self._add(role, kind, route.url, words)

    def _add(self, role: str, kind: str, url: str, words: list[str]) -> None:
        actor = Actor(self, role, kind, url, words)
        actor.start()
        self.actors[actor.name] = actor

    async def _watch(self) -> None:
        while True:
            for broker in self.brokers:
                broker.look(self.dice)
            for actor in self.actors.values():
                actor.look()
            await asyncio.sleep(WATCH)

    def of(self, role: str) -> list[Actor]:
        return [actor for actor in self.actors.values() if actor.role == role]

    def heal(self) -> None:
        """Ends all faults."""
        self.network.heal()
        for actor in self.actors.values():
            actor.send(signal.SIGCONT)
        for broker in self.brokers:
            broker.send(signal.SIGCONT)
            for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
                broker.limit(kind, None)
        self.ballast.unlink(missing_ok=True)

    @property
    def ballast(self) -> Path:
        """The file that fills the disk."""
        return self.data / BALLAST

    async def ask(self, what: str, broker: Broker | None = None) -> Any:
        """The status of a broker; None if it does not answer."""
        try:
            return await raw.ask((broker or self.broker).address, what)
        except (OSError, ValueError):
            return None

    async def reaches_far(self) -> bool:
        """Whether a call over the bridge gets its reply."""
        try:
            return await raw.call(self.broker.address, FAR.encode(), b"probe.1.1|") == [b"probe.1.1|"]
        except OSError:
            return False

    async def in_catalog(self, name: str) -> bool:
        try:
            async with AsyncCatalog(f"tcp://127.0.0.1:{self.broker.port}") as catalog:
                return name in (await catalog.look())[0]
        except PolydomoError:
            return False

    @property
    def seats(self) -> dict[str, int]:
        """The expected number of registered workers of each protocol."""
        seats = self.load.seats
        wanted = {name: 1 if name in ONE_CONNECTION else seats for name in LIBRARY}
        for protocol in ("mdx", "mdp1", "mdp2"):
            wanted[protocol] *= OWN_SERVICES
        wanted["mdx"] *= 3  # NULL, CURVE and TLS
        wanted["dcp"] *= 2  # and the pool's
        for protocol in ("mdp1", "mdp2"):
            wanted[protocol] += 2 * seats  # pyzmq's, for echo and slow
        wanted["mdp1"] += 2 * seats  # pyzmq's with CURVE
        wanted["memo"] += seats  # pynng's
        wanted["http"] = 2 * seats + 2  # long polls, and a WebSocket for each service
        return wanted

    async def missing(self) -> dict[str, tuple[int, int]]:
        """Protocols with a wrong number of registered workers: the number found, and the expected one."""
        rows = await self.ask("workers") or []
        known = {protocol: sum(row["protocol"] == protocol for row in rows) for protocol in self.seats}
        return {name: (known[name], number) for name, number in self.seats.items() if known[name] != number}

    async def stop(self, role: str, patience: float) -> list[str]:
        """Sends SIGTERM to all actors of a role; returns the names of those that did not stop cleanly."""
        actors = self.of(role)
        end = time.monotonic() + patience
        for actor in actors:
            del self.actors[actor.name]  # it is not restarted
            while not actor.handles(signal.SIGTERM) and time.monotonic() < end:
                await asyncio.sleep(0.05)
            actor.send(signal.SIGTERM)
        while any(actor.process.poll() is None for actor in actors) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        late = []
        for actor in actors:
            if actor.process.poll() is None:
                late.append(f"{actor.name}.{actor.incarnation} has not ended")
                actor.process.kill()
                actor.process.wait()
            elif actor.process.returncode:
                late.append(f"{actor.name}.{actor.incarnation} ended with {actor.process.returncode}")
            late += actor.odd
        return late

    async def close(self) -> None:
        """Kills all processes that are left."""
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        left = [actor.process for actor in self.actors.values()]
        left += [broker.process for broker in self.brokers if broker.up]
        for process in left:
            process.kill()
            process.wait()
        await self.network.close()

    async def stop_brokers(self) -> list[str]:
        """Sends SIGTERM to the brokers; returns those that did not exit with status 0."""
        self._watching.cancel()
        odd = []
        for broker in self.brokers:
            broker.send(signal.SIGTERM)
            end = time.monotonic() + START_TIME
            while broker.up and time.monotonic() < end:
                await asyncio.sleep(0.05)
            if broker.up:
                odd.append(f"{broker.name} did not end on SIGTERM")
                broker.process.kill()
                broker.process.wait()
            elif broker.process.returncode:
                odd.append(f"{broker.name} ended on SIGTERM with status {broker.process.returncode}")
        return odd
