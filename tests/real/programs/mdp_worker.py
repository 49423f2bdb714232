"""A worker of pyzmq-mdp, as its own example is written: replies with the frames in reverse order.

Words: broker, service, and milliseconds between its heartbeats, if not its own second.
"""

import sys

import mdp_old_names  # noqa: F401 - first
import zmq
from mdp import MDPWorker
from tornado.ioloop import IOLoop


class Reverser(MDPWorker):  # type: ignore[misc]
    HB_INTERVAL = int(sys.argv[3]) if len(sys.argv) > 3 else MDPWorker.HB_INTERVAL

    def on_request(self, msg: list[bytes]) -> None:
        self.reply(msg[::-1])


worker = Reverser(zmq.Context(), sys.argv[1], sys.argv[2].encode())
IOLoop.instance().start()
