"""A chain of DCP services: each does its part and passes the request on; the last one answers the client, which used the first one.

The client is a plain pyzmq program. Its metadata comes back unchanged, although the first service sent its own to the second.

Prints:

    scan: metadata order-17
    read: metadata order-17 page-1
    order-17: 4 different words
"""

import os

import zmq

from polydomo import Call, Worker
from polydomo.worker.call import Forward

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = Worker(URL, "dcp", concurrency=3)


@worker.service("example.scan")
def scan(call: Call) -> Forward:
    print("scan: metadata", *(part.decode() for part in call.metadata))
    return call.forward("example.read", call.text.strip(), metadata=[*call.metadata, "page-1"])


@worker.service("example.read")
def read(call: Call) -> Forward:
    print("read: metadata", *(part.decode() for part in call.metadata))
    return call.forward("example.count", *call.text.lower().split())


@worker.service("example.count")
def count(call: Call) -> str:
    return f"{len(set(call))} different words"


with worker:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(URL)
        request = [b"", b"DGBX\x01", b"\x04", b"example.scan", b"", b"order-17", b"", b" To be or not to be "]
        socket.send_multipart(request)
        reply = socket.recv_multipart()  # "" DGBX+01 05 address "" metadata "" data
        print(f"{reply[5].decode()}: {reply[7].decode()}")
