"""Publish and subscribe with plain pyzmq sockets. The broker keeps the last value of each topic for late subscribers.

Prints:

    example.weather.oslo snow
"""

import os

import zmq

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

with zmq.Context() as context:
    with context.socket(zmq.XPUB) as publisher:  # XPUB: like PUB, but it can wait until the broker has subscribed
        publisher.connect(URL)
        publisher.recv()
        publisher.send_multipart([b"example.weather.oslo", b"snow"])
        with context.socket(zmq.SUB) as subscriber:  # it subscribes after the message was sent, and still gets it
            subscriber.connect(URL)
            subscriber.setsockopt(zmq.SUBSCRIBE, b"example.weather.")
            topic, value = subscriber.recv_multipart()
            print(topic.decode(), value.decode())
