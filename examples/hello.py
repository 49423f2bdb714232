"""A worker and a client in one program.

Prints:

    HELLO, WORLD
"""

import os

from polydomo import Call, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL)


@worker.service("example.upper")
def upper(call: Call) -> str:
    return call.text.upper()


with worker, Client(URL) as client:  # `with worker:` serves from a thread; `worker.run()` serves until Ctrl-C
    print(client.call("example.upper", "hello, world").text)
