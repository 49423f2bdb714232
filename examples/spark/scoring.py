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

import os

import pyarrow as pa
import pyarrow.compute as pc

from polydomo import Call, Worker
from polydomo.pipeline import session
from polydomo.spark import through

BROKER = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")


def score(call: Call) -> bytes:
    """Rows as Arrow in, rows as Arrow out. The model is the number of words by ten."""
    rows = pa.ipc.open_stream(call.body).read_all()
    words = pc.list_value_length(pc.split_pattern(rows["text"], " ")).cast(pa.int64())
    made = pa.table({"id": rows["id"], "words": words, "score": pc.divide(words.cast(pa.float64()), 10.0)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    return bytes(sink.getvalue())


def main() -> None:
    worker = Worker(BROKER, concurrency=2)
    worker.add("score", score)
    spark = session.build(master="local[1]")
    try:
        with worker:
            texts = spark.createDataFrame(
                [(0, "the first text"), (1, "and this the second"), (2, "the last")], "id BIGINT, text STRING"
            )
            scored = through(texts, "score", to=BROKER, schema="id BIGINT, words BIGINT, score DOUBLE")
            scored.orderBy("id").show()
    finally:
        session.close(spark)


if __name__ == "__main__":
    main()
