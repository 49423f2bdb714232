"""A pyzmq socket on strings: sends what it reads from standard input, and prints what it receives.

A message is one line, a JSON list of its frames in hexadecimal. The end of standard input closes the socket, after all was sent.
"""

import argparse
import json
import sys
import threading

import zmq


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("type", help="DEALER, REQ, SUB, PUB, ...")
    parser.add_argument("url")
    parser.add_argument("--subscribe", action="append", default=[], help="topics of a SUB")
    parser.add_argument("--identity", default="")
    parser.add_argument("--pings", type=int, default=0, help="milliseconds between ZMTP PINGs")
    parser.add_argument(
        "--ping-timeout", type=int, default=1000, help="milliseconds until an unanswered PING ends the connection"
    )
    options = parser.parse_args()

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(getattr(zmq, options.type))
    socket.reconnect_ivl = 50
    if options.identity:
        socket.identity = options.identity.encode()
    if options.pings:
        socket.heartbeat_ivl = options.pings
        socket.heartbeat_timeout = options.ping_timeout
    for topic in options.subscribe:
        socket.subscribe(topic.encode())
    socket.connect(options.url)

    # A thread reads the lines and hands them over, so that the socket stays in this one.
    strings = context.socket(zmq.PAIR)
    strings.bind("inproc://strings")
    threading.Thread(target=pull, args=(context,), daemon=True).start()
    poller = zmq.Poller()
    poller.register(strings, zmq.POLLIN)
    if options.type not in ("PUB", "PUSH"):
        poller.register(socket, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if socket in ready:
            print(json.dumps([frame.hex() for frame in socket.recv_multipart()]), flush=True)
        if strings in ready:
            line = strings.recv()
            if not line:
                break
            socket.send_multipart([bytes.fromhex(frame) for frame in json.loads(line)])
    strings.close()
    socket.close(2000)
    context.term()


def pull(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with context.socket(zmq.PAIR) as strings:
        strings.connect("inproc://strings")
        for line in sys.stdin:
            strings.send(line.encode())
        strings.send(b"")


if __name__ == "__main__":
    main()
