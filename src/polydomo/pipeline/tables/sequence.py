"""The sequence of a run, found whole or not without sorting its rows: 64 numbers at a time are one word of bits.

A word with all bits set and 64 rows is whole. What is left to sort is one range for each whole word, and the rows of
the few that are not.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.journal import schema

WORD = 64
ONLY = ", ".join(repr(event) for event in schema.ONLY_MESSAGES)
AT_LEVEL = f"IF(level = '{schema.MESSAGES}' OR event IN ({ONLY}), 2, 1)"  # what a row tells of its journal's level


def words(messages: DataFrame, requests: DataFrame) -> DataFrame:
    """Rows ``run, broker, word, bits, n, least, time, at_level``: what is there of each word, and what its rows tell of the run."""
    place = f"seq DIV {WORD} AS word"
    rows = messages.selectExpr("run", "broker", place, "seq", "time", f"{AT_LEVEL} AS at_level").unionByName(
        requests.selectExpr("run", "broker", place, "seq", "time", "1 AS at_level")
    )
    return rows.groupBy("run", "broker", "word").agg(
        f.expr(f"bit_or(shiftleft(1L, CAST(seq % {WORD} AS INT)))").alias("bits"),
        f.count("*").alias("n"),
        f.min("seq").alias("least"),
        f.max("time").alias("time"),
        f.max("at_level").alias("at_level"),
    )


def facts(words: DataFrame) -> DataFrame:
    """Of each run its broker, level, first row and last time."""
    return words.groupBy("run", "broker").agg(
        f.max("at_level").alias("at_level"), f.min("least").alias("first"), f.max("time").alias("time")
    )


def doubled(words: DataFrame) -> DataFrame:
    """The words in which a number is there more than once."""
    return words.where("n > bit_count(bits)").select("run", "word")


def again(messages: DataFrame, requests: DataFrame, doubled: DataFrame) -> DataFrame:
    """Rows ``run, seq`` of numbers that are there more than once: each as often as it is there beyond the first."""
    rows = (
        messages.select("run", "seq")
        .unionByName(requests.select("run", "seq"))
        .withColumn("word", f.expr(f"seq DIV {WORD}"))
    )
    counted = (
        rows.join(f.broadcast(doubled), ["run", "word"], "left_semi").groupBy("run", "seq").agg(f.count("*").alias("n"))
    )
    return counted.where("n > 1").selectExpr("run", "seq", "explode(sequence(2, n)) AS nth").drop("nth")


def holes(words: DataFrame, facts: DataFrame, covers: DataFrame, again: DataFrame) -> DataFrame:
    """Rows ``run, broker, seq, time, proof, detail``: numbers that are neither there nor covered, and numbers that are there twice.

    ``covers`` are the ranges ``run, start, end`` that a row says to be missing. The SQL of ``journal.audit.holes``.
    """
    there = f"transform(filter(sequence(0, {WORD - 1}), i -> shiftright(bits, i) & 1 = 1), i -> word * {WORD} + i)"
    touched = covers.selectExpr("run", f"explode(sequence(start DIV {WORD}, end DIV {WORD})) AS word").distinct()
    marked = words.join(f.broadcast(touched.withColumn("touched", f.lit(1))), ["run", "word"], "left")
    whole = f"touched IS NULL AND bits = -1 AND n = {WORD}"
    ranges = (
        marked.where(whole)
        .selectExpr("run", f"word * {WORD} AS start", f"word * {WORD} + {WORD - 1} AS end", "true AS there")
        .unionByName(
            marked.where(f"NOT ({whole})").selectExpr(
                "run", f"explode({there}) AS start", "start AS end", "true AS there"
            )
        )
        .unionByName(again.selectExpr("run", "seq AS start", "seq AS end", "true AS there"))
        .unionByName(covers.selectExpr("run", "start", "end", "false AS there"))
    )
    before = Window.partitionBy("run").orderBy("start", "end").rowsBetween(Window.unboundedPreceding, -1)
    walked = (
        ranges.join(f.broadcast(facts), "run")
        .where("end >= first")
        .withColumn("last", f.coalesce(f.max("end").over(before), f.expr("first - 1")))
        .where("start > last + 1 OR (there AND start <= last)")
        .withColumn("gap", f.expr("start > last + 1"))
        .selectExpr(
            "run", "broker", "time", "gap", "IF(gap, last + 1, start) AS from", "IF(gap, start - 1, start) AS to"
        )
    )
    return walked.selectExpr(
        "run", "broker", "to + 1 AS seq", "time", "array(from - 1, to + 1) AS proof",
        "concat(from, ' to ', to, ' are ', IF(gap, 'missing, and no row says so', 'there twice')) AS detail",
    )  # fmt: skip
