"""A function that gets several calls at once: 64 clients call a service of one text, and a matrix product answers 32 of them.

Prints:

    64 answers from 2 batches
    ValueError: an empty text has no vector
"""

import os

import numpy as np

from polydomo import CallFailed, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")
WEIGHTS = np.random.default_rng(1).random((64, 8))

worker = Worker(URL)
batches: list[int] = []


@worker.service("example.embed", batch=32, wait="1s")
def embed(text: list[str]) -> list[list[float] | ValueError]:
    """The vector of a text."""
    batches.append(len(text))
    letters = np.zeros((len(text), 64))
    for row, each in zip(letters, text, strict=True):
        for letter in each:
            row[ord(letter) % 64] += 1
    vectors = letters @ WEIGHTS  # one product for the whole batch
    return [
        vector.tolist() if each else ValueError("an empty text has no vector")
        for each, vector in zip(text, vectors, strict=True)
    ]


with worker, Client(URL) as client:
    futures = [client.submit("example.embed", text=f"text {n}") for n in range(64)]
    answers = [future.result().json() for future in futures]
    print(f"{len(answers)} answers from {len(batches)} batches")
    try:
        client.call("example.embed", text="")
    except CallFailed as error:
        print(error.text)
