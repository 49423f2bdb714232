"""Nightly scoring: the texts of one day go through the model, and their scores replace the partition of that day.

``python nightly.py 2026-01-31`` may be run again at any time: it replaces the same partition. Start it from cron, Airflow, or with
`polydomo schedule`. Needs ``pip install 'polydomo[spark]'`` and a broker.

Prints:

    2026-01-31: 3 rows scored, 0 failed
    2026-01-31: 3 rows scored, 0 failed
    days in the table: 2026-01-31
"""

import sys
import tempfile

from model import BROKER, score  # type: ignore[import-not-found]
from pyspark.sql import SparkSession

from polydomo import Worker
from polydomo.pipeline import session
from polydomo.spark import through

TEXTS = [("2026-01-30", 0, "yesterday"), *(("2026-01-31", n, f"text number {n}") for n in range(1, 4))]


def run(spark: SparkSession, day: str, source: str, table: str) -> None:
    texts = spark.read.parquet(source).where(f"day = '{day}'").select("id", "text")
    scored, failed = through(
        texts, "score", to=BROKER, schema="id BIGINT, words BIGINT, score DOUBLE", batch_rows=500, on_error="collect"
    )
    scored.selectExpr(f"'{day}' AS day", "*").write.mode("overwrite").partitionBy("day").parquet(table)
    print(f"{day}: {scored.count()} rows scored, {failed.count()} failed")


def main() -> None:
    day = sys.argv[1] if len(sys.argv) > 1 else "2026-01-31"
    worker = Worker(BROKER)  # in production the workers run elsewhere
    worker.add("score", score)
    # only the partitions that are written are replaced
    spark = session.build(master="local[1]", conf={"spark.sql.sources.partitionOverwriteMode": "dynamic"})
    try:
        with worker, tempfile.TemporaryDirectory() as place:
            spark.createDataFrame(TEXTS, "day STRING, id BIGINT, text STRING").write.parquet(f"{place}/texts")
            for _ in range(2):
                run(spark, day, f"{place}/texts", f"{place}/scores")
            days = spark.read.parquet(f"{place}/scores").select("day").distinct().collect()
            print("days in the table:", ", ".join(str(row.day) for row in days))
    finally:
        session.close(spark)


if __name__ == "__main__":
    main()
