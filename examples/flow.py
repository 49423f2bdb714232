"""A flow: pages are read one by one, joined, and counted. Each step is on disk, and a failed one can be run again.

Start a broker with `polydomo up`, then run this program.

Prints:

    join: the quick brown fox
    count: 4 words
    6 of 6 nodes are done
"""

import os

from polydomo import Call, Client, Flow, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL)


@worker.service("ocr")
def ocr(call: Call) -> str:
    return call.text.removesuffix(".png")


@worker.service("join")
def join(call: Call) -> bytes:
    return b" ".join(call.frames)


@worker.service("count")
def count(call: Call) -> str:
    return f"{len(call.text.split())} words"


flow = Flow("pages")
pages = flow.map("ocr", ["the.png", "quick.png", "brown.png", "fox.png"])  # one node for each page
text = flow.call("join", pages)  # gets the four results, in order
flow.call("count", text)

with worker, Client(URL) as client:
    run = client.start(flow)
    for step in run.watch():
        if step.node in ("join", "count"):
            print(f"{step.node}: {run.result(step.node).text}")
    print(f"{step.done} of {step.total} nodes are done")
