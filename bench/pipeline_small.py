"""Measures small runs of the pipeline as a user starts them: CPU seconds of the command with its children, and seconds on the clock.

    python -m bench.pipeline_small --keep DIR

The cases are those of the table in docs/pipeline.md. Other work on the machine changes the CPU seconds little, and the seconds a lot.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.generate_journal import generate
from bench.pipeline import family

SETTLED = 1.0  # seconds
COMMAND = (sys.executable, "-m", "polydomo", "pipeline", "run")


def measured(*words: str) -> tuple[float, float]:
    """CPU seconds and seconds on the clock that a command takes."""
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
        """The options that name a generated journal without breaches."""
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
        """Loads the last segment of a long run after all others."""
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

    def run(self, most: float, batches: int) -> None:
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

        tables = ["-t", str(self.scratch / "tables")]  # of the last case
        count = ("query", "SELECT count(*) FROM requests")
        self.case("query of a count", lambda: measured(sys.executable, "-m", "polydomo", *count, *tables))
        if batches:
            costs = self.stream(batches)
            shown = ", ".join(f"{one:.1f}" for one in costs)
            print(f"| micro-batches of a resident stream, one new segment of each kind | {shown} | |", flush=True)

    def stream(self, batches: int) -> list[float]:
        """CPU seconds of each micro-batch of a stream, by all its processes. A micro-batch has the requests of 5 s."""
        source, path = self.scratch / "minutes", self.scratch / "streamed"
        if not source.exists():
            generate(source, 40_000, seed=1, breaches=0, seconds=600.0, segment_rows=1_030)
        shutil.rmtree(path, ignore_errors=True)
        files = sorted((source / "north").rglob("*.parquet"), key=lambda file: (file.name, str(file)))
        names = sorted({file.name for file in files})
        _publish(files, names[0], source / "north", path)
        command = (sys.executable, "-m", "polydomo", "pipeline", "stream", "--interval", "1s", "-j", str(path))
        costs = []
        with subprocess.Popen([*command, *self.tables()], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            loaded = (line for line in process.stdout if line.startswith("batch "))
            next(loaded)
            for name in names[1 : batches + 1]:
                time.sleep(SETTLED)  # Spark writes the end of a batch into its checkpoint after the line
                before = _cpu(process.pid)
                _publish(files, name, source / "north", path)
                next(loaded)
                time.sleep(SETTLED)
                costs.append(_cpu(process.pid) - before)
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            process.wait(60)
        return costs

    def first_run(self, flags: list[str]) -> tuple[float, float]:
        return measured(*COMMAND, *flags, *self.tables())


def _cpu(root: int) -> float:
    """CPU seconds of a process and of all that it started."""
    ticks = 0
    for process in family(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _publish(files: list[Path], name: str, source: Path, target: Path) -> None:
    """Copies the segments of this name, of both kinds, as a broker would publish them."""
    for file in files:
        if file.name == name:
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            fresh = place.with_name(f".{place.name}")
            fresh.write_bytes(file.read_bytes())
            fresh.rename(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="of journals, which are generated once")
    parser.add_argument("--most", type=float, default=1.0, help="million rows of the largest case")
    parser.add_argument(
        "--stream", type=int, default=30, metavar="N", help="micro-batches of a stream; 0 leaves it out"
    )
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="polydomo-bench-") as scratch:
        Bench(given.keep or Path(scratch)).run(given.most, given.stream)


if __name__ == "__main__":
    main()
