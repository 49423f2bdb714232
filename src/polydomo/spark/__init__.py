"""Services on Spark: send a DataFrame through a service, send rows as requests or publications, read publications as a stream."""

from polydomo.spark.executors import prepare
from polydomo.spark.sql_function import register
from polydomo.spark.through import through

__all__ = ["prepare", "register", "through"]
