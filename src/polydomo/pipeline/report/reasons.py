"""Why requests failed and jobs died: the most frequent reasons, each with an example."""

import re
from collections import Counter

import pyarrow.dataset as ds

from polydomo.pipeline.report.data import Reason
from polydomo.pipeline.report.tables import Tables

COUNTED = 10_000  # at a time
_NUMBER = re.compile(r"\d+(\.\d+)?")


def most_frequent(tables: Tables, table: str, id: str, where: ds.Expression, most: int) -> list[Reason]:
    """By outcome, service and reason. Reasons that differ only in numbers are merged. The example is the first ``id``."""
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str, str], tuple[str, str]] = {}
    columns = ["outcome", "service", "reason"]
    for batch in tables.batches(table, [*columns, id], where):
        for row in batch.group_by(columns).aggregate([(id, "min"), (id, "count")]).to_pylist():
            key = (row["outcome"], row["service"], _NUMBER.sub("N", row["reason"]))
            counts[key] += row[f"{id}_count"]
            examples[key] = min(examples.get(key, ("~", "")), (row[f"{id}_min"], row["reason"]))
        if len(counts) > COUNTED:
            counts = Counter(dict(counts.most_common(COUNTED // 2)))
            examples = {key: examples[key] for key in counts}
    found = []
    for key, number in counts.most_common(most):
        example, reason = examples[key]
        found.append(Reason(key[0], key[1], reason, number, example))
    return found
