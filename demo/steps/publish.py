"""Publishing, and last values for late subscribers."""

import zmq

from demo.peers.clients import PATIENCE
from demo.stage import Stage

TITLE = "Publish and subscribe"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """The same port serves publishers and subscribers. A thermometer publishes over eMQP; after that, a plain SUB socket subscribes.
        It first gets the last value of each topic, then new messages."""
    )
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    thermometer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    late: zmq.Socket[bytes] = context.socket(zmq.SUB)
    try:
        for socket in (thermometer, late):
            socket.setsockopt(zmq.LINGER, 0)
        thermometer.connect(stage.url)
        for value in (b"20.1", b"20.4"):
            publish(thermometer, value)
            show.event(f"thermometer: lab.temperature {value.decode()}")
        answered(thermometer)  # both have arrived
        late.connect(stage.url)
        late.setsockopt(zmq.SUBSCRIBE, b"lab.")
        first = receive(late)
        show.event(f"subscriber: {b' '.join(first).decode()}")
        show.check("a late subscriber gets the last value", first == [b"lab.temperature", b"20.4"], first[-1].decode())
        publish(thermometer, b"20.9")
        second = receive(late)
        show.event(f"subscriber: {b' '.join(second).decode()}")
        show.check("then it gets new messages", second == [b"lab.temperature", b"20.9"], second[-1].decode())
    finally:
        thermometer.close()
        late.close()


def publish(socket: "zmq.Socket[bytes]", value: bytes) -> None:
    socket.send_multipart([b"", b"eMQP/1.0", b"PUBLISH", b"id", b"lab.temperature", value])


def answered(socket: "zmq.Socket[bytes]") -> None:
    """Waits until the broker has read everything so far: it answers a call that comes after it."""
    socket.send_multipart([b"", b"eMQP/1.0", b"REQUEST", b"ask", b"mmi.service", b"reply-requested", b"x"])
    receive(socket)


def receive(socket: "zmq.Socket[bytes]") -> list[bytes]:
    if not socket.poll(int(PATIENCE * 1000)):
        raise TimeoutError(f"nothing heard within {PATIENCE:g} s")
    return socket.recv_multipart()
