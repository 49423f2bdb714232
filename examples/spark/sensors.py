"""Sensor topics, enriched by a service, as a table that grows. Needs ``pip install 'polydomo[spark]'`` and a broker.

The stream begins with the last value of every topic. After a restart it continues where it stopped. A row with ``gap`` says
that values may be missing.

Prints:

    sensors.hall   20.5 C  68.9 F
    sensors.yard   -3.0 C  26.6 F
"""

import os
import tempfile

from pyspark.sql import Row

from polydomo import Worker
from polydomo.client.publisher import Publisher
from polydomo.pipeline import session
from polydomo.spark import through

BROKER = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")


def fahrenheit(celsius: float) -> float:
    """A typed service: ``through`` knows its columns."""
    return round(celsius * 9 / 5 + 32, 1)


def main() -> None:
    worker = Worker(BROKER)
    worker.add("fahrenheit", fahrenheit)
    spark = session.build(master="local[1]")
    try:
        with worker, Publisher(BROKER) as publisher, tempfile.TemporaryDirectory() as place:
            publisher.publish("sensors.hall", "20.5")
            publisher.publish("sensors.yard", "-3.0")
            publisher.flush()
            heard = (
                spark.readStream.format("polydomo")
                .option("subscribe", "sensors.*")
                .option("to", BROKER)
                .option("spool", f"{place}/spool")
                .load()
            )
            readings = heard.where("gap IS NULL").selectExpr(
                "time", "topic", "CAST(CAST(body AS STRING) AS DOUBLE) AS celsius"
            )
            enriched = through(readings, "fahrenheit", to=BROKER)
            query = (
                enriched.writeStream.format("parquet")
                .option("checkpointLocation", f"{place}/checkpoint")
                .start(f"{place}/table")
            )
            rows: list[Row] = []
            while len(rows) < 2:  # a real stream would run until it is stopped
                if query.awaitTermination(1):  # it raises the reason if the stream has failed
                    break
                if os.path.isdir(f"{place}/table/_spark_metadata"):
                    rows = spark.read.schema(enriched.schema).parquet(f"{place}/table").orderBy("topic").collect()
            query.stop()
            for row in rows:
                print(f"{row.topic}   {row.celsius} C  {row.result} F")
    finally:
        session.close(spark)


if __name__ == "__main__":
    main()
