"""A network of a test's own: a namespace with nothing but its own loopback, gone with the process that holds it.

For programs whose ports are fixed. Needs Linux, util-linux's ``unshare`` and ``nsenter``, and either root or a kernel that lets users have
namespaces; where that is missing, ``why_not`` says what.
"""

import functools
import os
import shutil
import subprocess
import sys
from types import TracebackType
from typing import Self

# Brings loopback up (what ``ip link set lo up`` does), says so, and holds the namespace until its standard input ends.
HOLD = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    request = struct.pack("16sh14x", b"lo", 0)
    flags = struct.unpack("16sh14x", fcntl.ioctl(sock, 0x8913, request))[1]
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))
print("up", flush=True)
sys.stdin.read()
"""


class Namespace:
    """``inside`` are the words to put in front of a command that shall run there."""

    def __init__(self) -> None:
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        self.holder = subprocess.Popen(
            ["unshare", *own, "--net", "--", sys.executable, "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.holder.stdout is not None and self.holder.stderr is not None
        if self.holder.stdout.readline() != "up\n":
            why = self.holder.stderr.read().strip()
            self.close()
            raise OSError(why or "unshare ended without a word")
        enter = ["--user", "--preserve-credentials"] if own else []
        self.inside = ("nsenter", f"--target={self.holder.pid}", *enter, "--net", "--")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()
        for pipe in (self.holder.stdin, self.holder.stdout, self.holder.stderr):
            assert pipe is not None
            pipe.close()


@functools.cache
def why_not() -> str:
    """Why there can be no namespaces here; "" if there can."""
    for program in ("unshare", "nsenter"):
        if sys.platform != "linux" or shutil.which(program) is None:
            return f"there is no {program} here"
    try:
        with Namespace() as namespace:
            done = subprocess.run([*namespace.inside, "true"], capture_output=True, text=True, timeout=30)
    except OSError as error:
        return f"no network namespace of its own: {error}"
    return "" if done.returncode == 0 else f"a namespace cannot be entered: {done.stderr.strip()}"
