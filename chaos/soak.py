"""``python -m chaos.soak --minutes 5``: one broker under steady mixed load and faults over time; growth fails the run.

Memory, file descriptors and latency are sampled every second and drawn into an SVG file. The broker itself is not killed, so that growth
shows in one process. After the warm-up, the medians of the second half are compared with those of the first, so that a spike caused by
a fault does not count as growth.
"""

import argparse
import asyncio
import random
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from chaos import report, run
from chaos.faults import FAULTS, KILLS_BROKER
from chaos.plot import Line, draw
from chaos.record import Tally
from chaos.report import MIB, Report
from chaos.stage import Load, Stage

WARM_UP = 0.25  # fraction of the time after which the broker has its working set: caches, buffers, Arrow's pool
TICK = 1.0
# By how much the second half may exceed the first, as a fraction and as a number: medians of a minute differ by this much without growth.
TOLERANCE = {"memory": (0.05, 6.0), "files": (0.10, 20.0), "latency": (1.0, 10.0)}


@dataclass
class Sample:
    at: float  # seconds since the beginning
    memory: float  # MiB
    files: float


@dataclass
class Watched:
    """The broker over time."""

    began: float = field(default_factory=time.time)
    samples: list[Sample] = field(default_factory=list)

    async def watch(self, stage: Stage) -> None:
        while True:
            if stage.broker.up:
                broker = stage.broker
                self.samples.append(Sample(time.time() - self.began, broker.memory() / MIB, float(broker.files())))
            await asyncio.sleep(TICK)


def growth(name: str, points: list[tuple[float, float]], seconds: float) -> tuple[str, bool]:
    """A line that compares the second half with the first, and whether the growth is too much.

    >>> growth("memory", [(float(t), 100.0 + t % 3) for t in range(100)], 100.0)
    ('memory: 101.0, then 101.0 (at most 112.1 allowed)', False)
    >>> growth("memory", [(float(t), 100.0 + t) for t in range(100)], 100.0)
    ('memory: 143.5, then 181.0 (at most 156.7 allowed)', True)
    """
    part, number = TOLERANCE[name]
    warm = seconds * WARM_UP
    middle = (warm + seconds) / 2
    early = [value for at, value in points if warm <= at < middle]
    late = [value for at, value in points if middle <= at <= seconds]
    if not early or not late:
        return f"{name}: too few samples", True
    before, after = statistics.median(early), statistics.median(late)
    allowed = before * (1 + part) + number
    return f"{name}: {before:.1f}, then {after:.1f} (at most {allowed:.1f} allowed)", after > allowed


def latencies(
    tally: Tally, began: float, seconds: float
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """The median and the 90th percentile of answered echo calls, in milliseconds, for every five seconds."""
    window = 5.0
    buckets: dict[int, list[float]] = {}
    for call in tally.calls.values():
        if call.service == "echo" and call.outcome == "reply" and 0 <= call.at - began <= seconds:
            buckets.setdefault(int((call.at - began) / window), []).append(call.took)
    middle, high = [], []
    for number, found in sorted(buckets.items()):
        at = (number + 0.5) * window
        found.sort()
        middle.append((at, found[len(found) // 2]))
        high.append((at, found[int(len(found) * 0.9)]))
    return middle, high


async def soak(stage: Stage, options: argparse.Namespace, tell: run.Tell) -> Report:
    seconds = options.minutes * 60.0
    found = Report(seconds=seconds, crowd=stage.load.crowd)
    await stage.open()
    try:
        found.peers = len(stage.actors)
        late = await run.until(lambda: run.well(stage, 0.0), run.REST)
        if late:
            raise RuntimeError(f"the stage is not ready: {'; '.join(late)}")
        tell(f"all peers are ready; {options.minutes:g} minutes of load and faults")
        watched = Watched()
        watching = asyncio.create_task(watched.watch(stage))
        await run.inject_faults(
            stage, random.Random(options.seed), seconds, found, {KILLS_BROKER}, tell, gap=options.gap
        )
        watching.cancel()
        await run.settle(stage, found)
    finally:
        await stage.close()
    found.judge(Tally.of(stage.directory))
    found.audited, breaches = report.audit(stage.data)
    found.must("broken rules of the journal", breaches)
    weigh(watched, found, seconds, Path(options.plot), tell)
    return found


def weigh(watched: Watched, found: Report, seconds: float, plot: Path, tell: run.Tell) -> None:
    middle, high = latencies(found.tally, watched.began, seconds)
    memory = [(sample.at, sample.memory) for sample in watched.samples]
    files = [(sample.at, sample.files) for sample in watched.samples]
    grown = []
    for name, points in (("memory", memory), ("files", files), ("latency", middle)):
        line, too_much = growth(name, points, seconds)
        tell(line)
        if too_much:
            grown.append(line)
    found.must("measures that grew", grown)
    plot.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        Line("memory of the broker, MiB", [memory]),
        Line("files the broker has open", [files]),
        Line("latency of an echo, ms: median, 90th percentile", [middle, high]),
    ]
    title = f"{options_text(found)}: {len(found.tally.calls):,} requests, {found.faults.total():,} faults"
    plot.write_text(draw(title, lines, seconds))
    tell(f"drawn to {plot}")


def options_text(found: Report) -> str:
    return f"soak of {found.seconds / 60:g} minutes, {found.peers} peers and {found.crowd:,} idle ones"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--crowd", type=int, default=500, help="idle peers")
    parser.add_argument("--gap", type=float, default=2.0, help="mean seconds between two faults")
    parser.add_argument("--plot", default="build/soak.svg", metavar="FILE")
    parser.add_argument("--keep", metavar="DIR", help="keep records, logs and journal in this directory")
    options = parser.parse_args()
    run.with_mounts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def tell(line: str) -> None:
        if not any(line.endswith(fault.name) for fault in FAULTS):  # do not print a line for each fault
            print(line, flush=True)

    with run.place(options.keep) as (directory, data, small):
        stage = Stage(directory, Load(crowd=options.crowd), random.Random(options.seed), data, small)
        found = asyncio.run(soak(stage, options, tell))
    print(found.table())
    sys.exit(1 if found.failed else 0)


if __name__ == "__main__":
    main()
