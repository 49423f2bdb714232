"""What small runs of the pipeline cost, as a user starts them: CPU seconds of the command with its children, and seconds.

    python -m bench.pipeline_small --keep DIR

The cases are those of the table in docs/pipeline.md. CPU seconds vary little with other work on the machine; times on the clock do.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.generate_journal import generate

COMMAND = (sys.executable, "-m", "polydomo", "pipeline", "run")


def measured(*words: str) -> tuple[float, float]:
    """CPU seconds and seconds on the clock of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    if done.returncode:
        raise SystemExit(done.stderr)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, ended - began


class Bench:
    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def journal(self, name: str, rows: int, segment_rows: int) -> list[str]:
        """The flags that name a generated journal without breaches."""
        path = self.scratch / name
        if not path.exists():
            generate(path, rows, seed=1, breaches=0, segment_rows=segment_rows)
        return [word for broker in ("north", "south", "west", "east") for word in ("-j", str(path / broker))]

    def tables(self) -> list[str]:
        path = self.scratch / "tables"
        shutil.rmtree(path, ignore_errors=True)
        return ["-t", str(path)]

    def case(self, title: str, work: "Callable[[], tuple[float, float]]") -> None:
        cpu, seconds = work()
        print(f"| {title} | {cpu:.1f} | {seconds:.1f} |", flush=True)

    def one_new_row(self) -> tuple[float, float]:
        """The last segment of a long run, after all others have been loaded."""
        self.journal("22k", 22_000, 2_000)
        path = self.scratch / "growing"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.scratch / "22k" / "south", path)
        last = max(path.rglob("*.parquet"), key=lambda file: file.name.split("-")[1])
        kept = last.read_bytes()
        last.unlink()
        tables = self.tables()
        measured(*COMMAND, "-j", str(path), *tables)
        last.write_bytes(kept)
        return measured(*COMMAND, "-j", str(path), *tables)

    def run(self, most: float) -> None:
        print("| | CPU s | s |\n|---|---|---|")
        small = self.journal("2k", 2_400, 400_000)
        tables = self.tables()
        self.case("2.4 k rows, first run", lambda: measured(*COMMAND, *small, *tables))
        self.case("nothing new", lambda: measured(*COMMAND, *small, *tables))
        self.case("one new segment in a long run", self.one_new_row)
        for title, name, rows, segment in (
            ("22 k rows, small segments", "22k", 22_000, 2_000),
            ("0.11 M rows, few files", "110k", 110_000, 400_000),
            ("0.11 M rows, very many files", "110k-small", 110_000, 110),
            ("0.97 M rows", "1m", 970_000, 400_000),
        ):
            if rows > most * 1e6:
                continue
            flags = self.journal(name, rows, segment)
            files = len(list((self.scratch / name).rglob("*.parquet")))
            self.case(f"{title} ({files} files)", partial(self.first_run, flags))

    def first_run(self, flags: list[str]) -> tuple[float, float]:
        return measured(*COMMAND, *flags, *self.tables())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="of journals, which are generated once")
    parser.add_argument("--most", type=float, default=1.0, help="million rows of the largest case")
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="polydomo-bench-") as scratch:
        Bench(given.keep or Path(scratch)).run(given.most)


if __name__ == "__main__":
    main()
