"""The pipeline's tables on Spark, compared row by row with tables that DuckDB computes independently from the same generated journal.

    python -m bench.pipeline --million 10
    python -m bench.pipeline --scaling 1 2 5 10 20

    python -m bench.pipeline --million 1 --old ../polydomo-0.2

Spark is measured as a user runs it: a new process and a new session, until it has ended. DuckDB's time counts from an import to the tables
on disk as Parquet. CPU seconds are given, too, since other work on the machine changes them less. Memory is the peak of all processes
together. Every planted breach must be found, and nothing else. ``--old`` measures the command of another tree on the same journals.
"""

import argparse
import json
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.generate_journal import generate

ROOT = Path(__file__).resolve().parents[1]
# What is compared, column by column; percentiles may differ by 1 %.
COMPARED = {
    "requests": "request broker run number seq service last_service client client_peer client_protocol worker worker_protocol "
    "accepted ended "
    "wait_us run_us total_us wait_bucket total_bucket attempts dispatches hops partials request_bytes reply_bytes outcome reason "
    "parent bridged far_broker far_protocol principal worker_principal job memo keyed key",
    "hops": "request position broker run number service hop attempt worker worker_protocol principal worker_principal arrived began ended "
    "ending",
    "services": "window seconds broker service requests ok retried passed_on request_bytes reply_bytes wait_us run_us total_us "
    "worked queued queue_max workers_max wait_histogram total_histogram memo_hits memo_misses memo_joined key_joined",
    "workers": "window broker run worker service protocol principal turns finals given_back run_us present_us late lost stale",
    "topology": "window kind broker source target requests failed total_us",
    "capacity": "window broker service requests turns workers within",
    "logs": "time run seq number request outcome",
    "values": "time broker run seq topic size last",
    "audit": "rule run number worker connection service seq",
    "audit_rules": "run broker level rule breaches",
    "jobs": "job broker run seq service origin key principal schedule submitted ended total_us attempts backoff_us state outcome reason "
    "result_bytes",
    "job_events": "time broker run seq event job service principal schedule attempt outcome reason wait_us submitted bytes",
    "flows": "flow name key principal broker run seq started ended total_us state reason nodes done dead skipped cancelled open_us "
    "critical_nodes slowest slowest_us",
    "flow_nodes": "flow broker run seq node name service job state released ended open_us attempts needs after critical critical_us",
}
PERCENTILES = {
    "services": "wait_p50_us wait_p99_us total_p50_us total_p90_us total_p99_us total_p999_us",
    "workers": "run_p50_us",
    "capacity": "rate service_us service_scv arrival_scv utilisation measured_wait_us wait_us capacity",
}
TEXTS = (
    "request broker service last_service client_peer worker_protocol outcome reason parent far_broker far_protocol ending kind source "
    "target topic rule level client_protocol protocol principal worker_principal job memo keyed origin key schedule state event "
    "flow name needs slowest"
).split()
KEYS = {
    "services": '"window", seconds, broker, service',
    "workers": '"window", broker, run, worker, service',
    "capacity": '"window", broker, service',
}


class Tree(threading.Thread):
    """Watches the resident memory of all processes that this one started, together, and counts those that run Python."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.pythons = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.3):
            processes = family(os.getpid())[1:]
            self.peak = max(self.peak, sum(map(_resident, processes)))
            self.pythons = max(self.pythons, sum(_is_python(process) for process in processes))


def family(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def _resident(process: int) -> int:
    """What only this process has, and its share of what several have."""
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def _is_python(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/comm").read_text().startswith("python")
    except OSError:
        return False


# As the command does it, and prints how many stages Spark ran.
PROGRAM = """
import sys
from polydomo.pipeline import batch, session
with session.LazySpark(lambda rows: session.build(rows=rows)) as spark:
    summary = batch.run(sys.argv[2:], sys.argv[1], session=spark)
    stages = spark.started._jsc.sc().dagScheduler().nextStageId() if spark.started is not None else 0
print("problems:", summary.problems)
print("stages:", stages)
"""


def measured(words: list[str], env: dict[str, str] | None = None) -> dict[str, Any]:
    """A command, cold: wall time, CPU seconds of all processes, the peak of their memory, Python processes besides the first."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    watch = Tree()
    watch.start()
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    seconds = time.monotonic() - began
    watch.over.set()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    stages = re.search(r"^stages: (\d+)$", done.stdout, re.M)
    return {
        "seconds": seconds,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "memory": watch.peak,
        "pythons": max(0, watch.pythons - 1),
        "stages": int(stages[1]) if stages else 0,
    }


def by_spark(journals: list[str], tables: str) -> dict[str, Any]:
    return measured([sys.executable, "-c", PROGRAM, tables, *journals])


def by_old(tree: Path, journals: list[str], tables: str) -> dict[str, Any]:
    """The command of another tree, with its own environment."""
    given = [word for journal in journals for word in ("--journal", journal)]
    python = str(tree / ".venv" / "bin" / "python")
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # which may name this tree
    return measured([python, "-m", "polydomo", "pipeline", "run", *given, "--tables", tables], own)


def by_duckdb(journals: list[str], tables: str, planted: list[Any], pipe: Any) -> None:
    """Runs in a separate process, so that its peak memory can be measured."""
    from bench.duckdb_tables import compute, write

    cpu, began = time.process_time(), time.monotonic()
    con = compute([Path(journal) for journal in journals])
    computed = time.monotonic() - began
    write(con, Path(tables).with_name("duckdb"))
    found: dict[str, Any] = {
        "computed": computed,  # before anything was written
        "seconds": time.monotonic() - began,
        "cpu": time.process_time() - cpu,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    found["different"] = compare(con, tables)
    found["rows"] = {name: con.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for name in COMPARED}
    got = sorted(con.execute("SELECT rule, run FROM audit").fetchall())
    found["planted"] = got == sorted((rule, run) for rule, run, _ in planted)
    pipe.send(found)


def compare(con: Any, tables: str) -> dict[str, int]:
    """By table, how many rows only one of both has; none where all is well."""
    different = {}
    for name, columns in COMPARED.items():
        con.execute(
            f"CREATE VIEW spark_{name} AS SELECT * FROM read_parquet('{tables}/{name}/**/*.parquet', hive_partitioning = true)"
        )
        chosen = ", ".join(_cast(column) for column in columns.split())
        apart = 0
        for one, other in ((f"spark_{name}", f'"{name}"'), (f'"{name}"', f"spark_{name}")):
            asked = f"SELECT count(*) FROM (SELECT {chosen} FROM {one} EXCEPT ALL SELECT {chosen} FROM {other})"
            apart += con.execute(asked).fetchall()[0][0]
        for column in PERCENTILES.get(name, "").split():
            joined = f'spark_{name} a JOIN "{name}" b USING ({KEYS[name]})'
            apart_by = f"abs(a.{column} - b.{column}) > 0.01 * abs(b.{column}) + 1e-6"
            asked = f"SELECT count(*) FROM {joined} WHERE {apart_by} OR (a.{column} IS NULL) != (b.{column} IS NULL)"
            apart += con.execute(asked).fetchall()[0][0]
        if apart:
            different[name] = apart
    return different


def _cast(column: str) -> str:
    """The same type on both sides."""
    if column in ("window", "time", "accepted", "ended", "began", "arrived", "submitted", "started", "released"):
        return f'epoch_us("{column}") AS "{column}"'
    if column.endswith("_histogram"):
        return f"list_sort(map_entries(CAST({column} AS MAP(INT, BIGINT)))) AS {column}"
    kind = "VARCHAR" if column in TEXTS else "BOOLEAN" if column == "last" else "BIGINT"
    return f'CAST("{column}" AS {kind}) AS "{column}"'


def measure(million: float, seed: int, old: Path | None, scratch: Path) -> dict[str, Any]:
    journal, tables = scratch / f"journal-{million:g}", scratch / "tables"
    for directory in (tables, scratch / "old"):
        shutil.rmtree(directory, ignore_errors=True)
    if (journal / "planted.json").is_file():
        facts = json.loads((journal / "planted.json").read_text())
    else:
        facts = generate(journal, int(million * 1e6), seed, breaches=3)
    journals = [str(journal / name) for name in facts["brokers"]]
    context = multiprocessing.get_context("spawn")
    spark = by_spark(journals, str(tables))
    again = by_spark(journals, str(tables))  # nothing is new
    before = by_old(old, journals, str(scratch / "old")) if old else None
    ear, mouth = context.Pipe()
    process = context.Process(target=by_duckdb, args=(journals, str(tables), facts["planted"], mouth))
    process.start()
    while not ear.poll(1.0):
        if not process.is_alive():
            raise RuntimeError("DuckDB's part has failed")
    duck = ear.recv()
    process.join()
    audited = not duck["different"].get("audit") and duck["planted"]
    return {
        "rows": facts["rows"],
        "breaches": len(facts["planted"]),
        "audited": audited,
        "spark": spark,
        "nothing new": again,
        "old": before,
        "duckdb": duck,
        "load": os.getloadavg()[0],
    }


def show(found: dict[str, Any]) -> None:
    spark, duck = found["spark"], found["duckdb"]
    print(f"{found['rows'] / 1e6:.2f} million rows of messages (load of the machine {found['load']:.1f})")
    shown = [("Spark", spark), ("nothing new", found["nothing new"]), ("DuckDB", duck)]
    for name, result in [*shown, *([("old", found["old"])] if found["old"] else [])]:
        print(f"  {name:12s} {result['seconds']:7.1f} s {result['cpu']:7.1f} CPU s {result['memory'] / 2**20:7.0f} MiB")
    print(f"  (DuckDB {duck['computed']:.1f} s until all is in memory, the rest to write it)")
    print(
        f"  Spark takes {spark['seconds'] / duck['seconds']:.1f} times DuckDB's time, {spark['cpu'] / duck['cpu']:.1f} times its CPU"
    )
    if found["old"]:
        print(f"  Spark takes {spark['seconds'] / found['old']['seconds']:.1f} times the time of the old engine")
    print(f"  {spark['stages']} stages; {spark['pythons']} Python processes besides the driver")
    print("  rows: " + ", ".join(f"{name} {count:,}" for name, count in duck["rows"].items()))
    print(f"  tables equal: {'yes' if not duck['different'] else duck['different']}")
    print(f"  {found['breaches']} breaches planted; all found, and nothing else: {'yes' if found['audited'] else 'NO'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--million", type=float, default=1.0)
    parser.add_argument("--scaling", type=float, nargs="+", help="several sizes, in millions of rows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--old",
        type=Path,
        metavar="TREE",
        help="a tree of an earlier version, with its .venv, to measure beside this one",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="of journals, which are generated once")
    parser.add_argument("--out", type=Path, help="write the measurements as JSON")
    given = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="polydomo-bench-") as scratch:
        for million in given.scaling or [given.million]:
            results.append(measure(million, given.seed, given.old, given.keep or Path(scratch)))
            show(results[-1])
            if given.out:
                given.out.write_text(json.dumps(results, indent=1) + "\n")
    if any(found["duckdb"]["different"] or not found["audited"] for found in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
