"""Partial replies: a worker function that yields, and a client that reads each part as it arrives.

Prints:

    line 1
    line 2
    line 3
    3 lines sent
"""

import os
from collections.abc import Generator

from polydomo import Call, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL)


@worker.service("example.lines")
def lines(call: Call) -> Generator[str, None, str]:
    count = int(call.text)
    for number in range(1, count + 1):
        yield f"line {number}"  # a partial reply
    return f"{count} lines sent"  # the final reply


with worker, Client(URL) as client:
    for part in client.stream("example.lines", "3"):
        print(part.text)
