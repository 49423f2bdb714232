"""Requests as bits: 64 numbers of a run are one long integer, so that which of very many are meant is told to every
executor in little, and rows of others are dropped where they are read."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

WORD = 64
BIT = f"shiftleft(1L, CAST(number % {WORD} AS INT))"
PLACE = f"number DIV {WORD} AS word"


def marks(rows: DataFrame) -> DataFrame:
    """Rows ``run, word, bits``: the requests (run, number) of some rows."""
    return rows.selectExpr("run", PLACE, f"{BIT} AS bit").groupBy("run", "word").agg(f.expr("bit_or(bit)").alias("bits"))


def marked(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """Those of the rows that are of such a request."""
    placed = rows.selectExpr("*", PLACE).join(f.broadcast(marks), ["run", "word"])
    return placed.where(f"bits & {BIT} != 0").drop("word", "bits")
