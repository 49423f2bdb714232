"""The saved sums of each hour (``sums.py``), and which earlier hours have work that ended in the hours of a batch."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from polydomo.pipeline.commit import TableStore
from polydomo.pipeline.segments import hour_of, name_of, unit_named, unit_of_hour


class SavedSums:
    """``spilled``: hour of the batch -> other hours to which its sums belong, with a digest of them."""

    def __init__(self, store: TableStore, units: Sequence[str], known: Mapping[str, Mapping[str, Any]]) -> None:
        self.store = store
        self.units = units
        self.known = known
        self.spilled: dict[str, dict[str, str]] = {}
        self._find()

    def _find(self) -> None:
        found: dict[tuple[str, str], list[str]] = {}
        for path in self.store.storage.under(f"{self.store.staging}/_sums"):
            unit = unit_named(path.split("/source=")[1])
            table = self.store.storage.table(path)
            for row in table.filter(pc.field("h") != hour_of(unit)).to_pylist():
                found.setdefault((unit, unit_of_hour(row["h"])), []).append(repr(sorted(row.items())))
        for (unit, target), rows in found.items():
            digest = hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:16]
            self.spilled.setdefault(unit, {})[target] = digest

    def changed(self) -> list[str]:
        """Other hours whose work differs from what is in the tables."""
        found: set[str] = set()
        for unit in self.units:
            before, now = self.known.get(unit, {}).get("spill", {}), self.spilled.get(unit, {})
            found |= {target for target in {*before, *now} if before.get(target) != now.get(target)}
        return sorted(found - set(self.units))

    def files(self, more: Iterable[str]) -> list[str]:
        """The saved sums of hours that are not computed now, but have rows for those that are."""
        wanted = {*self.units, *more}
        sources = {unit for unit, known in self.known.items() if set(known.get("spill", {})) & wanted} | set(more)
        return [
            path for unit in sorted(sources - set(self.units)) for path in self.store.storage.under(self._folder(unit))
        ]

    def _folder(self, unit: str) -> str:
        return f"{self.store.own}/sums/{name_of(unit)}"

    def gone(self) -> list[str]:
        return [path for unit in self.units for path in self.store.storage.under(self._folder(unit))]
