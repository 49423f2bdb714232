"""The pipeline: tables of the journal, defined in Spark SQL and computed by Spark."""

from polydomo.pipeline.catalog import register
from polydomo.pipeline.tables.table import Column, Table, table

__all__ = ["Column", "Table", "register", "table"]
