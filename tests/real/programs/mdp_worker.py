"""A worker of pyzmq-mdp, as its own example is written: replies with the frames in reverse order."""

import sys

import mdp_old_names  # noqa: F401 - first
import zmq
from mdp import MDPWorker
from tornado.ioloop import IOLoop


class Reverser(MDPWorker):  # type: ignore[misc]
    HB_INTERVAL = 200

    def on_request(self, msg: list[bytes]) -> None:
        self.reply(msg[::-1])


worker = Reverser(zmq.Context(), sys.argv[1], sys.argv[2].encode())
IOLoop.instance().start()
