"""A model as a service: rows as Arrow in, rows as Arrow out. Needs ``pip install 'polydomo[spark]'`` and a broker, no Java.

The other examples import ``score`` from here. On a Spark cluster, sixteen workers offer it with

    polydomo spark work score model:score --workers 16 --master spark://HOST:7077

Prints:

    id 0: 3 words, score 0.3
    id 1: 2 words, score 0.2
"""

import os

import pyarrow as pa
import pyarrow.compute as pc

from polydomo import Call, Client, Worker

BROKER = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")


def score(call: Call) -> bytes:
    """The model is the number of words by ten."""
    rows = pa.ipc.open_stream(call.body).read_all()
    words = pc.list_value_length(pc.split_pattern(rows["text"], " ")).cast(pa.int64())
    return to_bytes(pa.table({"id": rows["id"], "words": words, "score": pc.divide(words.cast(pa.float64()), 10.0)}))


def to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def main() -> None:
    worker = Worker(BROKER)
    worker.add("score", score)
    texts = pa.table({"id": [0, 1], "text": ["the first text", "the last"]})
    with worker, Client(BROKER) as client:
        reply = client.call("score", to_bytes(texts))
        for row in pa.ipc.open_stream(reply.body).read_all().to_pylist():
            print(f"id {row['id']}: {row['words']} words, score {row['score']}")


if __name__ == "__main__":
    main()
