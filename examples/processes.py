"""Functions in a pool of processes: a crash ends one call only, and a call whose time is over is killed.

Prints:

    failed: the process of the call ended before the call: it was killed by SIGSEGV
    no reply from example.spin within 0.5 s
    the pool still has 2 processes
"""

import os
import signal

from polydomo import Call, CallFailed, CallTimeout, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL, processes=2, grace=0.0)


@worker.service("example.crash")
def crash(call: Call) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@worker.service("example.spin")
def spin(call: Call) -> None:
    while True:
        pass


@worker.service("example.process")
def process(call: Call) -> str:
    return str(os.getpid())


with worker, Client(URL) as client:
    try:
        client.call("example.crash")
    except CallFailed as error:
        print(error)
    try:
        client.call("example.spin", timeout=0.5)
    except CallTimeout as error:
        print(error)
    found: set[str] = set()
    while len(found) < 2:  # until the processes that ended have been replaced
        futures = [client.submit("example.process") for _ in range(50)]
        found |= {future.result().text for future in futures}
    print(f"the pool still has {len(found)} processes")
