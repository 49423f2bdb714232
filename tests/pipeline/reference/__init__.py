"""The tables in plain Python, row by row, written from docs/pipeline.md. The tests compare the pipeline's tables with these.

The reference shares nothing with the pipeline but the journal's schema, the buckets of durations and the rules of the audit.
"""

from collections.abc import Iterable, Mapping

from polydomo.model.objective import Objective
from tests.pipeline.reference.audit import audit_and_rules
from tests.pipeline.reference.basics import Row
from tests.pipeline.reference.capacity import capacity
from tests.pipeline.reference.flows import flows_and_nodes
from tests.pipeline.reference.jobs import jobs_and_events
from tests.pipeline.reference.journal import Journal
from tests.pipeline.reference.logs_and_values import logs, values
from tests.pipeline.reference.requests import requests_and_hops
from tests.pipeline.reference.services import services
from tests.pipeline.reference.topology import topology
from tests.pipeline.reference.workers import workers


class Reference:
    """``tables``: the rows of every table, by its name."""

    def __init__(self, rows: Iterable[Row], objectives: Mapping[str, Objective] | None = None) -> None:
        journal = Journal(rows)
        made: dict[str, list[Row]] = {}
        made["requests"], made["hops"] = requests_and_hops(journal)
        made["services"] = services(journal)
        made["workers"] = workers(journal)
        made["topology"] = topology(made["requests"], made["hops"])
        made["capacity"] = capacity(journal, made["workers"], dict(objectives or {}))
        made["logs"], made["values"] = logs(journal), values(journal)
        made["jobs"], made["job_events"] = jobs_and_events(journal)
        made["flows"], made["flow_nodes"] = flows_and_nodes(journal)
        made["audit"], made["audit_rules"] = audit_and_rules(journal)
        self.tables = made
