"""An MDP/0.1 client on a DEALER that keeps some requests outstanding until all are answered, and prints when each answer came.

The last line is a JSON object: how many were answered, and the seconds from the first request to the last answer.
"""

import argparse
import json
import time

import zmq


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("service")
    parser.add_argument("count", type=int)
    parser.add_argument("--outstanding", type=int, default=1)
    parser.add_argument("--size", type=int, default=10)
    options = parser.parse_args()

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.sndhwm = socket.rcvhwm = 0
    socket.connect(options.url)
    body = bytes(options.size)
    start = time.monotonic()
    sent = 0
    numbers: set[int] = set()
    for _ in range(options.count):
        while sent < options.count and sent - len(numbers) < options.outstanding:
            socket.send_multipart([b"", b"MDPC01", options.service.encode(), b"%d" % sent, body])
            sent += 1
        numbers.add(int(socket.recv_multipart()[-2]))
    print(json.dumps({"answered": len(numbers), "seconds": time.monotonic() - start}), flush=True)
    socket.close(0)
    context.term()


if __name__ == "__main__":
    main()
