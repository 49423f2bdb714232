"""A client of EventMQ, as its documentation writes it, told what to send by lines of JSON on standard input.

``["defer", {...}]``, ``["schedule", {...}]`` and ``["publish", topic, message]`` are passed to EventMQ's functions of that name;
``["receive"]`` waits for one message. Each prints one line of JSON: the message id, or the message.
"""

import json
import sys

import zmq
from eventmq.client.messages import defer_job, schedule, send_publish_request
from eventmq.sender import Sender

socket = Sender()
socket.connect(sys.argv[1])
poller = zmq.Poller()
poller.register(socket.zsocket, zmq.POLLIN)

for line in sys.stdin:
    what, *rest = json.loads(line)
    if what == "receive":
        answer = socket.recv_multipart() if poller.poll(60_000) else None
        answer = [part.decode() if isinstance(part, bytes) else part for part in answer] if answer else None
    elif what == "publish":
        answer = send_publish_request(socket, *rest)
    else:
        answer = (defer_job if what == "defer" else schedule)(socket, **rest[0])
    print(json.dumps(answer), flush=True)
