"""The same job on a real cluster: a master and two workers, from the pip package, on this machine."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import IO

import pytest

from bench.generate_journal import generate
from bench.pipeline import family
from tests.pipeline.comparing import content

pytest.importorskip("pyspark")
from polydomo.pipeline import java
from polydomo.pipeline.tables import TABLES

WAIT = 120.0
MASTER = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
WORKER = (
    *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"),
    *("-c", "1", "-m", "1g", "--webui-port", "0"),
)


def hear(stream: IO[str], said: "Queue[str]") -> None:
    for line in stream:
        said.put(line)


@contextmanager
def daemon(*command: str, until: str, scratch: Path) -> Iterator[str]:
    """Starts a process of Spark and waits for a line of its output."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environ = {
        **os.environ,
        "JAVA_HOME": java.find(),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(scratch),
        "PYSPARK_PYTHON": sys.executable,  # the cluster's Python has duckdb and pyarrow
    }
    with subprocess.Popen(
        [str(home / "bin" / "spark-class"), *command],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said: Queue[str] = Queue()
        assert process.stderr is not None
        reader = threading.Thread(target=hear, args=(process.stderr, said))
        reader.start()
        try:
            while True:
                match = re.search(until, said.get(timeout=WAIT))
                if match:
                    break
            yield match[0]
        finally:
            process.terminate()
            process.wait(WAIT)
            reader.join(WAIT)


def pipeline(journals: list[str], tables: Path, *more: str) -> str:
    given = [word for journal in journals for word in ("--journal", journal)]
    observed = subprocess.run(
        [sys.executable, "-m", "polydomo", "pipeline", "run", *given, "--tables", str(tables), *more],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert observed.returncode == 0, observed.stderr
    return observed.stdout


@pytest.mark.long
def test_a_standalone_cluster_gives_the_same_tables(tmp_path: Path) -> None:
    facts = generate(tmp_path / "journal", 4_000, seed=5, breaches=1, seconds=600)
    journals = [str(tmp_path / "journal" / name) for name in facts["brokers"]]
    verdict = pipeline(journals, tmp_path / "here").splitlines()[-1]
    assert f"{len(facts['planted'])} breaches" in verdict
    with daemon(*MASTER, until=r"spark://127\.0\.0\.1:[1-9]\d*", scratch=tmp_path) as url:
        with (
            daemon(*WORKER, "-d", str(tmp_path / "w1"), url, until="Successfully registered", scratch=tmp_path),
            daemon(*WORKER, "-d", str(tmp_path / "w2"), url, until="Successfully registered", scratch=tmp_path),
        ):
            there = pipeline(journals, tmp_path / "there", "--master", url, "--conf", "spark.executor.memory=600m")
            submitted(url, journals[0], tmp_path)
    assert there.splitlines()[-1] == verdict
    apart, together = content(tmp_path / "there"), content(tmp_path / "here")
    for table in TABLES:
        assert apart[table] == together[table], table
    assert apart["requests"] and apart["services"]
    alone = content(tmp_path / "submitted")
    pipeline(journals[:1], tmp_path / "one")
    assert alone == content(tmp_path / "one")


def started(root: int, *words: str) -> list[int]:
    """The processes below ``root`` whose command has these words."""
    found = []
    for process in family(root):
        try:
            command = Path(f"/proc/{process}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if all(word in command for word in words):
            found.append(process)
    return found


@pytest.mark.long
def test_a_worker_that_is_killed_with_its_executor_changes_no_row(tmp_path: Path) -> None:
    facts = generate(tmp_path / "journal", 4_000, seed=5, breaches=1, seconds=600)
    journals = [str(tmp_path / "journal" / name) for name in facts["brokers"]]
    pipeline(journals, tmp_path / "here")
    given = [word for journal in journals for word in ("--journal", journal)]
    with daemon(*MASTER, until=r"spark://127\.0\.0\.1:[1-9]\d*", scratch=tmp_path) as url:
        with (
            daemon(*WORKER, "-d", str(tmp_path / "w1"), url, until="Successfully registered", scratch=tmp_path),
            daemon(*WORKER, "-d", str(tmp_path / "w2"), url, until="Successfully registered", scratch=tmp_path),
        ):
            (worker,) = started(os.getpid(), "org.apache.spark.deploy.worker.Worker", str(tmp_path / "w1"))
            command = [sys.executable, "-m", "polydomo", "pipeline", "run", *given, "--tables", str(tmp_path / "there")]
            command += ["--master", url, "--conf", "spark.executor.memory=600m"]
            with subprocess.Popen(command, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}) as run:
                end = time.monotonic() + 900
                while not list((tmp_path / "there").glob("_polydomo/staging/*/_parts")):
                    assert run.poll() is None and time.monotonic() < end
                    time.sleep(0.05)
                executors = started(worker, "org.apache.spark.executor.CoarseGrainedExecutorBackend")
                for process in (worker, *executors):
                    os.kill(process, signal.SIGKILL)
                assert executors and run.wait(900) == 0
    apart, together = content(tmp_path / "there"), content(tmp_path / "here")
    for table in TABLES:
        assert apart[table] == together[table], table


def submitted(url: str, journal: str, scratch: Path) -> None:
    """The script of docs/pipeline.md, as the page says to run it."""
    import pyspark

    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    script = page.split("cat > run_pipeline.py <<'EOF'\n")[1].split("EOF\n")[0]
    (scratch / "run_pipeline.py").write_text(script)
    home = Path(pyspark.__file__).parent
    words = [
        str(home / "bin" / "spark-submit"),
        "--master",
        url,
        "--conf",
        "spark.executor.memory=600m",
        str(scratch / "run_pipeline.py"),
    ]
    environ = {
        **os.environ, "JAVA_HOME": java.find(), "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    done = subprocess.run(
        [*words, journal, str(scratch / "submitted")],
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
    assert "Audit: " in done.stdout
