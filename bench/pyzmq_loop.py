"""The plainest MDP/0.1 broker on pyzmq, for comparison: a ROUTER socket, a queue and idle workers; no heartbeats, no recovery."""

import sys
from collections import defaultdict, deque

import zmq


def main(url: str) -> None:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.set_hwm(0)
    socket.bind(url)
    idle: defaultdict[bytes, deque[bytes]] = defaultdict(deque)
    waiting: defaultdict[bytes, deque[list[bytes]]] = defaultdict(deque)
    offers: dict[bytes, bytes] = {}

    def free(worker: bytes, service: bytes) -> None:
        if waiting[service]:
            hand(worker, waiting[service].popleft())
        else:
            idle[service].append(worker)

    def hand(worker: bytes, message: list[bytes]) -> None:
        socket.send_multipart([worker, b"", b"MDPW01", b"\x02", message[0], b"", *message[4:]])

    while True:
        message = socket.recv_multipart()
        peer, _, header, word = message[:4]
        if header == b"MDPC01":
            if idle[word]:
                hand(idle[word].popleft(), message)
            else:
                waiting[word].append(message)
        elif word == b"\x01":
            offers[peer] = message[4]
            free(peer, message[4])
        elif word == b"\x03":
            socket.send_multipart([message[4], b"", b"MDPC01", offers[peer], *message[6:]])
            free(peer, offers[peer])


main(sys.argv[1])
