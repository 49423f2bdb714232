"""``python -m chaos.run --seconds 60 --seed 1``: injects faults into real processes and prints the outcome of every call.

First load and faults, chosen by the seed; then all faults end, and everything must recover and become idle within a limit. The exit
status is 1 if a check fails. A seed fixes the sequence of faults; which messages they hit depends on the machine.
"""

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from chaos import report
from chaos.calls import CHAIN, ECHO, FAR, SLOW, STREAM
from chaos.faults import FAULTS, Fault
from chaos.record import Tally
from chaos.report import Report
from chaos.stage import Load, Stage

REST = 120.0  # default seconds within which everything must have recovered: several times the longest backoff, liveness limit and call
GAP = 0.7  # mean seconds between two faults
AGAIN = 10  # times that faults are tried again that found no target, for example because it was being restarted
STOP_TIME = 60.0  # seconds beyond the timeout of a call that an actor may take to stop
DISK = 512  # MiB of the broker's file system
MOUNTED = "CHAOS_MOUNTED"

Tell = Callable[[str], None]


async def inject_faults(
    stage: Stage, dice: random.Random, seconds: float, found: Report, without: set[str], tell: Tell, gap: float = GAP
) -> None:
    """Injects every kind of fault once, in random order, and then faults at random."""
    kinds = [fault for fault in FAULTS if fault.name not in without]
    first = dice.sample(kinds, len(kinds))
    gap = min(gap, seconds / (1.2 * len(kinds)))
    end = time.monotonic() + seconds
    tasks: list[asyncio.Task[None]] = []
    again = AGAIN
    while first or time.monotonic() < end:
        fault = first.pop() if first else dice.choices(kinds, [kind.weight for kind in kinds])[0]
        tell(f"{seconds - (end - time.monotonic()):7.1f} s  {fault.name}")
        tasks.append(asyncio.create_task(inject(stage, fault, random.Random(dice.random()), found)))
        await asyncio.sleep(min(dice.expovariate(1 / gap), 5 * gap))
        if not first and time.monotonic() >= end and again:  # a fault that found no target is tried again
            first = [kind for kind in kinds if not found.faults[kind.name]]
            again -= 1
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def inject(stage: Stage, fault: Fault, dice: random.Random, found: Report) -> None:
    found.faults[fault.name] += 1
    if await fault.harm(stage, dice) is False:
        found.faults[fault.name] -= 1


async def until(condition: Callable[[], Awaitable[list[str]]], seconds: float) -> list[str]:
    """Waits until ``check`` finds no problem; returns the problems that remain after ``seconds``."""
    end = time.monotonic() + seconds
    while wrong := await condition():
        if time.monotonic() > end:
            return wrong
        await asyncio.sleep(0.25)
    return []


async def well(stage: Stage, since: float) -> list[str]:
    """The peers that have not recovered: workers that are not registered, clients that got no reply since the faults ended."""
    down = [f"{broker.name} is down" for broker in stage.brokers if not broker.up]
    if down:
        return down
    missing = await stage.missing()
    wrong = [f"{have} of {want} workers of {name} are registered" for name, (have, want) in missing.items()]
    if not await stage.in_catalog("catalog-dbp"):
        wrong.append("the service with UDP heartbeats is not in the catalog")
    if not await stage.reaches_far():
        wrong.append("no call over the bridge succeeds")
    for actor in stage.of("client"):
        path = stage.directory / f"{actor.name}.{actor.incarnation}.record"
        if not answered(path, since):
            wrong.append(f"{actor.name} has had no reply")
    return wrong


def answered(path: Path, since: float) -> bool:
    """Whether the client of this record got a correct reply after ``since``."""
    if not path.exists():
        return False
    lines = path.read_text().splitlines()[-400:]
    return any(
        line.startswith("E ") and line.split(" ")[2] == "reply" and float(line.split(" ")[4]) > since for line in lines
    )


async def at_rest(stage: Stage) -> list[str]:
    wrong = []
    for broker in stage.brokers:
        status = await stage.ask("status", broker)
        if status is None:
            wrong.append(f"{broker.name} does not answer")
        else:
            wrong += [
                f"{broker.name}, {name}: {status[name]}" for name in ("open_requests", "held_bytes") if status[name]
            ]
    return wrong


async def settle(stage: Stage, found: Report, rest: float = REST) -> None:
    """After the last fault: repairs everything, checks that all peers recover, stops the load, and waits until the broker is idle."""
    stage.heal()
    since = time.time()
    found.must("peers that did not recover after the faults", await until(lambda: well(stage, since), rest))
    found.survivors = {f"{actor.name}.{actor.incarnation}" for actor in stage.of("client")}
    found.must("clients that did not stop cleanly", await stage.stop("client", stage.load.timeout + STOP_TIME))
    found.must("items that the idle broker still holds", await until(lambda: at_rest(stage), rest))
    for role in ("crowd", "catalog", "worker"):
        found.must("other actors that did not stop cleanly", await stage.stop(role, stage.load.timeout + STOP_TIME))
    found.memory, found.most_memory = stage.broker.memory(), stage.broker.memory("VmHWM")
    found.must("connections of disconnected peers that the broker keeps", await until(lambda: all_gone(stage), rest))
    found.files = stage.broker.files()
    found.must("unexpected exits of a broker", await stage.stop_brokers())
    for broker in stage.brokers:
        odd = [f"{broker.name}, status {end.status}" for end in broker.ended if not end.asked]
        found.must("unexpected exits of a broker", odd)
        found.must("errors in the log of a broker", broker.complaints())
        found.restarts += broker.runs - 1


async def all_gone(stage: Stage) -> list[str]:
    """Connections beyond that of the check itself and the bridge."""
    status = await stage.ask("status") or {"connections": -1}
    return [] if status["connections"] == 2 else [f"{status['connections']} connections"]


async def play(stage: Stage, options: argparse.Namespace, tell: Tell) -> Report:
    found = Report(seconds=options.seconds, crowd=stage.load.crowd)
    await stage.open()
    try:
        found.peers = len(stage.actors)
        tell(
            f"a broker at port {stage.broker.port} and another behind a bridge, {found.peers} actors; seed {options.seed}"
        )
        late = await until(lambda: well(stage, 0.0), options.rest)
        if late:
            raise RuntimeError(f"the stage is not ready: {'; '.join(late)}")
        tell(f"all peers are ready; injecting faults for {options.seconds:g} s")
        await inject_faults(stage, random.Random(options.seed), options.seconds, found, set(options.without), tell)
        tell("the faults end")
        await settle(stage, found, options.rest)
    finally:
        await stage.close()
    tell("reading the records and the journal")
    tally = Tally.of(stage.directory)
    found.judge(tally)
    answered = {call.service for call in tally.calls.values() if call.outcome == "reply"}
    found.must("services without any reply", sorted({ECHO, CHAIN, SLOW, STREAM, FAR} - answered))
    found.audited, breaches = report.audit(stage.data)
    found.must("broken rules of the journal", breaches)
    return found


@contextlib.contextmanager
def place(keep: str | None) -> Iterator[tuple[Path, Path, bool]]:
    """A directory, containing a separate file system for the broker if one can be mounted, and whether it could."""
    directory = Path(keep) if keep else Path(tempfile.mkdtemp(prefix="polydomo-chaos-"))
    data = directory / "data"
    data.mkdir(parents=True)
    small = MOUNTED in os.environ and mount(data)
    try:
        yield directory, data, small
    finally:
        if keep and small:
            shutil.copytree(data, directory / "data-kept")  # the mount ends with this process
        if small:
            subprocess.run(["umount", str(data)], check=False)
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def mount(path: Path) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "tmpfs", str(path)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def with_mounts() -> None:
    """Restarts this process in its own mount namespace if the system allows that; otherwise continues."""
    if MOUNTED in os.environ or shutil.which("unshare") is None:
        return
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode == 0:
        os.execvpe("unshare", ["unshare", "-Urm", *sys.orig_argv], {**os.environ, MOUNTED: "1"})


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for which faults are injected")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--crowd", type=int, default=Load.crowd, help="idle peers")
    parser.add_argument("--lanes", type=int, default=Load.lanes, help="open calls per client")
    parser.add_argument("--rate", type=float, default=Load.rate, help="calls per second and client")
    parser.add_argument("--beat", type=float, default=Load.beat, help="seconds between heartbeats")
    parser.add_argument("--rest", type=float, default=REST, help="seconds within which everything must recover")
    parser.add_argument(
        "--without", action="append", default=[], metavar="FAULT", choices=[fault.name for fault in FAULTS]
    )
    parser.add_argument("--keep", metavar="DIR", help="keep records, logs and journal in this directory")
    parser.add_argument("--quiet", action="store_true", help="print only the table")
    return parser


def main() -> None:
    options = arguments().parse_args()
    with_mounts()
    load = Load(lanes=options.lanes, rate=options.rate, crowd=options.crowd, beat=options.beat)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all processes are stopped on exit

    def tell(line: str) -> None:
        if not options.quiet:
            print(line, flush=True)

    with place(options.keep) as (directory, data, small):
        stage = Stage(directory, load, random.Random(options.seed), data, small)
        found = asyncio.run(play(stage, options, tell))
    print(found.table())
    sys.exit(1 if found.failed else 0)


if __name__ == "__main__":
    main()
