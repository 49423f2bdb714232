"""A client of majortomo: sends one request, prints the parts of the reply as they come, each as a line of JSON."""

import json
import sys

from majortomo import Client

url, service, *frames = sys.argv[1:]
with Client(url) as client:
    client.send(service, *(frame.encode() for frame in frames))
    for part in client.recv_all(timeout=60.0):
        print(json.dumps([frame.decode() for frame in part]), flush=True)
