"""A client of pyzmq-mdp: one request; prints the reply's frames as a line of JSON."""

import json
import sys

import mdp_old_names  # noqa: F401 - first
import zmq
from mdp import MDPClient
from tornado.ioloop import IOLoop


class Asking(MDPClient):  # type: ignore[misc]
    def on_message(self, msg: list[bytes]) -> None:
        print(json.dumps([frame.decode() for frame in msg]), flush=True)
        IOLoop.instance().stop()

    def on_timeout(self) -> None:
        print("null", flush=True)
        IOLoop.instance().stop()


url, service, timeout, *frames = sys.argv[1:]
client = Asking(zmq.Context(), url, service.encode())
client.request([frame.encode() for frame in frames], int(timeout))
IOLoop.instance().start()
client.shutdown()
