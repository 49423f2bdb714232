"""A worker is killed while it serves a request."""

import signal
import time

from demo.peers.clients import MdpClient
from demo.peers.dialects import MAJORTOMO
from demo.stage import Stage

TITLE = "A worker is killed while it serves a request"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """Ada (MDP/0.1) and Ben (MDX) both offer `render`. A client calls it, and Ada gets the request, because she
        has been idle longest. She is killed with SIGKILL while she works on it. The broker sees that the connection is
        closed, puts the request back at the head of the queue and dispatches it to Ben. The client does nothing and gets one reply."""
    )
    with (
        stage.worker("mdp1", "render", "render", "Ada", hold=3) as ada,
        stage.worker("mdx", "render", "render", "Ben"),
        MdpClient(stage.url, MAJORTOMO) as client,
    ):
        since = len(stage.broker.log)
        client.send("render", "scene 7")
        show.event(f"Ada is {ada.line()}")
        worker = stage.wait_until("requests", bool)[0]["worker"]
        stage.command("requests")
        ada.signal(signal.SIGKILL)
        killed = time.monotonic()
        show.event("SIGKILL")
        lost = stage.broker.logged("worker lost", since, worker=worker)
        show.event(f"broker: worker {worker} lost, {lost['why']}")
        back = stage.broker.logged("request requeued", since, worker=worker)
        show.event(f"broker: request {back['request']} requeued after attempt {back['attempt']}")
        final, reply = client.receive()
        took = time.monotonic() - killed
        show.event(f"client: {reply!r}")
        show.check(
            "another worker takes over", final and reply == "scene 7, rendered by Ben", f"{took:.2f} s after the kill"
        )
        client.send("mmi.service", "render")
        show.check(
            "the client gets one reply, not two",
            client.receive() == (True, "200"),
            "the next message is the reply to its next call",
        )
