"""A worker dies while it works on a request. The broker gives the request to another worker, and the client gets one reply.

Prints:

    attempt 1 started, and its worker dies
    attempt 2 finished
    reply: done
"""

import multiprocessing
import os
import signal

from polydomo import Call, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")


def serve(dies: bool) -> None:
    worker = Worker(URL)

    @worker.service("example.fragile")
    def fragile(call: Call) -> str:
        if dies:
            print("attempt 1 started, and its worker dies", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        print("attempt 2 finished", flush=True)
        return "done"

    worker.run()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with Client(URL) as client:
        first = context.Process(target=serve, args=(True,), daemon=True)
        first.start()
        future = client.submit("example.fragile", timeout=30)
        first.join()
        second = context.Process(target=serve, args=(False,), daemon=True)
        second.start()
        print("reply:", future.result().text)
        second.terminate()
        second.join()
