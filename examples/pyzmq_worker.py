"""An MDP/0.1 worker that uses pyzmq and nothing else, and a client of our library that calls it over MDX.

Prints:

    tacocat
"""

import os
import threading

import zmq

from polydomo import Client

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"


def serve_one_request() -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(URL)
        socket.send_multipart([b"", b"MDPW01", READY, b"example.reverse"])
        while True:
            _empty, _header, command, *rest = socket.recv_multipart()
            if command == REQUEST:
                client, _empty, body = rest
                socket.send_multipart([b"", b"MDPW01", REPLY, client, b"", body[::-1]])
                socket.send_multipart([b"", b"MDPW01", DISCONNECT])
                return
            if command == HEARTBEAT:
                socket.send_multipart([b"", b"MDPW01", HEARTBEAT])


thread = threading.Thread(target=serve_one_request)
thread.start()
with Client(URL) as client:
    print(client.call("example.reverse", "tacocat").text)
thread.join()
