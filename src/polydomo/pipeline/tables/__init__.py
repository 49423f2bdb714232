"""The tables, one module each: name, columns, and what a row is. They are computed in ``polydomo.pipeline.engine``."""

from polydomo.pipeline.tables import audit, capacity, hops, jobs, logs, requests, services, topology, values, workers
from polydomo.pipeline.tables.table import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        requests.TABLE,
        hops.TABLE,
        services.TABLE,
        workers.TABLE,
        topology.TABLE,
        audit.TABLE,
        audit.CHECKS,
        capacity.TABLE,
        logs.TABLE,
        values.TABLE,
        jobs.TABLE,
        jobs.EVENTS,
    )
}
