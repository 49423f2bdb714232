"""Sockets of libzmq that neither wait for ever nor keep a test from ending."""

from typing import Any

import zmq

PATIENCE = 60.0


def patient(socket: "zmq.Socket[Any]") -> None:
    """A receive that takes too long raises; closing does not wait."""
    socket.setsockopt(zmq.RCVTIMEO, int(PATIENCE * 1000))
    socket.setsockopt(zmq.LINGER, 0)
