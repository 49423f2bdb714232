"""How soon rows of the journal are in the tables, while ``polydomo pipeline stream`` runs.

    python -m bench.freshness --seconds 180 --rate 20

A broker with a worker and a client that asks ``--rate`` times a second; the stream beside it. A segment is closed when its
file appears; it is fresh in ``requests`` when its last request is there, in ``services`` when all requests up to it are
counted, and in the rest when the tables note it as taken in. The first minute is left out: the session starts then.
"""

import argparse
import asyncio
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench.compare import HERE, free_port, wait_for
from polydomo.client.aio import AsyncClient

UP = "{python} -m polydomo up --listen tcp://127.0.0.1:{port} --data {data} --log-level error --journal {level}"
WORK = "{python} -m polydomo work echo --to tcp://127.0.0.1:{port} -- cat"
STREAM = "{python} -m polydomo pipeline stream --journal {data}/journal --tables {tables}"
LOOK = 0.2  # seconds between two looks at the tables
WARM = 60.0
BOUNDS = {"requests": 15.0, "services": 15.0, "rest": 60.0}


@dataclass
class Seen:
    """One segment of requests: when it was closed, and what each table needs to contain it."""

    name: str
    closed: float
    last: int  # the number of its last row
    total: int  # requests in all segments up to this
    fresh: dict[str, float] = field(default_factory=dict)


def held(tables: Path, table: str, columns: list[str]) -> pa.Table | None:
    """The table as it stands; None if it is not there, or a file of it was replaced while it was read."""
    if not (tables / table).is_dir():
        return None
    try:
        return ds.dataset(tables / table, format="parquet").to_table(columns=columns)
    except (OSError, pa.ArrowException):
        return None


class Watch:
    """Checks the journal and the tables repeatedly."""

    def __init__(self, journal: Path, tables: Path) -> None:
        self.journal, self.tables = journal, tables
        self.segments: dict[str, Seen] = {}
        self.loads: list[float] = []
        self._total = 0
        self.cores = 0.0  # that the stream used, on average, after its first minute

    def look(self) -> None:
        now = time.time()
        self.loads.append(os.getloadavg()[0])
        for path in sorted(self.journal.glob("kind=requests/*/*/[!._]*.parquet"), key=lambda path: path.name):
            if path.name not in self.segments:
                self._total += pq.read_metadata(path).num_rows
                last = int(path.stem.rsplit("-", 1)[1])
                self.segments[path.name] = Seen(path.name, path.stat().st_ctime, last, self._total)
        waiting = [seen for seen in self.segments.values() if len(seen.fresh) < len(BOUNDS)]
        if not waiting:
            return
        requests = held(self.tables, "requests", ["seq"])
        newest = pc.max(requests["seq"]).as_py() or 0 if requests is not None else 0
        services = held(self.tables, "services", ["seconds", "requests"])
        counted = (
            pc.sum(services.filter(pc.field("seconds") == 3600)["requests"]).as_py() or 0 if services is not None else 0
        )
        noted: set[str] = set()
        for path in (self.tables / "_polydomo" / "units").glob("[!.]*.json"):
            noted |= {
                name.rsplit("/", 1)[1]
                for name in json.loads(path.read_text())["segments"]
                if name.startswith("requests/")
            }
        for seen in waiting:
            for name, there in (
                ("requests", newest >= seen.last),
                ("services", counted >= seen.total),
                ("rest", seen.name in noted),
            ):
                if there:
                    seen.fresh.setdefault(name, now)


def cpu_of(process: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(port: int, rate: float, stop: threading.Event) -> None:
    async with AsyncClient(f"tcp://127.0.0.1:{port}") as client:
        while not stop.is_set():
            await client.call("echo", b"hello")
            await asyncio.sleep(1 / rate)


def measure(seconds: float, rate: float, level: str, every: str) -> Watch:
    with tempfile.TemporaryDirectory() as scratch:
        data, tables = Path(scratch) / "data", Path(scratch) / "tables"
        port = free_port()
        words = {"python": shlex.quote(sys.executable), "port": port, "data": data, "tables": tables, "level": level}
        started: list[subprocess.Popen[bytes]] = []

        def start(command: str) -> subprocess.Popen[bytes]:
            started.append(
                subprocess.Popen(shlex.split(command.format(**words)), cwd=HERE.parent, stdout=subprocess.DEVNULL)
            )
            return started[-1]

        stop = threading.Event()
        client = threading.Thread(target=lambda: asyncio.run(ask(port, rate, stop)))
        try:
            wait_for(port, start(UP))
            start(WORK)
            client.start()
            watch = Watch(data / "journal", tables)
            end = time.monotonic() + seconds
            while not list((data / "journal").glob("kind=requests/*/*/[!._]*.parquet")):
                time.sleep(LOOK)
            stream = start(STREAM + (f" --every {every}" if every else ""))
            warm, used = 0.0, 0.0
            while time.monotonic() < end:
                watch.look()
                if not warm and time.monotonic() > end - seconds + min(WARM, seconds / 2):
                    warm, used = time.monotonic(), cpu_of(stream.pid)
                if stream.poll() is not None:
                    raise SystemExit("the stream has ended")
                time.sleep(LOOK)
            watch.cores = (cpu_of(stream.pid) - used) / (time.monotonic() - warm) if warm else 0.0
            return watch
        finally:
            stop.set()
            if client.ident is not None:
                client.join()
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
            for process in reversed(started):
                process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second")
    parser.add_argument("--level", default="requests", help="of the journal: requests or messages")
    parser.add_argument("--every", default="", help="the stream's interval, if not its default")
    given = parser.parse_args()
    began = time.time()
    watch = measure(given.seconds, given.rate, given.level, given.every)
    over = time.time()
    late = False
    counted = [seen for seen in watch.segments.values() if seen.closed >= began + WARM]
    print(f"load of the machine {min(watch.loads):.1f} to {max(watch.loads):.1f}; {len(counted)} segments")
    print(f"the stream used {watch.cores:.2f} cores")
    for name, bound in BOUNDS.items():
        # one that is not fresh yet is as late as it has waited, if that is too long
        lags = [
            seen.fresh.get(name, over) - seen.closed
            for seen in counted
            if name in seen.fresh or over - seen.closed > bound
        ]
        if not lags:
            print(f"{name}: nothing came")
            late = True
            continue
        late |= max(lags) > bound
        print(f"{name}: median {statistics.median(lags):.1f} s, worst {max(lags):.1f} s, of at most {bound:.0f} s")
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()
