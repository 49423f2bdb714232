"""``audit`` and ``audit_rules``: every breach of the rules of ``journal/reading/rules.py``, and which rules could be checked.

Both are replaced run by run: the breaches of a run in an hour are one file, named after the run. ``polydomo.pipeline.audit`` finds them.
"""

from polydomo.pipeline.tables.table import BY_RUN, UNIT, Column, Table

TABLE = Table(
    "audit",
    "one breach of one rule",
    (
        Column("rule", "STRING", "id of the rule"),
        Column("says", "STRING", "what must hold"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "the run in which it was broken"),
        Column("number", "BIGINT", "the request, if the rule is about requests"),
        Column("worker", "INT", "the worker, if the rule is about workers"),
        Column("connection", "INT", "the connection, if the rule is about connections"),
        Column("service", "STRING", "the service, if the rule is about services"),
        Column("seq", "BIGINT", "the row at which it was broken: the last one that proves it"),
        Column("time", "TIMESTAMP", "when that row was recorded; for a hole, the time of the run's last row"),
        Column("proof", "ARRAY<BIGINT>", "sequence numbers of the rows that prove it, at most 20"),
        Column("detail", "STRING", "more, where the rule has more to say"),
        *UNIT,
    ),
    ("messages", "records"),
    BY_RUN,
)

CHECKS = Table(
    "audit_rules",
    "one rule in one run: whether the journal's level allowed to check it, and the number of breaches",
    (
        Column("run", "BIGINT", "the run"),
        Column("broker", "STRING", "its broker"),
        Column("level", "STRING", "the level of its journal"),
        Column("rule", "STRING", "id of the rule"),
        Column("says", "STRING", "what must hold"),
        Column("checkable", "BOOLEAN", "whether every breach would be visible at this level"),
        Column("breaches", "BIGINT", "number of breaches"),
        *UNIT,
    ),
    ("audit",),
    BY_RUN,
)
