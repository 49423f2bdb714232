"""``audit`` and ``audit_rules``: every breach of the rules of ``journal/reading/rules.py``, and which rules could be checked.

Both are replaced run by run: the breaches of a run in an hour are one file, named after the run. ``polydomo.pipeline.audit`` finds them.
"""

from polydomo.pipeline.tables.table import BY_RUN, Table, columns

TABLE = Table(
    "audit",
    "one breach of one rule",
    columns(
        """
        rule STRING -- id of the rule
        says STRING -- what must hold
        broker STRING -- the broker
        run BIGINT -- the run in which it was broken
        number BIGINT -- the request, if the rule is about requests
        worker INT -- the worker, if the rule is about workers
        connection INT -- the connection, if the rule is about connections
        service STRING -- the service, if the rule is about services
        seq BIGINT -- the row at which it was broken: the last one that proves it
        time TIMESTAMP -- when that row was recorded; for a hole, the time of the run's last row
        proof ARRAY<BIGINT> -- sequence numbers of the rows that prove it, at most 20
        detail STRING -- more, where the rule has more to say
        """
    ),
    ("messages", "records"),
    BY_RUN,
)

CHECKS = Table(
    "audit_rules",
    "one rule in one run: whether the journal's level allowed to check it, and the number of breaches",
    columns(
        """
        run BIGINT -- the run
        broker STRING -- its broker
        level STRING -- the level of its journal
        rule STRING -- id of the rule
        says STRING -- what must hold
        checkable BOOLEAN -- whether every breach would be visible at this level
        breaches BIGINT -- number of breaches
        """
    ),
    ("audit",),
    BY_RUN,
)
