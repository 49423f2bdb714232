"""How tables of plain Parquet change all at once: staged, then announced, then published; and what the next start
makes of a run that was killed.

The tables are taken in hour by hour (a *unit*): ``DIR/requests/date=2026-01-31/07-0.parquet`` holds rows of hour 7.
``DIR/_polydomo`` holds the rest:

* ``staging/``: what a run under way has made. Nobody reads it.
* ``intent.json``: all is staged; these files take the place of those. Written in one piece, it is the moment of the
  commit.
* ``units/2026-01-31-07.json``: the segments that are in the tables of that hour.

A run killed before the intent is written has changed nothing, and its staging is removed. One killed after it is
finished by the next start: every step of publishing can be done twice. A file takes the place of the one before it by
one rename, so that a reader sees an hour of a table as it was or as it is.
"""

import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError
from polydomo.pipeline.files import Files, LocalFiles, dump, files_for, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWN = "_polydomo"  # Spark passes over names that begin with an underscore
PARQUET = "parquet"
STAGED = re.compile(r"/date=([0-9-]{10})/unit=(\d+)/[^/]+\.parquet$")
PUBLISHED = re.compile(r"/date=([0-9-]{10})/(\d\d)-(\d+)\.parquet$")


class TablesBusy(PolydomoError):
    """Another run has the tables."""


class Store:
    """A directory of tables. ``step`` is called with the name of every step of a commit: tests stop it there."""

    def __init__(
        self, spark: "SparkSession", root: str, format: str = PARQUET, step: Callable[[str], None] = lambda name: None
    ) -> None:
        self.spark = spark
        self.root = root.rstrip("/") if "://" in root else str(Path(root).absolute())
        self.format = format
        self.files: Files = files_for(spark, self.root)
        self.own = f"{self.root}/{OWN}"
        self.staged: dict[str, set[str]] = {}  # table -> units that it replaces
        self._step = step
        self._lock = -1
        self._staging = f"{self.own}/staging/{uuid.uuid4().hex[:12]}"
        self._direct: list[tuple[str, DataFrame, set[str]]] = []

    def __enter__(self) -> "Store":
        if isinstance(self.files, LocalFiles):
            os.makedirs(self.own, exist_ok=True)
            self._lock = os.open(f"{self.own}/lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                raise TablesBusy(f"another run of the pipeline writes the tables in {self.root}") from None
        try:
            self.recover()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- what is there -------------------------------------------------------------------------------------------------

    def path(self, table: str) -> str:
        return f"{self.root}/{table}"

    def units(self) -> dict[str, dict[str, Any]]:
        """What is known of each unit (``2026-01-31/07``) that has been taken in."""
        found = {}
        for path in self.files.under(f"{self.own}/units"):
            if path.endswith(".json"):
                known = load(self.files, path)
                found[known["unit"]] = known
        return found

    def read(self, table: str) -> "DataFrame | None":
        """A table as it stands; None if it has no rows yet."""
        if self.format != PARQUET:
            return (
                self.spark.read.format(self.format).load(self.path(table))
                if self.files.exists(self.path(table))
                else None
            )
        return self._read(self.path(table), table)

    def read_staged(self, table: str) -> "DataFrame | None":
        """What this run has made of a table; rows of its units only."""
        for name, frame, _ in self._direct:
            if name == table:
                return frame
        return self._read(f"{self._staging}/{table}", table)

    def _read(self, path: str, table: str) -> "DataFrame | None":
        from polydomo.pipeline.tables import TABLES

        if not any(file.endswith(".parquet") for file in self.files.under(path)):
            return None
        return self.spark.read.schema(TABLES[table].ddl).parquet(path)

    # --- a change ------------------------------------------------------------------------------------------------------

    def stage(self, table: str, frame: "DataFrame", units: Iterable[str]) -> None:
        """The rows of ``frame`` are to be all that the table has of these units."""
        self.staged[table] = set(units)
        if self.format != PARQUET:
            self._direct.append((table, frame, set(units)))
            return
        frame.selectExpr("*", "hour AS unit").write.partitionBy("date", "unit").parquet(f"{self._staging}/{table}")
        self._step(f"staged {table}")

    def commit(self, units: dict[str, dict[str, Any]]) -> None:
        """Publishes what was staged, and that these units are taken in. More can be staged then, for another commit."""
        if self.format != PARQUET:
            self._write_directly()
            self._note(units)
            self._direct.clear()
            self.staged.clear()
            return
        intent = {"staging": self._staging, "units": units, **self._plan()}
        self._step("before the intent")
        dump(self.files, f"{self.own}/intent.json", intent)
        self._step("after the intent")
        self._publish(intent)
        self.staged.clear()

    def _plan(self) -> dict[str, Any]:
        moves = []
        removes = []
        for table, units in self.staged.items():
            count: dict[str, int] = {}
            made = [path for path in self.files.under(f"{self._staging}/{table}") if STAGED.search(path)]
            self.files.sync(made)
            for path in made:
                match = STAGED.search(path)
                assert match is not None
                unit = f"{match[1]}/{int(match[2]):02d}"
                assert unit in units, f"{table} has rows of {unit}, which is not among the units of this run"
                place = count[unit] = count.get(unit, -1) + 1
                moves.append([path, f"{self.path(table)}/date={match[1]}/{int(match[2]):02d}-{place}.parquet"])
            for path in self._published(table, units):
                match = PUBLISHED.search(path)
                assert match is not None
                if int(match[3]) > count.get(f"{match[1]}/{match[2]}", -1):
                    removes.append(path)
        return {"moves": moves, "removes": removes}

    def _published(self, table: str, units: set[str]) -> list[str]:
        found = []
        for date in sorted({unit.split("/")[0] for unit in units}):
            for path in self.files.under(f"{self.path(table)}/date={date}"):
                match = PUBLISHED.search(path)
                if match and f"{match[1]}/{match[2]}" in units:
                    found.append(path)
        return found

    def _publish(self, intent: dict[str, Any]) -> None:
        for source, target in intent["moves"]:
            if self.files.exists(source):  # else it is there already
                self.files.move(source, target)
                self._step(f"moved {target.removeprefix(self.root)}")
        for path in intent["removes"]:
            self.files.remove(path)
            self._step(f"removed {path.removeprefix(self.root)}")
        self._note(intent["units"])
        self.files.remove(f"{self.own}/intent.json")
        self._step("forgot the intent")
        self.files.remove(intent["staging"])
        self._step("done")

    def _note(self, units: dict[str, dict[str, Any]]) -> None:
        for unit, known in units.items():
            dump(self.files, f"{self.own}/units/{unit.replace('/', '-')}.json", {"unit": unit, **known})
            self._step(f"noted {unit}")

    def recover(self) -> str:
        """Finishes or forgets the run before, if it was killed. Says which."""
        intent = f"{self.own}/intent.json"
        told = ""
        if self.files.exists(intent):
            self._publish(load(self.files, intent))
            told = "a run before was killed while it published; that is finished now"
        if self.files.exists(f"{self.own}/staging"):
            self.files.remove(f"{self.own}/staging")
        return told

    # --- formats with commits of their own --------------------------------------------------------------------------------

    def _write_directly(self) -> None:
        """Delta and Iceberg replace whole dates: their own commits make each table change at once."""
        for table, frame, units in self._direct:
            dates = ", ".join(f"'{date}'" for date in sorted({unit.split("/")[0] for unit in units}))
            writer = frame.write.format(self.format).mode("overwrite").partitionBy("date")
            if self.format == "delta":
                writer = writer.option("replaceWhere", f"date IN ({dates})")
            else:
                writer = writer.option("partitionOverwriteMode", "dynamic")
            writer.save(self.path(table))
