"""Atomic changes of Parquet tables: files are staged, listed in an intent, then published.

The tables are replaced hour by hour (a *unit*): ``DIR/requests/date=2026-01-31/hour=07/0.parquet`` holds rows of hour 7. ``audit`` and
``audit_rules`` are replaced run by run: their files are named after the run. ``DIR/_polydomo`` holds the rest:

* ``staging/``: the files of a run in progress. Readers ignore it.
* ``intent.json``: everything is staged; lists which file replaces which. Writing it, in one piece, is the commit.
* ``units/2026-01-31-07.json``: the segments that are in the tables of that hour.
* ``runs/RUN/``: the state of the audit. ``sums/``: sums of each hour, from which ``workers`` and ``capacity`` are computed.

A run that is killed before the intent is written has changed nothing, and its staging is removed. One that is
killed after it is finished by the next start: every step of publishing can be repeated. On a local disk a file
replaces the previous one with one rename, so a reader sees an hour of a table either before or after the change. Object
stores have no such rename and no lock: a reader may see an hour without some of its files for a moment, and you must
not start two runs at the same time.
"""

import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from polydomo.errors import PolydomoError
from polydomo.pipeline import delta
from polydomo.pipeline.segments import folder_of, name_of, units_in
from polydomo.pipeline.storage import LocalStorage, Storage, dump, has_scheme, load, storage_for
from polydomo.pipeline.tables import TABLES

OWN = "_polydomo"  # Spark ignores names that begin with an underscore
FILE = re.compile(r"/([^/]+)/date=([0-9-]{10})/hour=(\d\d)/([^/]+)\.parquet$")
BY_RUN = ("audit", "audit_rules")  # tables whose files are named after a run
FROM_SUMS = ("workers", "capacity")  # tables that are computed from saved sums
_DISCARDED = ("_raw/", "_several/", "_parts/part=far/")  # staged files that only later steps need
_SILVER = "_parts/part=requests/"
EMPTY = "date=1970-01-01/hour=00/0.parquet"  # the file of a table without rows


class TablesBusy(PolydomoError):
    """Another run is writing the tables."""


class TableStore:
    """A directory of tables. ``step`` is called with the name of every step of a commit, so that tests can stop it there."""

    def __init__(self, root: str, step: Callable[[str], None] = lambda name: None, log: bool = False) -> None:
        """``log``: the tables are Delta tables from now on. Tables that have a log keep it."""
        self.root = root.rstrip("/") if has_scheme(root) else str(Path(root.removeprefix("file://")).absolute())
        self.storage: Storage = storage_for(self.root)
        self.own = f"{self.root}/{OWN}"
        self.staging = f"{self.own}/staging/{uuid.uuid4().hex[:12]}"
        self.recovered = ""
        self._step = step
        self._lock = -1
        self._log = log

    def __enter__(self) -> "TableStore":
        if isinstance(self.storage, LocalStorage):
            os.makedirs(self.own, exist_ok=True)
            self._lock = os.open(f"{self.own}/lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                self._lock = -1
                raise TablesBusy(
                    f"another run of the pipeline is writing the tables in {self.root}; wait until it has ended"
                ) from None
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
        """What is recorded about each unit (``2026-01-31/07``) in the tables."""
        found = {}
        for name in self.storage.names(f"{self.own}/units"):
            if name.endswith(".json") and not name.startswith("."):
                known = load(self.storage, f"{self.own}/units/{name}")
                found[known["unit"]] = known
        return found

    def tables(self) -> list[str]:
        """The names of the tables, with those of the user."""
        return [name for name in self.storage.names(self.root) if name[0] not in "._"]

    def units_of(self, table: str) -> Iterator[str]:
        """The units for which a table has a directory."""
        return units_in(self.storage, self.path(table))

    def published(self, table: str, unit: str) -> list[str]:
        """The files of a table in a unit."""
        folder = f"{self.path(table)}/{folder_of(unit)}"
        return [
            f"{folder}/{name}"
            for name in self.storage.names(folder)
            if name.endswith(".parquet") and name[0] not in "._"
        ]

    def has_files(self, table: str, without: "set[str]") -> bool:
        """Whether a table has any file besides these."""
        return any(not without.issuperset(self.published(table, unit)) for unit in self.units_of(table))

    def staged(self) -> list[str]:
        return self.storage.under(self.staging)

    def is_staged(self, table: str) -> bool:
        return bool(self.storage.under(f"{self.staging}/{table}"))

    def staged_rows(self) -> dict[str, int]:
        """The number of staged rows by table."""
        made: dict[str, int] = {}
        for path in self.staged():
            inside = path.removeprefix(f"{self.staging}/")
            name = "requests" if inside.startswith(_SILVER) else inside.split("/")[0]
            if name[0] != "_":
                made[name] = made.get(name, 0) + self.storage.footer(path).num_rows
        return made

    def open_logs(self, units: Iterable[str]) -> dict[str, int]:
        """By hour: the staged log records of requests that had not ended."""
        made: dict[str, int] = {}
        for unit in units:
            for path in self.storage.under(f"{self.staging}/logs/{folder_of(unit)}"):
                rows = self.storage.table(path, ["number", "request"]).to_pylist()
                made[unit] = made.get(unit, 0) + sum(row["number"] != 0 and not row["request"] for row in rows)
        return made

    # --- a change ------------------------------------------------------------------------------------------------------

    def commit(
        self,
        units: dict[str, dict[str, Any]],
        removes: Iterable[str] = (),
        sums: Iterable[str] = (),
    ) -> None:
        """Publishes all staged files. They replace everything that the tables have of these units; of ``sums``, the tables that are
        computed from sums."""
        moves, gone = self._moves(units, sums)
        self.replace(moves, [*gone, *removes], units)

    def replace(
        self,
        moves: Sequence[Sequence[str]],
        removes: Iterable[str],
        units: dict[str, dict[str, Any]] | None = None,
        forget: Iterable[str] = (),
    ) -> None:
        """Moves staged files to their targets and removes others, as one change. ``forget`` lists units to remove from the tables."""
        removes = {*removes}
        moves = [*moves, *self._empties({target for _, target in moves}, removes)]
        if self.has_log:
            moves, removes = delta.unique_names(
                self.storage, moves, removes, self._is_table_file, self.staging.rsplit("/", 1)[-1]
            )
        self.storage.sync([source for source, _ in moves])
        targets = {target for _, target in moves}
        intent = {
            "staging": self.staging, "moves": [list(pair) for pair in moves],
            "removes": sorted({path for path in removes if path not in targets}), "units": units or {}, "forget": sorted(forget),
            "log": self.has_log,
        }  # fmt: skip
        self._step("before the intent")
        dump(self.storage, f"{self.own}/intent.json", intent)
        self._step("after the intent")
        self._publish(intent)

    def _moves(self, units: dict[str, dict[str, Any]], sums: Iterable[str]) -> tuple[list[list[str]], list[str]]:
        """The targets of the staged files, and the published files that nothing replaces."""
        moves: list[list[str]] = []
        count: dict[tuple[str, str], int] = {}
        for path in self.staged():
            inside = path.removeprefix(f"{self.staging}/")
            if inside.startswith(_DISCARDED):
                continue
            if inside.startswith("_") and not inside.startswith(_SILVER):  # _runs/RUN/..., _sums/source=HOUR/...
                moves.append([path, f"{self.own}/{inside[1:].replace('/source=', '/')}"])
                continue
            match = FILE.search(path)
            assert match is not None, path
            table, date, hour, name = match.groups()
            table, unit = "requests" if inside.startswith(_SILVER) else table, f"{date}/{hour}"
            if table not in BY_RUN:
                if unit not in units and not (unit in sums and table in FROM_SUMS):
                    raise PolydomoError(
                        f"table {table} has rows of {unit}, which is not an hour of this run: keep date and hour as they are"
                    )
                place = count[table, unit] = count.get((table, unit), -1) + 1
                name = str(place)
            moves.append([path, f"{self.path(table)}/{folder_of(unit)}/{name}.parquet"])
        targets = {target for _, target in moves}
        gone = []
        for table in [name for name in self.tables() if name not in BY_RUN]:
            for unit in (*units, *(sums if table in FROM_SUMS else ())):
                gone += [path for path in self.published(table, unit) if path not in targets]
        return moves, gone

    def _empties(self, targets: "set[str]", removed: "set[str]") -> list[list[str]]:
        """Stages an empty file for every table that will have no file after the change, so that the table can be read."""
        moves = []
        staged = {match[1] for match in map(FILE.search, targets) if match is not None}
        for table in TABLES.values():
            if table.name not in staged and not self.has_files(table.name, removed):
                path = f"{self.staging}/{table.name}/{EMPTY}"
                self.storage.write_table(path, table.arrow.empty_table())
                moves.append([path, f"{self.path(table.name)}/{EMPTY}"])
        return moves

    def _publish(self, intent: dict[str, Any]) -> None:
        for source, target in intent["moves"]:
            if self.storage.exists(source):  # otherwise it was moved already
                self.storage.move(source, target)
                self._step(f"moved {target.removeprefix(self.root)}")
        if intent.get("log"):
            self._record([target for _, target in intent["moves"]], intent["removes"])
        for path in intent["removes"]:
            self.storage.remove(path)
            self.storage.remove_empty(path.rsplit("/", 1)[0])
            self._step(f"removed {path.removeprefix(self.root)}")
        for unit, known in intent["units"].items():
            dump(self.storage, self._note(unit), {"unit": unit, **known})
            self._step(f"noted {unit}")
        for unit in intent.get("forget", ()):
            self.storage.remove(self._note(unit))
            self._step(f"forgot {unit}")
        self.storage.remove(f"{self.own}/intent.json")
        self._step("forgot the intent")
        self.storage.remove(intent["staging"])
        self._step("done")

    # --- tables with a log of their own (Delta) -----------------------------------------------------------------------------

    @cached_property
    def has_log(self) -> bool:
        return self._log or any(self.storage.exists(f"{self.path(name)}/{delta.LOG}") for name in TABLES)

    def _is_table_file(self, path: str) -> bool:
        return not path.startswith(f"{self.own}/") and FILE.search(path) is not None

    def _record(self, adds: Sequence[str], removes: Sequence[str]) -> None:
        changes: dict[str, tuple[list[str], list[str]]] = {}
        for place, paths in enumerate((adds, removes)):
            for path in paths:
                if self._is_table_file(path):
                    table = path.removeprefix(f"{self.root}/").split("/")[0]
                    changes.setdefault(table, ([], []))[place].append(path)
        for table, (added, removed) in sorted(changes.items()):
            delta.record(self.storage, self.path(table), added, removed)
            self._step(f"recorded {table}")

    def _note(self, unit: str) -> str:
        return f"{self.own}/units/{name_of(unit)}.json"

    def recover(self) -> None:
        """Completes or rolls back the previous run, if it was killed."""
        intent = f"{self.own}/intent.json"
        if self.storage.exists(intent):
            self._publish(load(self.storage, intent))
            self.recovered = "a previous run was killed while publishing its tables; publishing has been completed now"
        if self.storage.exists(f"{self.own}/staging"):
            self.storage.remove(f"{self.own}/staging")
