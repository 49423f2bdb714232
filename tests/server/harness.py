"""A broker in a process of its own, and real peers (pyzmq) in processes of theirs.

Nothing here waits for a guessed time: a test waits for a line of a log, for a message or for a condition, with a patience that only a
machine that has stopped would use up.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cli import shell
from tests.cli.shell import PATIENCE
from tests.server.raw import Raw, dealer, own_host

PEERS = Path(__file__).parent.parent / "peers"


def wait_for(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Waits until ``condition`` holds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not within {patience:g} s: {what}"
        time.sleep(0.005)


class Broker(shell.Broker):
    """``polydomo up``, ready. However a test uses it, it must leave with status 0, and without a fault of its own in the log.

    It sends no heartbeats unless the test sets an interval, so a test that stands still finds no heartbeat where it expects a request,
    and no worker that plays its part by hand is lost.
    """

    def __init__(
        self, data: Path, *words: str, listen: str = "tcp://127.0.0.1:0", limits: dict[str, float] | None = None
    ) -> None:
        if not any(word.startswith("--beat=") for word in words):
            limits = {"MDP_BEAT": 600.0, **(limits or {})}
        super().__init__(data, *words, listen=listen, limits=limits)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asked = self.process.poll() is None
        super().__exit__(kind, error, traceback)
        if kind is None and "url" in vars(self):
            if asked:
                assert self.process.returncode == 0
            assert not self.said, self.said  # a traceback that bypassed the log
            assert not [entry for entry in self.entries if entry["level"] == "error"]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("tcp://").rpartition(":")
        return host.strip("[]"), int(port)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.status() == -signal.SIGKILL

    def lines(self, message: str, **fields: object) -> list[dict[str, Any]]:
        """The lines of the log so far that say ``message``."""
        with self._news:
            return [entry for entry in self.entries if entry["message"] == message and fields.items() <= entry.items()]

    def complained(self) -> list[dict[str, Any]]:
        """The warnings so far."""
        with self._news:
            return [entry for entry in self.entries if entry["level"] not in ("debug", "info")]

    def complaint(self, peer: "Raw | Socket") -> dict[str, Any]:
        """Waits for the one line that complains about the peer."""
        self.wait_until(lambda: bool(self.complaints(peer)), f"complaint about {peer.host}")
        (line,) = self.complaints(peer)
        return line

    def complaints(self, peer: "Raw | Socket") -> list[dict[str, Any]]:
        return [line for line in self.complained() if f"//{peer.host}:" in line.get("peer", "")]

    def ask(self, what: str) -> Any:
        """A list or status from the broker: services, workers, requests, ..."""
        with dealer(self.address) as peer:
            return peer.ask(what)

    def workers(self, service: str) -> int:
        return sum(service in row["services"] for row in self.ask("workers"))

    def memory(self, name: str = "VmRSS") -> int:
        """In bytes; ``VmHWM`` is the most it ever was."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise AssertionError(name)

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


class Peer:
    """One of the programs in ``tests/peers``. Its output is read as it arrives; it is always stopped after the test."""

    def __init__(self, program: str, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PEERS / f"{program}.py"), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=shell.environment(),
        )
        self._printed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._printed.put(json.loads(line))
        self._printed.put(None)

    def next(self, patience: float = PATIENCE) -> Any:
        """The next thing it prints."""
        try:
            found = self._printed.get(timeout=patience)
        except queue.Empty:
            raise AssertionError(f"it printed nothing for {patience:g} s") from None
        assert found is not None, "it has ended"
        return found

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Closes its standard input, and waits for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                pass  # what it had not read


class Socket(Peer):
    """A pyzmq socket in another process."""

    def __init__(self, type: str, url: str, *words: str) -> None:
        self.host = ""
        if url.startswith("tcp://127."):
            self.host = own_host()
            url = f"tcp://{self.host}:0;{url.removeprefix('tcp://')}"
        super().__init__("puppet", type, url, *words)

    def send(self, *frames: bytes) -> None:
        self.say(json.dumps([frame.hex() for frame in frames]))

    def receive(self) -> list[bytes]:
        return [bytes.fromhex(frame) for frame in self.next()]

    def has_something(self) -> bool:
        """Something has come that was not received yet."""
        return not self._printed.empty()

    def call(self, service: bytes, *body: bytes) -> list[bytes]:
        """One MDP/0.1 call on a DEALER; nothing else may come before its answer."""
        self.send(b"", b"MDPC01", service, *body)
        empty, header, name, *reply = self.receive()
        assert (empty, header, name) == (b"", b"MDPC01", service)
        return reply


class Worker(Peer):
    """A pyzmq worker, registered. ``--name`` is the first frame of its replies."""

    def __init__(self, broker: Broker, service: str, *words: str) -> None:
        before = broker.workers(service)
        if not any(word.startswith(("--beat=", "--liveness")) for word in words):
            words = ("--liveness=1000", *words)
        super().__init__("worker", broker.url, service, *words)
        try:
            assert self.event("connected")
            wait_for(lambda: broker.workers(service) > before, "registration")
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def event(self, name: str) -> dict[str, Any]:
        """Waits for an event; others are passed over."""
        end = time.monotonic() + PATIENCE
        while True:
            found: dict[str, Any] = self.next(max(0.0, end - time.monotonic()))
            if found["event"] == name:
                return found
