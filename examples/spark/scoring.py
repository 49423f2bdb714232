"""A model is served by workers and applied to a DataFrame. Needs ``pip install 'polydomo[spark]'`` and a broker.

Prints:

    +---+-----+-----+
    | id|words|score|
    +---+-----+-----+
    |  0|    3|  0.3|
    |  1|    4|  0.4|
    |  2|    2|  0.2|
    +---+-----+-----+
"""

from model import BROKER, score  # type: ignore[import-not-found]

from polydomo import Worker
from polydomo.pipeline import session
from polydomo.spark import through

TEXTS = [(0, "the first text"), (1, "and this the second"), (2, "the last")]


def main() -> None:
    worker = Worker(BROKER, concurrency=2)
    worker.add("score", score)
    spark = session.build(master="local[1]")
    try:
        with worker:
            texts = spark.createDataFrame(TEXTS, "id BIGINT, text STRING")
            scored = through(texts, "score", to=BROKER, schema="id BIGINT, words BIGINT, score DOUBLE")
            scored.orderBy("id").show()
    finally:
        session.close(spark)


if __name__ == "__main__":
    main()
