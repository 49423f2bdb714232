"""CPU per HTTP call: the broker with an MDX worker beside uvicorn and starlette with the same echo, in one run.

``python bench/http.py [--calls 5000] [--rounds 8]`` prints microseconds of CPU per call of the server process alone, and the ratio.
The load comes from raw sockets with one request at a time each, so that it costs the same for both. Rounds alternate between the two
and the lowest figure of each counts, since other programs on the machine only add to it. The broker keeps its journal, unless
``--journal off``.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

CONNECTIONS = 16
BODY = b"x" * 100
READY_TIME = 30.0

ECHO = """
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def echo(request):
    return Response(await request.body(), media_type="application/octet-stream")

app = Starlette(routes=[Route("/v1/call/echo", echo, methods=["POST"])])
"""


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used, its threads included; in nanoseconds where the kernel counts them."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def one(port: int, calls: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = (
        b"POST /v1/call/echo HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: */*\r\nUser-Agent: bench\r\n"
        b"Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n" % (port, len(BODY))
    ) + BODY
    for _ in range(calls):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert await reader.readexactly(length) == BODY
    writer.close()
    await writer.wait_closed()


async def load(port: int, calls: int) -> None:
    await asyncio.gather(*(one(port, calls // CONNECTIONS) for _ in range(CONNECTIONS)))


def wait_for(port: int) -> None:
    deadline = time.monotonic() + READY_TIME
    while True:
        try:
            asyncio.run(one(port, 1))
            return
        except (OSError, AssertionError, asyncio.IncompleteReadError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def measure(process: "subprocess.Popen[bytes]", port: int, calls: int) -> float:
    """Microseconds of CPU per call."""
    wait_for(port)
    asyncio.run(load(port, max(CONNECTIONS, calls // 10)))  # warm
    before = cpu_of(process.pid)
    asyncio.run(load(port, calls))
    return (cpu_of(process.pid) - before) / calls * 1e6


def free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000, help="per round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--most", type=float, default=0.0, help="fail if the ratio is above this")
    parser.add_argument("--journal", choices=["off", "requests", "messages"], default="requests")
    options = parser.parse_args()
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "echo.py").write_text(ECHO)
        started: list[subprocess.Popen[bytes]] = []

        def start(*command: str) -> "subprocess.Popen[bytes]":
            process = subprocess.Popen([sys.executable, *command], cwd=directory, stderr=subprocess.DEVNULL)
            started.append(process)
            return process

        try:
            port, other = free_port(), free_port()
            url = f"tcp://127.0.0.1:{port}"
            broker = start("-m", "polydomo", "up", "--listen", url, "--data", directory, "--journal", options.journal)
            start("-m", "polydomo", "work", "echo", "--echo", "--to", url, "--concurrency", "4")
            uvicorn = start(
                "-m", "uvicorn", "--port", str(other), "--log-level", "error", "--no-access-log", "echo:app"
            )
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(options.rounds):
                ours.append(measure(broker, port, options.calls))
                theirs.append(measure(uvicorn, other, options.calls))
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()
    ratio = min(ours) / min(theirs)
    print(f"polydomo  {min(ours):6.1f} us of CPU per call")
    print(f"uvicorn   {min(theirs):6.1f} us of CPU per call (starlette, uvloop and httptools where installed)")
    print(f"ratio     {ratio:6.2f}")
    if options.most and ratio > options.most:
        sys.exit(f"the ratio is above {options.most}")


if __name__ == "__main__":
    main()
