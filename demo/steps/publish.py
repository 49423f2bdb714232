"""Publishing, and the last value for who comes later."""

import zmq

from demo.peers.clients import PATIENCE
from demo.stage import Stage

TITLE = "A catch_up learns the last value"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """The same port takes what is published and gives it to whoever subscribes. A thermometer publishes over eMQP; only then
        does a plain SUB socket subscribe. It is given the last value of each topic first, then what is published from then on."""
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
        show.event(f"catch_up: {b' '.join(first).decode()}")
        show.check(
            "a late subscriber is given the last value", first == [b"lab.temperature", b"20.4"], first[-1].decode()
        )
        publish(thermometer, b"20.9")
        second = receive(late)
        show.event(f"catch_up: {b' '.join(second).decode()}")
        show.check("... and then everything new", second == [b"lab.temperature", b"20.9"], second[-1].decode())
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
