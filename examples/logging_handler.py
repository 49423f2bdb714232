"""Log records of a worker, collected at the broker with the request that they belong to. `polydomo logs` shows them.

Prints:

    WARNING example.resize: large image, 5000 px
"""

import logging
import os

import polydomo.logs
from polydomo import Call, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

log = logging.getLogger("example.resize")
log.addHandler(polydomo.logs.Handler(URL))

worker = Worker(URL)


@worker.service("example.resize")
def resize(call: Call) -> str:
    if int(call.text) > 4000:
        log.warning("large image, %s px", call.text)
    return "resized"


with worker, Client(URL) as client:
    client.call("example.resize", "5000")
    records: list[dict[str, str]] = []
    while not records:  # the record travels on a connection of its own, and may arrive after this question
        records = client.call("polydomo.logs", '{"service": "example.resize"}').json()
    print(f"{records[0]['level'].upper()} {records[0]['service']}: {records[0]['message']}")
