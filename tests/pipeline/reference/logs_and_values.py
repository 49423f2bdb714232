"""``logs`` and ``values``: log records with their requests, and published values."""

from collections import defaultdict
from datetime import datetime

from polydomo.journal import schema
from tests.pipeline.reference.basics import Row, hour_of
from tests.pipeline.reference.journal import Journal


def logs(journal: Journal) -> list[Row]:
    ended: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for part in journal.parts:
        ended[part["run"], part["number"]].append(part)
    made = []
    for row in journal.messages:
        if row["event"] == schema.LOG:
            near = [
                part
                for part in ended[row["run"], row["number"]]
                if 0 <= hour_of(part["time"]) - hour_of(row["time"]) <= 1
            ]
            found = near[0] if near and row["number"] else {"request": "", "outcome": ""}
            made.append(
                {
                    **row,
                    "level": row["outcome"],
                    "message": row["reason"],
                    "request": found["request"],
                    "outcome": found["outcome"],
                }
            )
    return made


def values(journal: Journal) -> list[Row]:
    published = [row for row in journal.messages if row["event"] == schema.PUBLISHED]
    newest: dict[tuple[str, str, int], tuple[datetime, int]] = {}
    for row in published:
        key = row["broker"], row["topic"], hour_of(row["time"])
        newest[key] = max(newest.get(key, (row["time"], row["seq"])), (row["time"], row["seq"]))
    return [
        {**row, "last": newest[row["broker"], row["topic"], hour_of(row["time"])] == (row["time"], row["seq"])}
        for row in published
    ]
