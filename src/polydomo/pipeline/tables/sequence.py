"""Holes in the sequence of a run, found without sorting its rows: 64 numbers at a time are one word of bits.

A word with all bits set and 64 rows is whole. Words that are not, and those that a row says to be covered, are taken
apart into their rows; what is left to sort is one range for each whole word.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

WORD = 64


def holes(rows: DataFrame, accounts: DataFrame) -> DataFrame:
    """Rows ``run, broker, seq, time, proof, detail``: numbers that are neither there nor covered, and numbers that are there twice.

    ``accounts`` are the rows that may say what is missing. The SQL of ``journal.audit.holes``.
    """
    words = rows.groupBy("run", f.expr(f"seq DIV {WORD}").alias("word")).agg(
        f.expr(f"bit_or(shiftleft(1L, CAST(seq % {WORD} AS INT)))").alias("bits"),
        f.count("*").alias("n"),
        f.min("seq").alias("least"),
        f.max("time").alias("time"),
    )
    covers = accounts.where("covers_run != 0 AND covers_last >= covers_first").selectExpr(
        "covers_run AS run", "covers_first", "covers_last"
    )
    touched = covers.selectExpr("run", f"explode(sequence(covers_first DIV {WORD}, covers_last DIV {WORD})) AS word").distinct()
    marked = words.join(f.broadcast(touched.withColumn("touched", f.lit(1))), ["run", "word"], "left")
    whole = f"touched IS NULL AND bits = -1 AND n = {WORD}"
    apart = marked.where(f"NOT ({whole})").select("run", "word")
    single = (
        rows.withColumn("word", f.expr(f"seq DIV {WORD}"))
        .join(f.broadcast(apart), ["run", "word"], "left_semi")
        .selectExpr("run", "seq AS start", "seq AS end")
    )
    ranges = (
        marked.where(whole)
        .selectExpr("run", f"word * {WORD} AS start", f"word * {WORD} + {WORD - 1} AS end")
        .unionByName(single)
        .unionByName(covers.selectExpr("run", "covers_first AS start", "covers_last AS end"))
    )
    firsts = words.groupBy("run").agg(f.min("least").alias("first"), f.max("time").alias("time"))
    brokers = rows.select("run", "broker").distinct()
    before = Window.partitionBy("run").orderBy("start", "end").rowsBetween(Window.unboundedPreceding, -1)
    walked = (
        ranges.join(f.broadcast(firsts), "run")
        .where("end >= first")
        .withColumn("last", f.coalesce(f.max("end").over(before), f.expr("first - 1")))
        .where("start > last + 1 OR (start = end AND start <= last)")
        .withColumn("gap", f.expr("start > last + 1"))
        .selectExpr("run", "time", "gap", "IF(gap, last + 1, start) AS from", "IF(gap, start - 1, start) AS to")
    )
    return walked.join(f.broadcast(brokers), "run").selectExpr(
        "run", "broker", "to + 1 AS seq", "time", "array(from - 1, to + 1) AS proof",
        "concat(from, ' to ', to, ' are ', IF(gap, 'missing, and no row says so', 'there twice')) AS detail",
    )  # fmt: skip
