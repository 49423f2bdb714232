"""``python -m sim.run --seeds 100 --first 1``: runs seeds and says what they found.

A seed that fails prints the command that runs it again and the story of the request that broke.
"""

import argparse
import sys
import time

from sim.options import Options, draw, override
from sim.world import World

STORY = 60  # rows of a story that are printed


class Totals:
    def __init__(self) -> None:
        self.seeds = 0
        self.events = 0
        self.submitted = 0
        self.steps = 0
        self.faults: dict[str, int] = {}
        self.outcomes: dict[str, int] = {}
        self.failed: list[int] = []

    def add(self, world: World) -> None:
        self.seeds += 1
        self.events += world.scheduler.done
        self.submitted += world.submitted
        self.steps += world.steps
        for mine, theirs in ((self.faults, world.faults), (self.outcomes, world.outcomes)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        if world.breaches:
            self.failed.append(world.options.seed)

    def report(self, seconds: float) -> str:
        lines = [
            f"{self.seeds} seeds in {seconds:.1f} s: {self.seeds / seconds:.1f} seeds/s, {self.events / seconds:,.0f} events/s",
            f"{self.events:,} events, {self.steps:,} broker steps watched, {self.submitted:,} requests checked",
            "outcomes: " + _counts(self.outcomes),
            f"{sum(self.faults.values()):,} faults: " + _counts(self.faults),
            f"failed: {', '.join(map(str, self.failed))}" if self.failed else "every seed held",
        ]
        return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def run_seed(seed: int, changes: "list[str] | None" = None) -> World:
    options = draw(seed)
    for change in changes or []:
        override(options, change)
    world = World(options)
    world.run()
    return world


def tell(world: World, changes: list[str]) -> str:
    """What broke, how to see it again, and the story of the request."""
    options: Options = world.options
    again = " ".join(["python -m sim.run --seeds 1 --first", str(options.seed), *(f"--option {change}" for change in changes)])
    lines = [f"seed {options.seed} failed; run it again with: {again}"]
    lines.append(f"  clients {','.join(options.clients)}  workers {','.join(options.workers)}  faults {', '.join(options.faults())}")
    for breach in world.breaches[:5]:
        lines.append(f"  {breach}")
        if breach.detail:
            lines += [f"    {line}" for line in breach.detail.rstrip().splitlines()]
    tag = next((breach.tag for breach in world.breaches if breach.tag), "")
    if tag:
        lines.append(f"  the story of {tag}:")
        lines += [f"    {line}" for line in world.record.story(tag, STORY)]
    else:
        lines.append("  the last rows of the record:")
        lines += [f"    {row[0]:10.4f}  {' '.join(map(str, row[1:]))}" for row in world.record.rows[-STORY // 2 :]]
    return "\n".join(lines)


def main(arguments: "list[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim.run", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="set an option over what the seed draws")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--digest", action="store_true", help="print the digest of each seed's record")
    parser.add_argument("--progress", type=int, default=0, metavar="N", help="print a line every N seeds")
    given = parser.parse_args(arguments)
    totals = Totals()
    began = time.monotonic()
    for seed in range(given.first, given.first + given.seeds):
        world = run_seed(seed, given.option)
        totals.add(world)
        if given.digest:
            print(seed, world.record.digest())
        if world.breaches:
            print(tell(world, given.option), flush=True)
            if given.stop:
                break
        if given.progress and totals.seeds % given.progress == 0:
            print(f"{totals.seeds} of {given.seeds} seeds, {len(totals.failed)} failed", flush=True)
    print(totals.report(max(time.monotonic() - began, 1e-9)))
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
