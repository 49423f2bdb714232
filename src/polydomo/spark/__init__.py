"""Data through services, on Spark: DataFrames through a service, rows as requests or publications, publications as a stream."""

from polydomo.spark.sql_function import register
from polydomo.spark.through import through

__all__ = ["register", "through"]
