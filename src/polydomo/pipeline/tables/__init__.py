"""The tables, one module each: a pure function from DataFrames to a DataFrame whose columns are stated in the module."""

from polydomo.pipeline.tables import audit, capacity, hops, logs, requests, services, topology, values, workers
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
    )
}
