"""The tables, one module each: name, columns, the tables that it reads, and its definition in Spark SQL."""

from polydomo.pipeline.tables import (
    audit,
    capacity,
    flows,
    hops,
    jobs,
    logs,
    requests,
    services,
    topology,
    values,
    workers,
)
from polydomo.pipeline.tables.table import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        requests.requests,
        hops.hops,
        services.services,
        workers.workers,
        topology.topology,
        audit.TABLE,
        audit.CHECKS,
        capacity.capacity,
        logs.logs,
        values.values,
        jobs.jobs,
        jobs.job_events,
        flows.flow_nodes,
        flows.flows,
    )
}
