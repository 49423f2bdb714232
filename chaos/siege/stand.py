"""One attack: its broker, the honest pair, the attack, and the measurements."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from chaos.siege.peers import Foe

ROOT = Path(__file__).parent.parent.parent
WITH_LIMITS = ROOT / "tests" / "with_limits.py"
MIB = 1 << 20
MAX_MEMORY = 256 * MIB  # ``limits.max_memory`` of the broker
ALLOWANCE = 150 * MIB  # for the interpreter, its libraries and copies in progress
START_TIME = 60.0
PATIENCE = 30.0  # seconds for what should happen at once
SETTLE = 0.3  # seconds of honest calls after the attack, to see its consequences
LOOK = 0.02  # seconds between two readings of the broker's memory

# With access control, the peers of the attacks are anonymous, and may do what a member may.
ACCESS = """
[server]
curve = "server.key_secret"
tls = { cert = "server.pem", key = "server.pem" }
anonymous = true
[principals.member]
token_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
[[allow]]
who = ["anonymous"]
call = true
offer = true
publish = true
subscribe = true
register = true
inspect = true
bridge = true
"""


@dataclass
class Outcome:
    """The effect of an attack on the honest client and on the broker's memory."""

    calls: int = 0
    longest: float = 0.0  # seconds, without waiting for a CPU
    longest_wall: float = 0.0
    median: float = 0.0
    memory: int = 0  # bytes, the maximum
    start_memory: int = 0  # before the attack began
    broken: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # problems that the attack itself found

    def breaches(self, stall: float, memory: int = MAX_MEMORY + ALLOWANCE) -> list[str]:
        found = []
        if self.broken:
            found.append(f"the honest client was disconnected: {self.broken}")
        if not self.calls:
            found.append("the honest client made no call")
        if self.longest > stall:
            found.append(f"the honest client waited {self.longest * 1000:.0f} ms; the limit is {stall * 1000:.0f} ms")
        if self.memory > memory:
            found.append(f"the broker used {self.memory // MIB} MiB; the limit is {memory // MIB} MiB")
        return found


class Stand:
    """A broker process with the honest pair beside it."""

    def __init__(
        self,
        full: bool = False,
        words: tuple[str, ...] = (),
        journal: bool = False,
        access: bool = False,
        code: str = "src",
        limits: tuple[str, ...] = (),
    ) -> None:
        """``access``: with access control and TLS. ``code``: the directory of the package, such as ``build/compiled``. ``limits``: other
        numbers of ``limits.py``, as NAME=VALUE."""
        self.full = full
        self.tls = access
        self._directory = tempfile.TemporaryDirectory(prefix="siege-")
        self.keys = Path(self._directory.name) / "keys"
        self.udp = free_udp_port()  # for a setting that needs one: {udp} in ``words``
        words = tuple(word.format(udp=self.udp) for word in words)
        self.log = Path(self._directory.name) / "log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYDOMO_")}
        if access:
            words = (*words, f"--access={_access_file(self.keys)}")
        if not full:  # a machine that gives the honest pair no time must not lose its worker
            words = ("--beats-missed=40", *words)
        limit = [f"--limits-max-memory={MAX_MEMORY}"] if has_setting("limits.max_memory") else []
        program = [str(WITH_LIMITS), *limits] if limits else ["-m", "polydomo"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, "up", "--listen", "tcp://127.0.0.1:0", "--log-json"]
                + ["--data", f"{self._directory.name}/data", "--journal", "requests" if journal else "off"]
                + [*limit, "--dbp-broadcast=off", *words],  # the last value of a flag counts
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "PYTHONPATH": str(ROOT / code)},
            )
        self.honest: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.top = 0
        self.notes: dict[str, Any] = {}
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.close()
            raise

    def entries(self) -> list[dict[str, Any]]:
        """The broker's log."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def _wait_for_port(self) -> int:
        end = time.monotonic() + START_TIME
        while True:
            entries = self.entries()
            if any(entry["message"] == "ready" for entry in entries):
                address = next(entry["address"] for entry in entries if entry["message"] == "listening")
                return int(address.rpartition(":")[2])
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the broker did not start: {self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(LOOK)

    def begin(self) -> None:
        """Starts the honest pair."""
        if self.honest is None:
            self.honest = subprocess.Popen(
                [sys.executable, "-m", "chaos.siege.honest", str(self.port), str(self.process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": "src"},
            )
            if _output(self.honest).readline() != b"ready\n":
                raise RuntimeError("the honest pair did not start")
        self._tell(b"begin\n")

    def _tell(self, word: bytes) -> None:
        assert self.honest is not None and self.honest.stdin is not None
        self.honest.stdin.write(word)
        self.honest.stdin.flush()

    def end(self) -> Outcome:
        """The measurements of the honest client since ``begin``."""
        assert self.honest is not None
        self._tell(b"end\n")
        told = json.loads(_output(self.honest).readline() or b'{"broken": "the process died"}')
        return Outcome(**told, memory=self.peak(), notes=self.notes)

    def memory(self, name: str = "VmRSS") -> int:
        """In bytes; ``VmHWM`` is the maximum so far. 0 if the process is not running."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith(name + ":"):
                    return int(line.split()[1]) * 1024
        return 0

    def peak(self) -> int:
        return self.memory("VmHWM")

    def watch(self, seconds: float) -> None:
        """Waits while the attack takes effect."""
        time.sleep(seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                return False
            time.sleep(LOOK)
        return True

    def ask(self, name: bytes) -> Any:
        """The answer of a built-in service, such as ``polydomo.status``."""
        foe = Foe.zmtp(self.port)
        try:
            foe.send(b"", b"MDPC01", name)
            return json.loads(foe.receive()[3])
        finally:
            foe.close()

    def stop(self, seconds: float) -> float:
        """Sends SIGTERM. Returns how long the broker took to exit; raises TimeoutError if it took too long."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the broker has not ended {seconds:g} s after SIGTERM") from None
        return time.monotonic() - start

    def close(self) -> None:
        for process in (self.honest, self.process):
            if process is not None:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()
        self._directory.cleanup()


def _output(process: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def _access_file(keys: Path) -> Path:
    from polydomo.keys import write_pair
    from tests.certificates import Authority

    write_pair(keys, "server")
    Authority(keys).certificate("server", "DNS:localhost", "IP:127.0.0.1")
    file = keys / "access.toml"
    file.touch(0o600)
    file.write_text(ACCESS)
    return file


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def has_setting(name: str) -> bool:
    from polydomo.server.settings.settings import Settings

    group, _, key = name.partition(".")
    return hasattr(getattr(Settings(), group), key)


@dataclass(frozen=True)
class Attack:
    """``prepare`` runs before the attack; ``strike`` returns connections that stay open until the end."""

    name: str
    what: str  # shown in the table
    strike: Callable[[Stand], list[Foe]]
    prepare: Callable[[Stand], list[Foe]] | None = None
    connections: int = 1
    words: tuple[str, ...] = ()  # settings of the broker
    check: Callable[[Stand], list[str]] | None = None  # further checks, at the end
    journal: bool = False
    access: bool = False  # it needs access control
    limits: tuple[str, ...] = ()  # NAME=VALUE: numbers of ``limits.py``

    @property
    def stall(self) -> float:
        """How long an honest call may take during the attack, in seconds."""
        return 0.25 if self.connections == 1 else 1.0


ATTACKS: dict[str, Attack] = {}


def attack(
    what: str,
    prepare: Callable[[Stand], list[Foe]] | None = None,
    connections: int = 1,
    words: tuple[str, ...] = (),
    check: Callable[[Stand], list[str]] | None = None,
    journal: bool = False,
    access: bool = False,
    limits: tuple[str, ...] = (),
) -> Callable[[Callable[[Stand], list[Foe]]], Callable[[Stand], list[Foe]]]:
    def add(strike: Callable[[Stand], list[Foe]]) -> Callable[[Stand], list[Foe]]:
        name = strike.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, what, strike, prepare, connections, words, check, journal, access, limits)
        return strike

    return add


@contextlib.contextmanager
def standing(found: Attack, full: bool, access: bool = False, code: str = "src") -> Iterator[Stand]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # inherited by the broker
    stand = Stand(full, found.words, found.journal, access or found.access, code, found.limits)
    try:
        yield stand
    finally:
        stand.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run(
    found: Attack, full: bool = False, access: bool = False, code: str = "src", stall: float = 0.0
) -> tuple[Outcome, list[str]]:
    """Runs one attack; returns the measurements and the problems found. ``stall``: instead of the attack's own limit, in seconds."""
    with standing(found, full, access, code) as stand:
        left: list[Foe] = found.prepare(stand) if found.prepare is not None else []
        stand.begin()
        start = stand.memory()
        left += found.strike(stand)
        stand.watch(SETTLE)
        outcome = stand.end()
        outcome.start_memory = start
        breaches = outcome.breaches(stall or found.stall)
        if stand.process.poll() is not None:
            breaches.append(f"the broker ended with status {stand.process.returncode}")
        elif found.check is not None:
            breaches += found.check(stand)
        if any(entry.get("level") == "error" for entry in stand.entries()):
            breaches += [f"it logged: {entry}" for entry in stand.entries() if entry.get("level") == "error"][:3]
        for foe in left:
            foe.close()
        return outcome, breaches
