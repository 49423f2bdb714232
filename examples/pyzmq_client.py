"""An MDP/0.1 client that uses pyzmq and nothing else. It reaches a worker of our library, which speaks another protocol.

Prints:

    42
"""

import os

import zmq

from polydomo import Call, Worker

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL)


@worker.service("example.double")
def double(call: Call) -> str:
    return str(2 * int(call.text))


with worker, zmq.Context() as context, context.socket(zmq.REQ) as socket:
    socket.connect(URL)
    socket.send_multipart([b"MDPC01", b"example.double", b"21"])
    _header, _service, reply = socket.recv_multipart()
    print(reply.decode())
