"""``python -m sim.run --seeds 100 --first 1``: runs seeds and reports broken rules.

For a seed that fails, it prints the command that runs it again and the history of the request concerned.
"""

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat

from sim.options import Options, draw, override
from sim.world import World

HISTORY = 60  # rows of a history that are printed
CHUNK = 10  # seeds per chunk of work
YOUNG = 50_000  # objects between two garbage collections: worlds make little garbage, and collections took a tenth of the time


@dataclass
class Totals:
    seeds: int = 0
    events: int = 0
    submitted: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)
    output: list[str] = field(default_factory=list)  # lines to print

    def add(self, world: World) -> None:
        self.seeds += 1
        self.events += world.scheduler.done
        self.submitted += world.submitted
        self.steps += world.steps
        self.faults.update(world.faults)
        self.outcomes.update(world.outcomes)
        if world.breaches:
            self.failed.append(world.options.seed)

    def merge(self, other: "Totals") -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.submitted += other.submitted
        self.steps += other.steps
        self.faults.update(other.faults)
        self.outcomes.update(other.outcomes)
        self.failed += other.failed

    def report(self, seconds: float) -> str:
        lines = [
            f"{self.seeds} seeds in {seconds:.1f} s: {self.seeds / seconds:.1f} seeds/s, {self.events / seconds:,.0f} events/s",
            f"{self.events:,} events, {self.steps:,} broker steps watched, {self.submitted:,} requests checked",
            "outcomes: " + _counts(self.outcomes),
            f"{sum(self.faults.values()):,} faults: " + _counts(self.faults),
            f"failed: {', '.join(map(str, self.failed))}" if self.failed else "every seed held",
        ]
        return "\n".join(lines)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"


def run_seed(seed: int, changes: "list[str] | None" = None) -> World:
    options = draw(seed)
    for change in changes or []:
        override(options, change)
    world = World(options)
    world.run()
    return world


def describe(world: World, changes: list[str]) -> str:
    """The broken rules, the command that runs the seed again, and the history of the request."""
    options: Options = world.options
    again = " ".join(
        ["python -m sim.run --seeds 1 --first", str(options.seed), *(f"--option {change}" for change in changes)]
    )
    lines = [f"seed {options.seed} failed; run it again with: {again}"]
    lines.append(
        f"  clients {','.join(options.clients)}  workers {','.join(options.workers)}  faults {', '.join(options.faults())}"
    )
    for breach in world.breaches[:5]:
        lines.append(f"  {breach}")
        if breach.detail:
            lines += [f"    {line}" for line in breach.detail.rstrip().splitlines()]
    tag = next((breach.tag for breach in world.breaches if breach.tag), "")
    if tag:
        lines.append(f"  the history of {tag}:")
        lines += [f"    {line}" for line in world.record.history(tag, HISTORY)]
    else:
        lines.append("  the last rows of the record:")
        lines += [f"    {row[0]:10.4f}  {' '.join(map(str, row[1:]))}" for row in world.record.rows[-HISTORY // 2 :]]
    return "\n".join(lines)


def main(arguments: "list[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sim.run", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="override an option that the seed draws"
    )
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--digest", action="store_true", help="print the digest of each seed's record")
    parser.add_argument("--progress", type=int, default=0, metavar="N", help="print a line every N seeds")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="number of processes")
    given = parser.parse_args(arguments)
    totals = Totals()
    began = time.monotonic()
    last = given.first + given.seeds
    chunks = [range(first, min(first + CHUNK, last)) for first in range(given.first, last, CHUNK)]
    for done in _run_all(chunks, given):
        totals.merge(done)
        for text in done.output:
            print(text, flush=True)
        if given.progress and totals.seeds % given.progress == 0:
            print(f"{totals.seeds} of {given.seeds} seeds, {len(totals.failed)} failed", flush=True)
        if given.stop and totals.failed:
            break
    print(totals.report(max(time.monotonic() - began, 1e-9)))
    return 1 if totals.failed else 0


def _run_all(chunks: list[range], given: argparse.Namespace) -> Iterator[Totals]:
    """Yields the results of the chunks in order."""
    if given.jobs < 2:
        for chunk in chunks:
            yield _run_chunk(chunk, given.option, given.digest, given.stop)
        return
    with ProcessPoolExecutor(given.jobs) as pool:
        yield from pool.map(_run_chunk, chunks, repeat(given.option), repeat(given.digest), repeat(given.stop))


def _run_chunk(seeds: range, changes: list[str], digest: bool, stop: bool) -> Totals:
    totals = Totals()
    gc.set_threshold(YOUNG)
    for seed in seeds:
        world = run_seed(seed, changes)
        totals.add(world)
        if digest:
            totals.output.append(f"{seed} {world.record.digest()}")
        if world.breaches:
            totals.output.append(describe(world, changes))
            if stop:
                break
    return totals


if __name__ == "__main__":
    sys.exit(main())
