"""A worker as majortomo's own documentation writes it: each frame of the request is a partial reply, and the final one counts them.

Given a third word, a file, it notes each request there before it answers, and waits a second for whoever wants to kill it.
"""

import logging
import sys
import time
from pathlib import Path

from majortomo import Worker, WorkerRequestsIterator

url, service = sys.argv[1:3]
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
worker = WorkerRequestsIterator(Worker(url, service, heartbeat_interval=0.2, heartbeat_timeout=15.0))
worker.stop_on_signal()
for request in worker:
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_bytes(b"taken")
        time.sleep(600)
    worker.send_reply_from_iterable([[frame] for frame in request], [b"%d frames" % len(request)])
