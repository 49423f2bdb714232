"""How many requests of each service failed on each day, by outcome: a materialized view of a declarative pipeline."""

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@pipelines.materialized_view(comment="One service on one day with requests that failed in one way.")
def failures() -> DataFrame:
    requests = spark.read.parquet("tables/requests")  # the directory of `polydomo pipeline run --tables`
    return requests.where("outcome != 'ok'").groupBy("date", "service", "outcome").count()
