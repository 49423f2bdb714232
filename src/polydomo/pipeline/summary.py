"""The result of a run of the pipeline, and the audit's verdict on all tables."""

from dataclasses import dataclass, field

import pyarrow.dataset as ds

from polydomo.journal.quantities import counted
from polydomo.pipeline.commit import TableStore
from polydomo.pipeline.tables.audit import CHECKS


@dataclass
class Summary:
    """The result of a run."""

    segments: int = 0  # loaded by this run
    units: list[str] = field(default_factory=list)  # hours that were recomputed
    rows: dict[str, int] = field(default_factory=dict)  # written in these hours, by table
    breaches: dict[str, int] = field(default_factory=dict)  # by rule, in the whole tables
    # Rules that could not be checked because of the journal level of some run.
    unchecked: list[str] = field(default_factory=list)
    runs: int = 0  # in the whole tables
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def verdict(self) -> str:
        """The audit's result in one sentence."""
        if not self.runs:
            return "Audit: there is nothing to check yet."
        some = counted(self.runs, "broker run")
        left = ""
        if self.unchecked:
            left = f" {counted(len(self.unchecked), 'rule')} could not be checked in every run (journal level messages records enough)."
        if not self.breaches:
            return f"Audit: no rule was broken in {some}.{left}"
        count = sum(self.breaches.values())
        each = ", ".join(f"{rule} {n}" for rule, n in sorted(self.breaches.items()))
        return f"Audit: {count} breach{'es' if count != 1 else ''} of the rules in {some}: {each}.{left}"


def conclude(store: TableStore, summary: Summary) -> None:
    """The audit's result for the whole tables."""
    path = store.path(CHECKS.name)
    if not store.storage.exists(path):
        return
    storage, columns = store.storage, ["rule", "breaches", "checkable", "run"]
    checks = ds.dataset(storage.inner(path), format="parquet", filesystem=storage.system).to_table(columns=columns)
    grouped = checks.group_by("rule").aggregate([("breaches", "sum"), ("checkable", "min"), ("run", "count_distinct")])
    for row in grouped.to_pylist():
        summary.runs = max(summary.runs, row["run_count_distinct"])
        if row["breaches_sum"]:
            summary.breaches[row["rule"]] = row["breaches_sum"]
        if not row["checkable_min"]:
            summary.unchecked.append(row["rule"])
    summary.unchecked.sort()
