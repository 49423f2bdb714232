"""One worker, called by a client of every protocol.

Prints:

    mdx   HELLO FROM MDX
    mdp1  HELLO FROM MDP1
    mdp2  HELLO FROM MDP2
    dcp   HELLO FROM DCP
    memo  HELLO FROM MEMO
    emqp  HELLO FROM EMQP
"""

import os

from polydomo import Call, Client, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL)


@worker.service("example.shout")
def shout(call: Call) -> str:
    return call.text.upper()


with worker:
    for protocol in ("mdx", "mdp1", "mdp2", "dcp", "memo", "emqp"):
        with Client(URL, protocol) as client:
            print(f"{protocol:5} {client.call('example.shout', f'hello from {protocol}').text}")
