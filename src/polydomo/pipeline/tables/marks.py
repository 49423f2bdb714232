"""Requests as bits: 64 numbers of a run are one long integer, so that which of very many are meant is told to every
executor in little, and rows of others are dropped where they are read."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

WORD = 64
BIT = f"shiftleft(1L, CAST(number % {WORD} AS INT))"
PLACE = f"number DIV {WORD} AS word"


def marks(rows: DataFrame) -> DataFrame:
    """Rows ``run, word, bits``: the requests (run, number) of some rows."""
    return (
        rows.selectExpr("run", PLACE, f"{BIT} AS bit").groupBy("run", "word").agg(f.expr("bit_or(bit)").alias("bits"))
    )


def with_bits(rows: DataFrame, marks: DataFrame, how: str) -> DataFrame:
    """The rows with the ``bits`` of their word.

    Joined by one long integer, which Spark looks up several times as fast as two: run (40 bits) and word. Where it stands for
    several, they are told apart then, in a form that Spark does not take for keys.
    """
    place = f"run ^ shiftleft(number DIV {WORD}, 40)"
    told = marks.selectExpr("run AS marked_run", "word AS marked_word", "bits", "run ^ shiftleft(word, 40) AS place")
    same = f"run - marked_run = 0 AND number DIV {WORD} - marked_word = 0"
    condition = f.expr(f"rows.place = told.place AND {same}")
    joined = (
        rows.selectExpr("*", f"{place} AS place").alias("rows").join(f.broadcast(told).alias("told"), condition, how)
    )
    return joined.select(*(f.col(f"rows.{name}") for name in rows.columns), "bits")


def marked(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """Those of the rows that are of such a request."""
    return with_bits(rows, marks, "inner").where(f"bits & {BIT} != 0").drop("bits")
