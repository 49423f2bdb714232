"""``polydomo pipeline maintain``: keeps tables small. Several files of an hour become one, and old hours are removed.

Both use the commit of the tables (``commit.py``): if the process is killed at any step, the next run completes or rolls back the change.
Removed hours are not loaded again, although the journal may still have them: ``_polydomo/floor.json`` holds the first hour that is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from polydomo import limits
from polydomo.journal.ids import run_name
from polydomo.pipeline import segments
from polydomo.pipeline.commit import BY_RUN, TableStore
from polydomo.pipeline.storage import dump, load

FLOOR = "floor.json"


@dataclass
class Done:
    files_merged: int = 0
    files_made: int = 0
    hours_removed: int = 0
    files_removed: int = 0
    recovered: str = ""


def floor_of(store: TableStore) -> str:
    """The first hour (``2026-01-31/07``) that retention keeps; empty if nothing was removed."""
    path = f"{store.own}/{FLOOR}"
    return str(load(store.storage, path)["first"]) if store.storage.exists(path) else ""


def maintain(
    tables: str,
    before: datetime | None = None,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    step: Callable[[str], None] = lambda name: None,
) -> Done:
    """Removes the hours before ``before``, then merges the files of every hour that has several."""
    done = Done()
    with TableStore(tables, step) as store:
        done.recovered = store.recovered
        if before is not None:
            _remove(store, f"{before.astimezone(UTC):%Y-%m-%d/%H}", dry_run, tell, done)
        for unit in _hours(store):
            _merge(store, unit, dry_run, tell, done)
    return done


def _hours(store: TableStore) -> list[str]:
    """Every hour for which a table has files."""
    found = {unit for table in store.tables() for unit in store.units_of(table)}
    return sorted(found - {"1970-01-01/00"})  # the empty file of tables without rows


# --- retention --------------------------------------------------------------------------------------------------------------


def _remove(store: TableStore, first: str, dry_run: bool, tell: Callable[[str], None], done: Done) -> None:
    first = max(first, floor_of(store))
    noted = store.units()
    old = sorted(unit for unit in {*noted, *_hours(store)} if unit < first)
    if not old:
        return
    removes = [path for table in store.tables() for unit in old for path in store.published(table, unit)]
    done.hours_removed, done.files_removed = len(old), len(removes)
    tell(f"{len(old)} hours before {first}: {len(removes)} files {'would be ' if dry_run else ''}removed")
    if dry_run:
        return
    # Written first: if the process is killed now, only files to remove are left.
    dump(store.storage, f"{store.own}/{FLOOR}", {"first": first})
    for name in map(segments.name_of, old):
        removes += [f"{store.own}/once/{name}.parquet", *store.storage.under(f"{store.own}/sums/{name}")]
    kept = {segments.parse_id(one).run for unit, note in noted.items() if unit >= first for one in note["segments"]}
    ended = {segments.parse_id(one).run for unit in old for one in noted.get(unit, {}).get("segments", ())} - kept
    removes += [path for run in ended for path in store.storage.under(f"{store.own}/runs/{run_name(run)}")]
    store.replace([], removes, forget=[unit for unit in old if unit in noted])


# --- compaction -------------------------------------------------------------------------------------------------------------


def _merge(store: TableStore, unit: str, dry_run: bool, tell: Callable[[str], None], done: Done) -> None:
    moves: list[list[str]] = []
    removes: list[str] = []
    for table in store.tables():
        files = [] if table in BY_RUN else store.published(table, unit)
        if len(files) < 2:
            continue
        done.files_merged += len(files)
        if dry_run:
            done.files_made += 1
            continue
        number = 0
        held: list[pa.Table] = []
        for i, path in enumerate(files):
            held.append(store.storage.table(path))
            if sum(part.nbytes for part in held) >= limits.TABLE_FILE_BYTES or i == len(files) - 1:
                place = f"{table}/{segments.folder_of(unit)}/{number}.parquet"
                store.storage.write_table(f"{store.staging}/{place}", pa.concat_tables(held, promote_options="default"))
                moves.append([f"{store.staging}/{place}", f"{store.root}/{place}"])
                held = []
                number += 1
        removes += files
        done.files_made += number
    if moves:
        store.replace(moves, removes)
        tell(f"{unit}: {len(removes)} files merged into {len(moves)}")
