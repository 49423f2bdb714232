"""Every call ends in a reply or in one exception that says why.

Prints:

    failed: out-of-stock, no more paper
    timeout
    no such service
"""

import os
import time

from polydomo import Call, CallFailed, CallTimeout, Client, NoSuchService, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL)


@worker.service("example.print")
def print_page(call: Call) -> str:
    if call.text == "slowly":
        time.sleep(1.0)
        return "done"
    raise CallFailed("out-of-stock", "no more paper")


with worker, Client(URL) as client:
    try:
        client.call("example.print", "now")
    except CallFailed as error:
        print(f"failed: {error.code}, {error.text}")
    try:
        client.call("example.print", "slowly", timeout=0.2)
    except CallTimeout:
        print("timeout")
    try:
        # With ``check``, the broker is asked first, instead of waiting for a worker.
        client.call("example.no-such-service", check=True)
    except NoSuchService:
        print("no such service")
